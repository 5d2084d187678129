use super::*;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

fn pair() -> (OwnedFd, RawFd) {
    let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let second = rustix::io::dup(&file).unwrap().into_raw_fd();
    (file, second)
}

/// Record locks of this process on a file, as the kernel lists them.
fn record_locks(file: &OwnedFd) -> usize {
    crate::file::locks::listed(rustix::fs::fstat(file).unwrap())
}

#[test]
fn long_work_keeps_nobody_from_opening_and_closing_and_drops_no_locks() {
    let (file, second) = pair();
    let fds = Descriptors::default();
    fds.add(file.as_raw_fd(), Access::Write);
    fds.add(second, Access::Write);
    fds.with_lasting(|fd| {
        // Another thread would have to wait here for the end.
        assert!(fds.list.try_lock().is_some());
        fds.remove(second, true);
        // SAFETY: opened above, closed once.
        drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(second) });
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        Ok(rustix::fs::ftruncate(fd, 10)?)
    })
    .unwrap();
    assert_eq!(record_locks(&file), 1, "the end of the work dropped the lock");
    assert_eq!(fds.list.lock().leftover.len(), 1);
    fds.remove(file.as_raw_fd(), true);
    assert!(fds.is_empty() && fds.list.lock().leftover.is_empty());
}

#[test]
fn a_writable_one_is_parked_while_the_program_still_reads() {
    let (file, second) = pair();
    let fds = Descriptors::default();
    fds.add(file.as_raw_fd(), Access::Read);
    fds.add(second, Access::Write);
    assert!(!fds.begin_close_is_last(second));
    fds.remove(second, true);
    // SAFETY: opened above, closed once.
    drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(second) });
    fds.with(true, |fd| Ok(rustix::fs::ftruncate(fd, 10)?)).unwrap();
    assert_eq!(rustix::fs::fstat(file.as_fd()).unwrap().st_size, 10);
    fds.remove(file.as_raw_fd(), true);
    assert!(fds.is_empty() && !fds.has_writable());
    assert_eq!(fds.with(false, |_| Ok(())).unwrap_err().errno(), libc::EBADF);
}

/// A checkpoint once went to the other file, and set its size.
#[test]
fn a_number_that_was_replaced_unseen_is_not_parked() {
    let ((file, second), (other, third)) = (pair(), pair());
    let stat = rustix::fs::fstat(&file).unwrap();
    let fds = Descriptors::of((stat.st_dev, stat.st_ino));
    fds.add(file.as_raw_fd(), Access::Read);
    fds.add(second, Access::Write);
    // SAFETY: both opened above, closed once.
    let [mut second, third] = [second, third].map(|fd| unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) });
    rustix::io::dup2(&third, &mut second).unwrap();
    fds.remove(second.as_raw_fd(), true);
    let cut = fds.with(true, |fd| Ok(rustix::fs::ftruncate(fd, 10)?));
    assert_eq!(cut.map_err(|e| e.errno()), Err(libc::EBADF));
    assert_eq!(rustix::fs::fstat(&other).unwrap().st_size, 0);
    fds.remove(file.as_raw_fd(), true);
}

/// A file written by a link that is gone, and read by a name that exists, was once demoted, or `EBUSY` if others
/// mapped it.
#[test]
fn a_file_written_by_a_removed_link_is_written_by_the_name_it_is_read_by() {
    let path = |end: &str| format!("/dev/shm/famio-named-{}{end}", std::process::id());
    std::fs::write(path(""), "bytes").unwrap();
    std::fs::hard_link(path(""), path("-link")).unwrap();
    let read = std::fs::File::open(path("")).unwrap();
    let link = std::fs::File::options().read(true).write(true).open(path("-link")).unwrap();
    let fds = Descriptors::default();
    fds.add(read.as_raw_fd(), Access::Read);
    fds.add(link.as_raw_fd(), Access::Write);
    fds.remove(link.as_raw_fd(), true);
    drop(link);
    std::fs::remove_file(path("-link")).unwrap();
    assert!(fds.with(true, |fd| Ok(has_lost_its_name(fd))).unwrap() && !fds.prefer_named());
    assert!(fds.park_named());
    let wrote = fds.with(true, |fd| {
        assert!(!has_lost_its_name(fd));
        Ok(rustix::io::pwrite(fd, b"BYTES", 0)?)
    });
    std::fs::remove_file(path("")).unwrap();
    assert_eq!(wrote.unwrap(), 5);
    fds.remove(read.as_raw_fd(), true);
    assert!(fds.is_empty() && fds.list.lock().leftover.is_empty());
}
