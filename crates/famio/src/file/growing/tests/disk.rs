//! A disk whose writes fail when a test wants that.

use crate::error::{Error, Result};
use crate::journal::testing::{KERNEL, kernels_calls, kernels_memory};
use crate::pmem::Medium;
use core::sync::atomic::{AtomicI32, Ordering};
use std::os::fd::BorrowedFd;

#[derive(Default)]
pub(super) struct Disk {
    /// 0: writes succeed.
    errno: AtomicI32,
}

impl Disk {
    /// From now on writes fail with this error; 0: they succeed.
    pub fn fail(&self, errno: i32) {
        self.errno.store(errno, Ordering::Relaxed);
    }
}

// SAFETY: as the kernel's.
unsafe impl Medium for Disk {
    kernels_memory!();
    kernels_calls!(fence fsync fdatasync ftruncate);
    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> Result<()> {
        match self.errno.load(Ordering::Relaxed) {
            0 => KERNEL.pwritev(fd, bufs, offset),
            errno => Err(Error::new(errno)),
        }
    }
}
