use super::*;
use crate::journal::testing::{KERNEL, Scratch};
use std::fs::{self, File};
use std::os::fd::AsFd;

fn sample() -> Header {
    let dir = Scratch::new();
    let identity = Identity::of_path(dir.root()).unwrap();
    let mut header =
        Header::new(Kind::Records, Domain::PageCache, Domain::PageCache, identity, Path::new("/a/file")).unwrap();
    header.geometry = core::array::from_fn(|i| i as u64 * 3);
    header
}

/// Both copies, as a finished store leaves them.
fn image(header: &Header) -> Vec<u8> {
    let copy = header.encode();
    [copy, copy].concat()
}

#[test]
fn the_layout_is_fixed() {
    assert_eq!([MAGIC, VERSION, KIND, STATE, DOMAIN, FILE_DOMAIN, SEQUENCE], [0, 8, 12, 16, 20, 24, 32]);
    assert_eq!([JOURNAL_ID, BOOT_ID, IDENTITY, GEOMETRY, HINT_LEN, HINT], [40, 56, 72, 224, 352, 360]);
    assert_eq!([END, CHECKSUM, COPY_LEN, LEN], [1384, 2032, 2048, 4096]);
    let bytes = sample().encode();
    assert_eq!(&bytes[..12], b"FAMIOJNL\x01\0\0\0");
    assert_eq!([bytes[KIND], bytes[STATE], bytes[DOMAIN], bytes[FILE_DOMAIN]], [2, 1, 2, 2]);
    assert!(is_zero(&bytes[28..SEQUENCE]) && is_zero(&bytes[168..GEOMETRY]) && is_zero(&bytes[END..CHECKSUM]));
    assert_eq!(&bytes[HINT..HINT + 8], b"/a/file\0");
}

#[test]
fn goes_to_the_medium_and_back() {
    let mut header = sample();
    for state in State::ALL {
        for domain in Domain::ALL {
            (header.state, header.domain, header.file_domain) = (state, domain, domain);
            assert_eq!(Header::read(&image(&header)).unwrap(), (header.clone(), Found::Whole));
        }
    }
    header.kind = Kind::InPlace;
    header.path_hint = PathBuf::from("x".repeat(HINT_MAX));
    assert_eq!(Header::read(&image(&header)).unwrap().0, header);
    header.path_hint = PathBuf::from("x".repeat(HINT_MAX + 1));
    assert_eq!(Header::read(&image(&header)).unwrap().0.path_hint, Path::new(""));
}

#[test]
fn one_damaged_copy_is_survived_and_two_are_told() {
    let header = sample();
    let good = image(&header);
    for at in 0..LEN {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let (read, found) = Header::read(&bad).unwrap();
        assert_eq!((found, read.copies.first == Copy::Primary), (Found::OneCopy, at < COPY_LEN), "byte {at}");
        assert_eq!(read.encode(), header.encode());
        let at = (at + COPY_LEN) % LEN;
        bad[at] ^= 0x10;
        let error = Header::read(&bad).unwrap_err();
        assert_eq!(error.errno(), libc::EIO);
        let what = match at % COPY_LEN {
            0..VERSION => "FAMIOJNL",
            VERSION..KIND => "format version",
            _ => "checksum",
        };
        assert!(error.to_string().contains(what), "byte {at}: {error}");
    }
    for length in 0..LEN {
        assert!(Header::read(&good[..length]).unwrap_err().to_string().contains("too short"));
    }
}

