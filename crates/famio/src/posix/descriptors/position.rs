//! The file position of an open description. It is ours, in memory, as long as one process has the description; from a fork,
//! an exec or a socket on that may give it to others it is the kernel's, and changes under a lock of all processes at the file.

use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::index::Positions;
use crate::posix::call::lock::{Guard, Lock};
use crate::posix::raw;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::RawFd;

/// See the module.
pub(in crate::posix) struct Position {
    /// The kernel's `f_pos_lock`.
    lock: Lock,
    value: AtomicU64,
    /// It is the kernel's.
    shared: AtomicBool,
}

/// The position, while nobody else changes it.
pub(in crate::posix) struct Locked<'a> {
    position: &'a Position,
    /// Of a shared one: a descriptor that leads to it, and the lock of the other processes.
    beside: Option<(RawFd, Option<Positions<'a>>)>,
    _guard: Guard<'a>,
}

impl Position {
    pub(in crate::posix) const fn new() -> Self {
        Self { lock: Lock::new(), value: AtomicU64::new(0), shared: AtomicBool::new(false) }
    }

    /// In a forked child: who had the lock may be gone.
    pub(in crate::posix) fn forget_lock(&self) {
        self.lock.reset();
    }

    /// For a description that is used again.
    pub(in crate::posix) fn reset(&self, value: u64, shared: bool) {
        self.value.store(value, Ordering::Relaxed);
        self.shared.store(shared, Ordering::Relaxed);
        self.lock.reset();
    }

    #[inline]
    pub(in crate::posix) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Waits for the position; `fd` leads to it.
    ///
    /// # Errors
    /// Of a shared one: those of coming to the file's door; `EDEADLK` when another process keeps it.
    #[inline]
    pub(in crate::posix) fn lock<'a>(&'a self, file: &'a AtomicFile, fd: RawFd) -> Result<Locked<'a>> {
        let guard = self.lock.lock();
        let beside = if self.is_shared() { Some((fd, file.lock_positions()?)) } else { None };
        Ok(Locked { position: self, beside, _guard: guard })
    }

    /// Nobody else of this process moves it meanwhile.
    pub(in crate::posix) fn hold(&self) -> Guard<'_> {
        self.lock.lock()
    }

    /// Where it is now, for one look.
    pub(in crate::posix) fn look(&self, fd: RawFd) -> u64 {
        if self.is_shared() { kernels(fd).unwrap_or(0) } else { self.value.load(Ordering::Relaxed) }
    }

    /// It is the kernel's from now on.
    pub(in crate::posix) fn share(&self, fd: RawFd) {
        let _guard = self.lock.lock();
        if !self.is_shared() {
            let _ = set_kernels(fd, self.value.load(Ordering::Relaxed));
            self.shared.store(true, Ordering::Relaxed);
        }
    }
}

impl Locked<'_> {
    /// Where it is.
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
