//! The safe API: what it opens, what it refuses, and its messages.

mod common;

use common::Scratch;
use famio::AtomicFile;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn errno(result: famio::Result<AtomicFile>) -> i32 {
    result.map(drop).expect_err("an error").errno()
}

#[test]
fn what_can_not_be_opened_says_why() {
    let folder = Scratch::on_tmpfs("open-errors");
    let path = folder.path().join("file");
    let error = AtomicFile::open(&path).unwrap_err();
    assert_eq!(error.errno(), libc::ENOENT);
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    AtomicFile::options().create_new(true).mode(0o600).open(&path).unwrap().close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(errno(AtomicFile::options().create_new(true).open(&path)), libc::EEXIST);
    assert_eq!(errno(AtomicFile::open(folder.path())), libc::EINVAL);
    assert_eq!(errno(AtomicFile::open(Path::new("a\0b"))), libc::EINVAL);
    assert_eq!(errno(AtomicFile::options().read_only(true).truncate(true).open(&path)), libc::EINVAL);
    let io: std::io::Error = AtomicFile::open("/none/none").unwrap_err().into();
    assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_file_for_reading_is_not_changed() {
    let folder = Scratch::on_tmpfs("open-reading");
    let path = folder.path().join("file");
    std::fs::write(&path, b"as it is").unwrap();
    let file = AtomicFile::options().read_only(true).open(&path).unwrap();
    for result in [file.write_at(b"x", 0), file.append(b"x").map(drop), file.set_len(0)] {
        assert_eq!(result.unwrap_err().errno(), libc::EBADF);
    }
    let mut bytes = [0; 20];
    assert_eq!(file.read_at(&mut bytes, 3).unwrap(), 5);
    assert_eq!(file.read_exact_at(&mut bytes, 0).unwrap_err().errno(), libc::ENXIO);
    assert_eq!((file.len(), file.is_empty()), (8, false));
    let region = file.map(..).unwrap();
    region.read(0, &mut bytes[..8]).unwrap();
    assert_eq!(&bytes[..8], b"as it is");
    // SAFETY: the file does not change meanwhile.
    assert_eq!(unsafe { region.as_slice() }, b"as it is");
    drop(file);
    drop(region);
}

#[test]
fn emptying_is_part_of_the_first_epoch() {
    let folder = Scratch::on_disk("open-empties");
    let path = folder.path().join("file");
    std::fs::write(&path, b"before").unwrap();
    let file = AtomicFile::options().truncate(true).open(&path).unwrap();
    assert!(file.is_empty());
    assert_eq!(file.append(b"after").unwrap(), 0);
    file.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"after");
}

/// Two values of one file share its epoch, also between threads.
#[test]
fn several_of_one_file_see_each_other() {
    let folder = Scratch::on_tmpfs("open-several");
    let path = folder.path().join("file");
    let one = AtomicFile::options().create(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| one.write_at(b"one", 0).unwrap());
    });
    let two = AtomicFile::open(&path).unwrap();
    two.append(b" two").unwrap();
    one.close().unwrap();
    let mut bytes = [0; 7];
    two.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"one two");
    two.sync().unwrap();
    two.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"one two");
}

/// A journal of records took such a size, and the file could not get it at the checkpoint: it took no more writes.
#[test]
fn a_size_that_the_file_system_has_not_is_refused_at_once() {
    let scratch = Scratch::on_disk("largest");
    let path = scratch.path().join("file");
    let largest = (40..62).map(|bit| 1u64 << bit).take_while(|&size| {
        let file = std::fs::File::create(scratch.path().join("plain")).unwrap();
        file.set_len(size).is_ok()
    });
    let too_large = largest.last().unwrap() * 2;
    std::fs::write(&path, vec![1; 10_000]).unwrap();
    let file = AtomicFile::options().open(&path).unwrap();
    file.write_at(b"2", 0).unwrap();
    assert_eq!(file.set_len(too_large).unwrap_err().errno(), libc::EFBIG);
    let mut tx = file.transaction().unwrap();
    tx.write_at(b"3", 1).unwrap();
    if tx.set_len(too_large).is_ok() {
        assert_eq!(tx.commit().unwrap_err().errno(), libc::EFBIG);
    }
    file.write_at(b"4", 2).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[..4], [b'2', 1, b'4', 1]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 10_000);
}