#[test]
fn wrong_values_under_a_right_checksum_are_told() {
    let fields: [(usize, u64, &str); 6] = [
        (KIND, 0, "unknown kind, 0"),
        (KIND, 4, "unknown kind, 4"),
        (STATE, 6, "unknown state, 6"),
        (DOMAIN, u32::MAX.into(), "unknown domain, "),
        (FILE_DOMAIN, 5, "unknown domain of the file"),
        (HINT_LEN, HINT_MAX as u64 + 1, "a path of 1025 bytes"),
    ];
    for (at, value, what) in fields {
        let mut copy = sample().encode();
        if at == HINT_LEN {
            put(&mut copy, at, &value.to_le_bytes());
        } else {
            put(&mut copy, at, &(value as u32).to_le_bytes());
        }
        let sum = xxh3_128(&copy[..CHECKSUM]);
        put(&mut copy, CHECKSUM, &sum.to_le_bytes());
        let error = Header::decode(&copy).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn a_store_cut_anywhere_leaves_the_old_or_the_new_state() {
    let dir = Scratch::new();
    let header = sample();
    let mut old = image(&header);
    // A copy that is damaged already must not be relied on.
    for broken in [None, Some(10), Some(COPY_LEN + 10)] {
        if let Some(at) = broken {
            old[at] ^= 1;
        }
        let mut new = Header::read(&old).unwrap().0;
        new.state = State::Clean;
        let mut after = old.clone();
        let copies = [new.copies.first, new.copies.first.other()].map(|copy| copy as usize * COPY_LEN);
        let bytes = {
            let mut twin = new.clone();
            twin.next()
        };
        for at in copies {
            for torn in (0..=COPY_LEN).step_by(64) {
                let mut cut = after.clone();
                cut[at..at + torn].copy_from_slice(&bytes[..torn]);
                let (read, _) = Header::read(&cut).unwrap();
                assert!(matches!(read.state, State::Creating | State::Clean), "{broken:?} {at} {torn}");
            }
            after[at..at + COPY_LEN].copy_from_slice(&bytes[..]);
            assert_eq!(Header::read(&after).unwrap().0.state, State::Clean);
        }
        fs::write(dir.path("j"), &old).unwrap();
        new.store(File::options().write(true).open(dir.path("j")).unwrap(), &KERNEL).unwrap();
        assert_eq!(fs::read(dir.path("j")).unwrap(), after);
        assert_eq!(Header::read(&after).unwrap(), (new, Found::Whole));
        old = image(&header);
    }
}

#[test]
fn is_stored_in_a_file() {
    let dir = Scratch::new();
    let file = File::options().read(true).write(true).create_new(true).open(dir.path("j")).unwrap();
    assert!(Header::load(file.as_fd()).unwrap_err().to_string().contains("too short"));
    let mut header = sample();
    header.store(file.as_fd(), &KERNEL).unwrap();
    header.state = State::Active;
    header.store(file.as_fd(), &KERNEL).unwrap();
    assert_eq!(Header::load(file.as_fd()).unwrap(), (header, Found::Whole));
    assert_eq!(fs::read(dir.path("j")).unwrap().len(), LEN);
}

/// Only the copy that a store flushed is certain: the next store once began with it, while the other one might have
/// been only in a cache.
#[test]
fn the_next_store_begins_with_the_copy_that_was_not_flushed() {
    let dir = Scratch::new();
    let file = File::options().read(true).write(true).create_new(true).open(dir.path("j")).unwrap();
    let mut header = sample();
    header.store(&file, &KERNEL).unwrap();
    assert!(is_blank(&fs::read(dir.path("j")).unwrap()), "creation was not finished");
    header.has_begun(true);
    for state in [State::Active, State::Active, State::Suspect, State::Clean] {
        let begins_with = header.copies.first;
        header.state = state;
        header.store(&file, &KERNEL).unwrap();
        assert_eq!(header.copies.first, begins_with.other());
        let mut bytes = fs::read(dir.path("j")).unwrap();
        bytes[header.copies.first as usize * COPY_LEN..][..COPY_LEN].fill(0);
        assert_eq!(Header::read(&bytes).unwrap(), (header.clone(), Found::OneCopy));
    }
}

#[test]
fn the_last_state_takes_the_copy_that_was_not_flushed() {
    let dir = Scratch::new();
    let file = File::options().read(true).write(true).create_new(true).open(dir.path("j")).unwrap();
    let mut header = sample();
    header.store(&file, &KERNEL).unwrap();
    header.has_begun(true);
    header.state = State::Active;
    header.store(&file, &KERNEL).unwrap();
    let (active, weaker) = (header.clone(), header.copies.first);
    header.state = State::Clean;
    header.store_one_copy(&file, &KERNEL).unwrap();
    assert!(header.copies.first == weaker.other() && !header.copies.is_other_durable);
    let bytes = fs::read(dir.path("j")).unwrap();
    assert_eq!(Header::read(&bytes).unwrap().0, header);
    for (copy, expected) in [(weaker, &active), (weaker.other(), &header)] {
        let mut bytes = bytes.clone();
        bytes[copy as usize * COPY_LEN..][..COPY_LEN].fill(0);
        assert_eq!(Header::read(&bytes).unwrap(), (expected.clone(), Found::OneCopy));
    }
}

#[test]
fn an_unfinished_creation_is_blank() {
    assert!(is_blank(&[]) && is_blank(&[0; 100]) && is_blank(&[0; LEN]));
    let mut bytes = image(&sample());
    assert!(!is_blank(&bytes));
    bytes[..COPY_LEN].fill(0);
    assert!(is_blank(&bytes));
}
