//! A journal that is damaged, cut, of another version, of another file, or malicious: opening the file fails with
//! `EIO` and a message that names both files, and changes nothing; or it gives exactly what was committed.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::Scratch;
use crash::{Crashed, everywhere_and_tiered, in_place, is_stopped};
use famio::Settings;
use famio::journal::Header;
use famio::recovery::{Outcome, Use};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use xxhash_rust::xxh3::xxh3_128;

#[test]
fn crash_child() {
    crash::child();
}

/// Header, slots, the first segment's header and its 64 entries; log blocks follow, which carry no checksum.
const METADATA: usize = 8192 + 64 + 64 * 64;

#[test]
fn any_changed_byte_of_a_journal_in_place() {
    let all = in_place();
    std::thread::scope(|scope| {
        for (turn, settings) in all.iter().enumerate() {
            scope.spawn(move || {
                let crashed = Crashed::usual(Scratch::on_tmpfs(&format!("flip{turn}")), settings);
                crashed.forget_arena();
                let file = File::options().write(true).open(&crashed.journal_path).unwrap();
                let mut file = Some(file);
                let mut told = 0;
                for at in 0..METADATA {
                    let used = crashed.journal[at & !63..][..64].iter().any(|&byte| byte != 0);
                    // In lines that hold nothing, one byte in five.
                    let changes: &[u8] = match used {
                        true => &[0x01, 0xC0],
                        false if at % 5 == turn % 5 => &[0x55],
                        false => &[],
                    };
                    for change in changes {
                        let mut bad = crashed.journal.clone();
                        bad[at] ^= change;
                        let journal = file
                            .get_or_insert_with(|| File::options().write(true).open(&crashed.journal_path).unwrap());
                        journal.write_all_at(&bad[at..=at], at as u64).unwrap();
                        if crashed.is_told_or_right(&bad, &format!("{settings:?}, byte {at} ^ {change:#x}")) {
                            crashed.restore();
                            file = None;
                        } else {
                            told += 1;
                            journal.write_all_at(&crashed.journal[at..=at], at as u64).unwrap();
                        }
                    }
                }
                assert!(told > 500, "{settings:?}: {told}");
                assert!(crashed.is_told_or_right(&crashed.journal, "unchanged"));
            });
        }
    });
}

/// A dry run reads everything that recovery reads, and stops where it would.
fn records_flipped(every: impl Fn(&Crashed, usize) -> bool) {
    let crashed = Crashed::usual(Scratch::on_disk("flip-records"), &Settings::default());
    crashed.forget_arena();
    let mut file = File::options().write(true).open(&crashed.journal_path).unwrap();
    let options = famio::recovery::Options { dry_run: true, ..Default::default() };
    let look = || {
        let mut reports =
            famio::recovery::recover_path(&crashed.path, &crashed.settings, &options, &famio::recovery::Silent)
                .unwrap();
        reports.remove(0)
    };
    let right = look();
    assert!(matches!(right.outcome, Outcome::Recovered), "{right:?}");
    assert_eq!(right.epoch, 3);
    let mut told = 0;
    for at in (0..crashed.journal.len()).filter(|&at| every(&crashed, at)) {
        file.write_all_at(&[crashed.journal[at] ^ 0x10], at as u64).unwrap();
        let report = look();
        match &report.outcome {
            Outcome::Recovered => assert_eq!((report.epoch, report.bytes), (right.epoch, right.bytes), "byte {at}"),
            Outcome::Conflict(text) => {
                assert!(text.contains("app.db") && text.contains(".journal"), "byte {at}: {text}");
                told += 1;
            }
            Outcome::Failed(e) => {
                assert_eq!(e.errno(), libc::EIO, "byte {at}: {e}");
                let text = e.to_string();
                assert!(text.contains("app.db") && text.contains(".journal"), "byte {at}: {text}");
                told += 1;
            }
            other => panic!("byte {at}: {other:?}"),
        }
        if at % 509 == 0 {
            let mut bad = crashed.journal.clone();
            bad[at] ^= 0x10;
            if crashed.is_told_or_right(&bad, &format!("records, byte {at}")) {
                crashed.restore();
                file = File::options().write(true).open(&crashed.journal_path).unwrap(); // it was removed and created again
                continue;
            }
        }
        file.write_all_at(&crashed.journal[at..=at], at as u64).unwrap();
    }
    assert!(told > 1000, "{told}");
    assert!(fs::read(&crashed.path).unwrap() == crashed.raw, "a dry run touched the file");
    assert!(crashed.is_told_or_right(&crashed.journal, "unchanged"));
}

