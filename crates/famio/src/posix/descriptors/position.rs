//! The file position of an open description. It is in this process's memory while one process has the description.
//! Once a fork, an exec or a socket may give the description to another process, the position is the kernel's, and
//! changes under a lock of all members of the file.

use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::index::Positions;
use crate::posix::call::lock::{Guard, Lock};
use crate::posix::raw;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::RawFd;

/// See the module.
pub(in crate::posix) struct Position {
    /// As the kernel's `f_pos_lock`.
    lock: Lock,
    value: AtomicU64,
    /// The position is the kernel's.
    shared: AtomicBool,
}

/// The locked position.
pub(in crate::posix) struct Locked<'a> {
    position: &'a Position,
    /// For a shared position: a descriptor that leads to it, and the lock on the control page.
    beside: Option<(RawFd, Option<Positions<'a>>)>,
    _guard: Guard<'a>,
}

impl Position {
    pub(in crate::posix) const fn new() -> Self {
        Self { lock: Lock::new(), value: AtomicU64::new(0), shared: AtomicBool::new(false) }
    }

    /// In a forked child, whose parent's threads may have held the lock.
    pub(in crate::posix) fn forget_lock(&self) {
        self.lock.reset();
    }

    /// Initializes it for a description that is reused.
    pub(in crate::posix) fn reset(&self, value: u64, shared: bool) {
        self.value.store(value, Ordering::Relaxed);
        self.shared.store(shared, Ordering::Relaxed);
        self.lock.reset();
    }

    #[inline]
    pub(in crate::posix) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Locks the position; `fd` leads to it.
    ///
    /// # Errors
    /// For a shared position: those of attaching to the file's control page; `EDEADLK` if another process does not
    /// release it.
    #[inline]
    pub(in crate::posix) fn lock<'a>(&'a self, file: &'a AtomicFile, fd: RawFd) -> Result<Locked<'a>> {
        let guard = self.lock.lock();
        let beside = if self.is_shared() { Some((fd, file.lock_positions()?)) } else { None };
        Ok(Locked { position: self, beside, _guard: guard })
    }

    /// Keeps the other threads of this process from moving the position.
    pub(in crate::posix) fn hold(&self) -> Guard<'_> {
        self.lock.lock()
    }

    /// The position at this moment.
    pub(in crate::posix) fn look(&self, fd: RawFd) -> u64 {
        if self.is_shared() { kernels(fd).unwrap_or(0) } else { self.value.load(Ordering::Relaxed) }
    }

    /// Makes it the kernel's from now on.
    pub(in crate::posix) fn share(&self, fd: RawFd) {
        let _guard = self.lock.lock();
        if !self.is_shared() {
            // Fails only if the descriptor was closed unseen, or the file system has no such offset: then the kernel's
            // own position counts.
            let _ = set_kernels(fd, self.value.load(Ordering::Relaxed));
            self.shared.store(true, Ordering::Relaxed);
        }
    }
}

impl Locked<'_> {
    /// The position.
    #[inline]
    pub(in crate::posix) fn get(&self) -> Result<u64> {
        match self.beside {
            None => Ok(self.position.value.load(Ordering::Relaxed)),
            Some((fd, _)) => kernels(fd),
        }
    }

    /// Moves it.
    #[inline]
    pub(in crate::posix) fn set(&self, value: u64) -> Result<()> {
        match self.beside {
            None => self.position.value.store(value, Ordering::Relaxed),
            Some((fd, _)) => set_kernels(fd, value)?,
        }
        Ok(())
    }
}

#[cold]
fn kernels(fd: RawFd) -> Result<u64> {
    // SAFETY: no memory is passed.
    crate::sys::check(unsafe { raw!(SYS_lseek, fd, 0, libc::SEEK_CUR) }).map(|at| at as u64)
}

#[cold]
fn set_kernels(fd: RawFd, value: u64) -> Result<()> {
    // SAFETY: no memory is passed.
    crate::sys::check(unsafe { raw!(SYS_lseek, fd, value, libc::SEEK_SET) })
        .map(drop)
        .map_err(|_| Error::new(libc::EINVAL))
}
