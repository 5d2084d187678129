use super::*;
use std::fs::{File, OpenOptions};

struct Opened {
    path: String,
    files: Vec<File>,
    fds: Descriptors,
}

impl Opened {
    fn new(name: &str, options: [&OpenOptions; 2]) -> Self {
        let path = format!("/dev/shm/famio-twins-{name}-{}", std::process::id());
        std::fs::write(&path, "bytes").unwrap();
        let files: Vec<_> = options.iter().map(|options| options.open(&path).unwrap()).collect();
        let fds = Descriptors::of(crate::sys::identity(files[0].as_fd()).unwrap());
        for file in &files {
            fds.add(file.as_raw_fd(), Access::Write);
            fds.is_opened(file.as_raw_fd(), true);
        }
        Self { path, files, fds }
    }

    fn are_one(&self) -> bool {
        let [one, other] = [0, 1].map(|which| self.files[which].as_raw_fd() as usize);
        let me = std::process::id() as usize;
        // SAFETY: no memory is passed.
        check(unsafe { syscall(libc::SYS_kcmp, [me, me, 0, one, other, 0]) }).unwrap() == 0
    }

    /// Whether the process has a record lock in the kernel.
    fn is_locked(&self) -> bool {
        // SAFETY: zeros are a `flock`.
        let mut lock: libc::flock = unsafe { core::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        let arguments =
            [self.files[0].as_raw_fd() as usize, libc::F_OFD_GETLK as usize, (&raw mut lock) as usize, 0, 0, 0];
        // SAFETY: the kernel only reads and writes `lock`.
        check(unsafe { syscall(libc::SYS_fcntl, arguments) }).unwrap();
        i32::from(lock.l_type) != libc::F_UNLCK
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true).clone()
}

#[test]
fn they_share_one_description_until_they_are_split() {
    let opened = Opened::new("split", [&both(), &both()]);
    let closes = rustix::io::FdFlags::empty();
    rustix::io::fcntl_setfd(&opened.files[1], closes).unwrap();
    assert!(opened.fds.are_several() && !opened.fds.are_joined());
    for _ in 0..2 {
        assert!(opened.fds.join() && opened.are_one() && opened.fds.are_joined() && !opened.fds.are_several());
        assert!(opened.fds.split().unwrap().end(false));
        assert!(!opened.are_one() && !opened.fds.are_joined() && opened.fds.split().is_none());
    }
    assert_eq!(rustix::io::fcntl_getfd(&opened.files[1]).unwrap(), closes);
    assert!(rustix::fs::fcntl_getfl(&opened.files[1]).unwrap() & !OFlags::LARGEFILE == OFlags::RDWR);
}

/// A `dup3` over a number once dropped them.
#[test]
fn locks_that_are_made_in_between_stay() {
    let opened = Opened::new("locks", [&both(), &both()]);
    assert!(opened.fds.join());
    let mut split = opened.fds.split().unwrap();
    split.hide();
    rustix::fs::fcntl_lock(split.base(), rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(split.end(true) && !opened.are_one());
    assert!(opened.is_locked() && opened.fds.list().leftover.len() == 1);
    opened.fds.remove(opened.files[1].as_raw_fd(), true);
    assert!(!opened.is_locked(), "ours goes with a close of the program's");
}

#[test]
fn those_stay_joined_that_would_lose_locks() {
    let opened = Opened::new("joined", [&both(), &both()]);
    assert!(opened.fds.join());
    rustix::fs::fcntl_lock(&opened.files[0], rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(!opened.fds.split().unwrap().end(true) && opened.fds.are_joined() && opened.are_one());
    assert!(opened.is_locked());
}

/// The program has closed the others: nothing was hidden, and a fork could not give the description on.
#[test]
fn a_description_that_is_left_alone_is_split_also_with_locks() {
    let opened = Opened::new("alone", [&both(), &both()]);
    assert!(opened.fds.join());
    opened.fds.remove(opened.files[1].as_raw_fd(), true);
    let mut split = opened.fds.split().unwrap();
    split.hide();
    rustix::fs::fcntl_lock(split.base(), rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(split.end(true) && !opened.fds.are_joined() && opened.is_locked());
}

#[test]
fn what_the_kernel_tells_apart_is_not_joined() {
    use std::os::unix::fs::OpenOptionsExt;
    let other = both().custom_flags(libc::O_NONBLOCK).clone();
    assert!(!Opened::new("flags", [&both(), &other]).fds.join());
    let opened = Opened::new("names", [&both(), &both()]);
    std::fs::hard_link(&opened.path, format!("{}-link", opened.path)).unwrap();
    let joined = opened.fds.join();
    std::fs::remove_file(format!("{}-link", opened.path)).unwrap();
    assert!(!joined && opened.fds.join());
    assert!(opened.fds.split().unwrap().end(false));
    let signal = 50;
    // SAFETY: no memory is passed.
    check(unsafe { syscall(libc::SYS_fcntl, [opened.files[1].as_raw_fd() as usize, 10, signal, 0, 0, 0]) }).unwrap();
    assert!(!opened.fds.join());
}