#[test]
fn any_changed_byte_of_a_journal_of_records() {
    // In pages that hold nothing, one byte in 89.
    records_flipped(|crashed, at| at % 89 == 0 || crashed.journal[at & !63..][..64].iter().any(|&byte| byte != 0));
}

#[test]
#[ignore = "long"]
fn every_changed_byte_of_a_journal_of_records() {
    records_flipped(|_, _| true);
}

#[test]
fn cut_at_any_page_and_many_lengths() {
    everywhere_and_tiered("cut", |crashed| {
        let length = crashed.journal.len();
        let mut lengths: Vec<usize> =
            (0..length).step_by(4096).flat_map(|page| [page, page + 1, page + 4095]).collect();
        lengths.extend([1, 2047, 2048, 2049, 4097, 8191, 8193, 8192 + 63, 8192 + 64, 8192 + 4160]);
        lengths.retain(|&cut| cut < length);
        if length > 1 << 20 {
            lengths.retain(|cut| cut % 5 == 0 || *cut < 300_000);
        }
        for cut in lengths {
            crashed.put_journal(&crashed.journal[..cut]);
            crashed.forget_arena();
            if crashed.is_told_or_right(&crashed.journal[..cut], &format!("{:?}, cut to {cut}", crashed.settings)) {
                crashed.restore();
            }
        }
    });
}

