//! The gap between the old end of a file and new bytes far behind it: zeros, also where bytes were that were cut off;
//! and it takes no room, since files may be sparse.

mod common;
#[path = "common/everywhere.rs"]
mod everywhere;

use common::Scratch;
use famio::{AtomicFile, Settings};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const MIB: u64 = 1 << 20;
const FAR: u64 = 1 << 30;
/// Bytes that the file has when it is opened.
const OLD: u64 = 3 * MIB;

fn everywhere(name: &str) -> [(&'static str, Settings, Scratch); 6] {
    everywhere::everywhere(name, ["undo", "redo", "alternate-emulated", "records", "tiered", "keep"])
}

/// Bytes that the files of a folder, and those in it, occupy.
fn room(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.metadata().unwrap() {
            stat if stat.is_dir() => room(&entry.path()),
            stat => stat.blocks() * 512,
        })
        .sum()
}

/// The file has these bytes at its beginning, and this at `FAR`; all else that was ever written was cut off.
fn check(file: &AtomicFile, begin: &[u8], far: u8, at: &str) {
    assert_eq!(file.len(), FAR + 1, "{at}");
    let read = |offset: u64, len: u64| {
        let mut bytes = vec![1; len as usize];
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    };
    let bytes = read(0, OLD + MIB);
    assert_eq!(bytes[..begin.len()], *begin, "{at}");
    let is_old = bytes[begin.len()..].iter().position(|&byte| byte != 0);
    assert_eq!(is_old, None, "{at}: a byte that was cut off is back");
    assert!(read(FAR - MIB, MIB).iter().all(|&byte| byte == 0), "{at}");
    assert_eq!(read(FAR, 1), [far], "{at}");
}

/// The next write failed, too (`EFBIG`), and the kernel's file was that long.
#[test]
fn a_write_that_fails_far_behind_leaves_the_file_as_it_was() {
    for (which, settings, dir) in everywhere("gaps-fails") {
        let path = dir.path().join("file");
        fs::write(&path, b"found").unwrap();
        let file = AtomicFile::options().settings(settings).open(&path).unwrap();
        file.write_at(b"in a session", 0).unwrap();
        if file.write_at(b"x", (1 << 48) - 2).is_ok() {
            continue; // this machine's processes have such addresses, or the journal needs none
        }
        file.write_at(b"further", 100_000).unwrap();
        file.set_len(200_000).unwrap();
        file.sync().unwrap();
        assert_eq!(file.len(), 200_000, "{which}");
        file.close().unwrap();
        let mut begin = [0; 12];
        fs::File::open(&path).unwrap().read_exact_at(&mut begin, 0).unwrap();
        assert_eq!(begin, *b"in a session", "{which}");
    }
}

#[test]
fn a_gap_over_bytes_that_were_cut_off_is_zeros_and_takes_no_room() {
    for (which, settings, dir) in everywhere("gaps") {
        let path = dir.path().join("file");
        fs::write(&path, vec![b'o'; OLD as usize]).unwrap();
        let file = AtomicFile::options().settings(settings.clone()).open(&path).unwrap();
        file.write_at(&[b'l'; 5000], MIB).unwrap();
        file.sync().unwrap();
        let most = room(dir.path()) + 64 * MIB;
        let takes_no_room = |at: &str| {
            let room = room(dir.path());
            assert!(room <= most, "{which}, {at}: {room} bytes are occupied");
        };

        file.write_at(b"x", FAR + 5000).unwrap();
        file.set_len(5).unwrap();
        file.write_at(b"1", FAR).unwrap();
        check(&file, b"ooooo", b'1', which);
        takes_no_room("a write");

        file.write_at(&[b'l'; 5000], 2 * MIB).unwrap();
        file.set_len(4).unwrap();
        file.set_len(FAR).unwrap();
        file.write_at(b"2", FAR).unwrap();
        file.sync().unwrap();
        check(&file, b"oooo", b'2', which);
        takes_no_room("a growth");

        let mut tx = file.transaction().unwrap();
        tx.set_len(2 * FAR).unwrap();
        tx.write_at(&[b'l'; 5000], 2 * MIB).unwrap();
        tx.set_len(3).unwrap();
        tx.set_len(10).unwrap();
        tx.write_at(b"3", FAR).unwrap();
        tx.commit().unwrap();
        check(&file, b"ooo", b'3', which);
        takes_no_room("a transaction");

        file.close().unwrap();
        let file = AtomicFile::options().settings(settings).open(&path).unwrap();
        check(&file, b"ooo", b'3', which);
        takes_no_room("closed");
    }
}
