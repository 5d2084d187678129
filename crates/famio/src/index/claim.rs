//! Who has the file: a lock file in `/dev/shm`, named by the file's identity in this boot. One process at a time has it: whose
//! turn it is (`file::turn`), or who recovers it. Who looks through its journal shares it with others that do. The lock goes when
//! its process goes, however that ends; the lock file becomes the arena when the file is first written.

use crate::error::{Error, Result};
use crate::sys::{InternalFd as OwnedFd, internal};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd};

/// A held claim.
pub(crate) struct Claim {
    lock: OwnedFd,
    name: String,
    exclusive: bool,
}

/// The claim's path for a file.
fn name_of(dev: u64, ino: u64) -> String {
    format!("/dev/shm/famio-{dev:x}-{ino:x}.arena")
}

impl Claim {
    /// Takes the claim of the file `(dev, ino)`, `like` which the lock file is owned. `EBUSY` when another process has it.
    pub fn take(like: BorrowedFd<'_>, dev: u64, ino: u64, exclusive: bool) -> Result<Self> {
        let taken = Self::open(like, dev, ino, exclusive, |lock| lock_soon(lock, exclusive))?;
        taken.map_err(|held| busy(&held, &name_of(dev, ino)))
    }

    /// Takes the claim for writing, if nobody has it.
    pub fn try_take(like: BorrowedFd<'_>, dev: u64, ino: u64) -> Result<Option<Self>> {
        let lock_now = |lock: &OwnedFd| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive);
        Ok(Self::open(like, dev, ino, true, lock_now)?.ok())
    }

    /// Opens the lock file and locks it by `lock_by`. Where that would block, the lock file that somebody holds comes back.
    fn open(
        like: BorrowedFd<'_>,
        dev: u64,
        ino: u64,
        exclusive: bool,
        lock_by: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
    ) -> Result<core::result::Result<Self, OwnedFd>> {
        let name = name_of(dev, ino);
        let failed = |e: Errno| Error::from(e).context(format_args!("claiming the file by {name}"));
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = internal::open(CWD, &*name, flags, Mode::RUSR | Mode::WUSR);
            let lock = opened.map_err(|e| e.context(format_args!("claiming the file by {name}")))?;
            match lock_by(&lock) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Err(lock)),
                Err(e) => return Err(failed(e)),
            }
            // The owner may have removed the name between our open and our lock.
            let unlocks = Unlocks(&lock);
            let here = rustix::fs::fstat(&lock).map_err(failed)?;
            if here.st_nlink == 1 {
                own_like(&lock, &here, like)?;
                core::mem::forget(unlocks);
                lock.set_name(&*name, exclusive)?;
                return Ok(Ok(Self { lock, name, exclusive }));
            }
        }
    }

    /// Whether there is a lock file: somebody has the claim, or has died with it.
    pub fn has_file(dev: u64, ino: u64) -> bool {
        rustix::fs::lstat(&*name_of(dev, ino)).is_ok()
    }

    /// Goes on with a new lock file, without an arena; nobody gets the claim in between.
    pub fn renew(&mut self, like: BorrowedFd<'_>) -> Result<()> {
        let next = format!("{}.next", self.name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = internal::open(CWD, &*next, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let unlocks = Unlocks(&lock);
        own_like(&lock, &rustix::fs::fstat(&lock)?, like)?;
        rustix::fs::renameat(CWD, &*next, CWD, &*self.name)?;
        core::mem::forget(unlocks);
        lock.set_name(&*self.name, true)?;
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
        self.lock = lock;
        Ok(())
    }

    /// Makes a shared claim exclusive. `EBUSY` when another process reads the file.
    pub fn upgrade(&mut self) -> Result<()> {
        if !self.exclusive {
            match lock_soon(&self.lock, true) {
                Ok(()) => self.exclusive = true,
                Err(Errno::WOULDBLOCK) => return Err(busy(&self.lock, &self.name)),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// The lock file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// The arena of the dead owner no longer says how the file was: recovery is about to change it.
    pub fn forget_arena(&self) -> Result<()> {
        // Its first word goes, the file stays as long: calls of this process may still look at what they have mapped.
        if rustix::fs::fstat(&self.lock)?.st_size > 0 {
            rustix::io::pwrite(&self.lock, &[0; 8], 0)?;
        }
        Ok(())
    }

    /// Gives the claim up and leaves the arena, if there is one: it knows what a recovery that was refused has to know when
    /// it is tried again.
    pub fn leave(self) {
        match rustix::fs::fstat(&self.lock) {
            Ok(stat) if stat.st_size > 0 => {
                let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
            }
            _ => self.release(),
        }
    }

    /// Gives the claim up, and removes its name if nobody else shares it.
    pub fn release(self) {
        if self.exclusive || rustix::fs::flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = rustix::fs::unlinkat(CWD, &*self.name, AtFlags::empty());
        }
        // Unlocked by name, not by closing: a forked child may hold a duplicate.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

/// A lock that goes with the value: by name, for a child that is forked meanwhile holds a duplicate as long as it likes.
pub(super) struct Unlocks<'a, F: AsFd>(pub &'a F);

impl<F: AsFd> Drop for Unlocks<'_, F> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Tries and pauses before a lock counts as held: one who sweeps has it for a moment, too.
const TRIES: u32 = 30;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

pub(super) fn lock_soon(lock: &OwnedFd, exclusive: bool) -> rustix::io::Result<()> {
    let how = if exclusive { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
    for _ in 1..TRIES {
        match rustix::fs::flock(lock, how) {
            Err(Errno::WOULDBLOCK) => {
                let _ = rustix::thread::nanosleep(&PAUSE);
            }
            result => return result,
        }
    }
    rustix::fs::flock(lock, how)
}

/// A lock file of root's for a user's file must not keep the user out later.
pub(crate) fn own_like(lock: &OwnedFd, here: &rustix::fs::Stat, like: BorrowedFd<'_>) -> Result<()> {
    let me = rustix::process::geteuid();
    if me.is_root() {
        let file = rustix::fs::fstat(like)?;
        if file.st_uid != here.st_uid {
            rustix::fs::fchown(lock, Some(rustix::fs::Uid::from_raw(file.st_uid)), None)?;
        }
    }
    Ok(())
}

fn busy(lock: &OwnedFd, name: &str) -> Error {
    let owner = match rustix::fs::fstat(lock).ok().and_then(|stat| owner_of(stat.st_ino)) {
        Some(pid) => format!("process {pid}"),
        None => "another process".into(),
    };
    let what = format!("in use as an atomic file by {owner}, whose turn it is ({name})");
    Error::with(libc::EBUSY, what)
}

/// The process that the kernel lists as holding a lock on inode `ino`.
fn owner_of(ino: u64) -> Option<u32> {
    let fd = rustix::fs::openat(CWD, "/proc/locks", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let mut chunk = [0u8; 4096];
    loop {
        match rustix::io::read(&fd, &mut chunk).ok()? {
            0 => break,
            n => text.extend_from_slice(&chunk[..n]),
        }
    }
    let suffix = format!(":{ino}");
    // "1: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF"
    String::from_utf8(text).ok()?.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, _, _, pid, inode) = (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
        (kind == "FLOCK" && inode.ends_with(&suffix)).then(|| pid.parse().ok()).flatten()
    })
}

/// The process that has the file `(dev, ino)` claimed now.
pub(crate) fn owner(dev: u64, ino: u64) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, &*name_of(dev, ino), flags, Mode::empty()).ok()?;
    owner_of(rustix::fs::fstat(&fd).ok()?.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_or_several_readers() {
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let ino = rustix::fs::fstat(&file).unwrap().st_ino;
        let dev = 0xfa310 + u64::from(std::process::id()); // of no file system
        let first = Claim::take(file.as_fd(), dev, ino, false).unwrap();
        let mut second = Claim::take(file.as_fd(), dev, ino, false).unwrap();
        assert_eq!(second.upgrade().unwrap_err().errno(), libc::EBUSY);
        first.release();
        // A failed upgrade of a shared lock may lose it: take it anew.
        second.release();
        let writer = Claim::take(file.as_fd(), dev, ino, true).unwrap();
        let refused = Claim::take(file.as_fd(), dev, ino, false).err().unwrap();
        assert_eq!(refused.errno(), libc::EBUSY);
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
        assert_eq!(owner(dev, ino), Some(std::process::id()));
        // One who sweeps: held for a moment, by another open description.
        writer.release();
        let name = name_of(dev, ino);
        // "A moment" is short: this thread may have been off its processor for longer.
        let writer = (0..100).find_map(|_| {
            let file_of_lock = std::fs::File::create(&name).unwrap();
            rustix::fs::flock(&file_of_lock, FlockOperation::LockExclusive).unwrap();
            std::thread::scope(|scope| {
                let claim = scope.spawn(|| Claim::take(file.as_fd(), dev, ino, true));
                rustix::fs::flock(&file_of_lock, FlockOperation::Unlock).unwrap();
                claim.join().unwrap().inspect_err(|e| assert_eq!(e.errno(), libc::EBUSY)).ok()
            })
        });
        writer.expect("it never waits for a moment").release();
        assert_eq!(owner(dev, ino), None);
        assert!(!std::path::Path::new(&name_of(dev, ino)).exists());
    }
}