/// Changes both copies of the header, and corrects their checksums.
fn with_header(journal: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut journal = journal.to_vec();
    for copy in [0, 2048] {
        let header = &mut journal[copy..copy + 2048];
        if header[..8] == *b"FAMIOJNL" {
            change(header);
            let sum = xxh3_128(&header[..2032]);
            header[2032..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    journal
}

fn told(crashed: &Crashed, journal: &[u8], what: &str) {
    crashed.put_journal(journal);
    crashed.forget_arena();
    let right = crashed.is_told_or_right(journal, &format!("{:?}, {what}", crashed.settings));
    assert!(!right, "{:?}, {what}: recovered", crashed.settings);
}

#[test]
fn a_journal_of_another_version() {
    everywhere_and_tiered("version", |crashed| {
        for version in [0u32, 2, u32::MAX] {
            let put = |header: &mut [u8]| header[8..12].copy_from_slice(&version.to_le_bytes());
            told(&crashed, &with_header(&crashed.journal, put), &format!("version {version}"));
        }
        let report = crashed.recover(Use::Refuse);
        assert!(matches!(&report.outcome, Outcome::Conflict(text) if text.contains("version")), "{report:?}");
    });
}

#[test]
fn unknown_kinds_states_and_domains() {
    everywhere_and_tiered("kinds", |crashed| {
        for (field, at) in [("kind", 12), ("state", 16), ("domain", 20), ("file domain", 24)] {
            for value in [9u32, 255, u32::MAX] {
                let put = |header: &mut [u8]| header[at..at + 4].copy_from_slice(&value.to_le_bytes());
                told(&crashed, &with_header(&crashed.journal, put), &format!("{field} {value}"));
            }
        }
    });
}

#[test]
fn lengths_and_sizes_in_the_header_that_point_outside() {
    everywhere_and_tiered("outside", |crashed| {
        let hint_len = 8 + 4 * 5 + 4 + 8 + 16 + 16 + 96 + 8 + 8 + 8 + 4 + 4 + 8 + 16 + 8 * 16;
        for value in [1025u64, 1 << 32, u64::MAX] {
            let put = |header: &mut [u8]| header[hint_len..hint_len + 8].copy_from_slice(&value.to_le_bytes());
            told(&crashed, &with_header(&crashed.journal, put), &format!("a hint of {value} bytes"));
        }
        // The geometry: any value is an error, or has no meaning for this kind.
        for word in 0..16 {
            for value in [1u64, 4096, 1 << 40, 1 << 63, u64::MAX] {
                let at = hint_len - 8 * 16 + 8 * word;
                let put = |header: &mut [u8]| header[at..at + 8].copy_from_slice(&value.to_le_bytes());
                let bad = with_header(&crashed.journal, put);
                crashed.put_journal(&bad);
                crashed.forget_arena();
                if crashed.is_told_or_right(&bad, &format!("{:?}, geometry {word}: {value}", crashed.settings)) {
                    crashed.restore();
                }
            }
        }
    });
}

#[test]
fn the_journal_of_another_file() {
    everywhere_and_tiered("other", |crashed| {
        let other = match crashed.settings.policy {
            _ if crashed.dir.path().starts_with("/dev/shm") => Scratch::on_tmpfs("other-file"),
            _ => Scratch::on_disk("other-file"),
        };
        // In a separate pool, too.
        let pool = Scratch::on_tmpfs("other-pool");
        let own = crashed.settings.pool.as_ref().map(|_| pool.path().to_path_buf());
        let other = Crashed::usual(other, &Settings { pool: own, ..crashed.settings.clone() });
        told(&crashed, &other.journal, "the journal of another file");
        // Nor may it be removed for being in the wrong place: it belongs to that file.
        let report = crashed.recover(Use::File);
        assert!(matches!(report.outcome, Outcome::Discarded), "{report:?}");
        assert!(fs::read(&crashed.path).unwrap() == crashed.raw);
        assert!(fs::read(&crashed.journal_path).unwrap() == other.journal, "the other file's journal is gone");
        other.restore();
        assert!(other.is_told_or_right(&other.journal, "in its place"));
    });
}

#[test]
fn another_journal_of_the_same_file() {
    // An old journal of this very file, put back: the mark names another one.
    everywhere_and_tiered("older", |crashed| {
        let older = crashed.journal.clone();
        crashed.restore();
        assert!(crashed.is_told_or_right(&older, "its own"));
        crash::crash(&crashed.path, &crashed.settings, &[crash::write(0, 100, 99), crash::Sync]);
        let raw = fs::read(&crashed.path).unwrap();
        crashed.put_journal(&older);
        crashed.forget_arena();
        let error = common::Opened::try_new(&crashed.path, &crashed.settings).err().expect("an old journal was used");
        assert_eq!(error.errno(), libc::EIO, "{error}");
        assert!(fs::read(&crashed.path).unwrap() == raw);
    });
}

#[test]
fn what_recover_does_with_an_unreadable_journal() {
    everywhere_and_tiered("unreadable", |crashed| {
        let mut bad = crashed.journal.clone();
        bad[..4096].fill(0xAB);
        crashed.put_journal(&bad);
        crashed.forget_arena();
        for on_conflict in [Use::Refuse, Use::Journal] {
            let report = crashed.recover(on_conflict);
            assert!(is_stopped(&report.outcome), "{report:?}");
            assert!(fs::read(&crashed.path).unwrap() == crashed.raw);
            assert!(fs::read(&crashed.journal_path).unwrap() == bad);
        }
        let report = crashed.recover(Use::File);
        assert!(matches!(report.outcome, Outcome::Discarded), "{report:?}");
        assert!(fs::read(&crashed.path).unwrap() == crashed.raw);
        assert!(crash::get_mark(&crashed.path).is_none() && !crashed.journal_path.exists());
    });
}

#[test]
fn a_header_of_another_boot() {
    everywhere_and_tiered("boot", |crashed| {
        let survives = !crashed.dir.path().starts_with("/dev/shm");
        let put = |header: &mut [u8]| {
            let mut copy: [u8; 2048] = header.try_into().unwrap();
            let mut other = Header::decode(&copy).unwrap();
            other.boot_id = famio::journal::BootId([7; 16]);
            copy = other.encode();
            header.copy_from_slice(&copy);
        };
        let bad = with_header(&crashed.journal, put);
        crashed.put_journal(&bad);
        crashed.forget_arena();
        let journal = fs::File::options().write(true).open(&crashed.journal_path).unwrap();
        journal.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        // On a disk: the file was changed in this boot, by this process; with a journal of another boot, that looks
        // like an outsider's change.
        let right = crashed.is_told_or_right(&bad, "another boot");
        assert!(!right, "survives a power loss: {survives}");
        let report = crashed.recover(Use::Journal);
        assert!(matches!(report.outcome, Outcome::Recovered), "{report:?}");
        crashed.assert_recovered();
    });
}
