//! What cannot be provoked from outside: a kernel that refuses.

use super::super::{Access, AtomicFile, UserBuf};
use super::{Kind, Outcome, Owner, Range};
use crate::settings::Settings;
use core::sync::atomic::Ordering;
use famio_test_support::place::{self, Place};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

fn put(file: &AtomicFile) -> crate::Result<usize> {
    // SAFETY: the test's memory.
    unsafe { file.write(0, &[UserBuf::of(&mut b"bytes".to_owned())]) }
}

/// Calls as the hooks make them, until locks are in memory, where one is left.
fn in_memory() -> (Place, File, Arc<AtomicFile>) {
    let place = Place::new(place::memory(), "famio-test-locks").unwrap();
    let path = place.path().join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let atomic = AtomicFile::open(file.as_fd(), Access::Write, &path, &Settings::default()).unwrap();
    while !atomic.has_locks_in_memory() {
        put(&atomic).unwrap();
        atomic.sync().unwrap();
        match atomic.set_lock(Owner::Process, None, Range::ALL, false) {
            Outcome::Done(done) => assert_eq!(done, Ok(())),
            Outcome::Kernel(in_kernel) => in_kernel.unlocked(false),
        }
    }
    for start in [0, 100] {
        let range = Range { start, last: start + 9 };
        let set = atomic.set_lock(Owner::Process, Some(Kind::Write), range, false);
        assert!(matches!(set, Outcome::Done(Ok(()))));
    }
    (place, file, atomic)
}

/// Record locks on a file, as the kernel lists them in `/proc/locks`. That is read piece by piece, between which other
/// programs' locks come and go: a lock may be seen twice (not counted), or not at all.
pub(in crate::file) fn listed(stat: rustix::fs::Stat) -> usize {
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let file = format!(" {:02x}:{:02x}:{} ", device.0, device.1, stat.st_ino);
    let look = || {
        let lines = famio_test_support::kernel_locks::of_inode(stat.st_ino);
        let ours = lines.iter().filter(|line| line.contains("POSIX") && line.contains(&file));
        // Without its number in the list, each is another range or another process's.
        ours.filter_map(|line| line.split_once(' ')).map(|(_, lock)| lock.to_owned()).collect::<HashSet<_>>().len()
    };
    let mut seen = look();
    for now in std::iter::repeat_with(look) {
        if core::mem::replace(&mut seen, now) == now {
            break;
        }
    }
    seen
}

fn in_kernel(file: &File) -> usize {
    listed(rustix::fs::fstat(file).unwrap())
}

#[test]
fn who_opens_waits_until_the_kernel_has_room_for_them() {
    let (place, file, atomic) = in_memory();
    assert_eq!(in_kernel(&file), 0);
    atomic.locks.refusals.store(5, Ordering::Relaxed);
    let mut opening = std::process::Command::new("cat")
        .arg(place.path().join("file"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!(opening.wait().unwrap().success());
    assert_eq!((in_kernel(&file), atomic.has_locks_in_memory()), (2, false));
    put(&atomic).unwrap();
    atomic.remove_descriptor(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
}

#[test]
fn nothing_is_written_without_them() {
    let (place, file, atomic) = in_memory();
    atomic.locks.refusals.store(u32::MAX, Ordering::Relaxed);
    let mut opening = std::process::Command::new("cat")
        .arg(place.path().join("file"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!(opening.wait().unwrap().success());
    assert_eq!((in_kernel(&file), atomic.has_locks_in_memory()), (0, false));
    assert_eq!(put(&atomic).unwrap_err().errno(), libc::EIO);
    let _ = atomic.remove_descriptor(std::os::fd::AsRawFd::as_raw_fd(&file));
}

/// A call would have to wait, and cannot: it fails, and everything is as before.
#[test]
fn a_move_that_fails_changes_nothing() {
    let (_place, file, atomic) = in_memory();
    atomic.locks.refusals.store(1, Ordering::Relaxed);
    let set = atomic.set_lock(Owner::Description(1), Some(Kind::Read), Range::ALL, true);
    assert!(matches!(set, Outcome::Done(Err(libc::ENOLCK))));
    assert_eq!((in_kernel(&file), atomic.has_locks_in_memory()), (0, true));
    let set = atomic.set_lock(Owner::Description(1), Some(Kind::Read), Range::ALL, true);
    assert!(matches!(set, Outcome::Kernel(_)));
    assert_eq!((in_kernel(&file), atomic.has_locks_in_memory()), (2, false));
    drop(set);
    atomic.remove_descriptor(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
}
