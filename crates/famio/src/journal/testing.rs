//! For tests: temporary folders, and a medium that is the kernel.

use crate::error::Result;
use crate::pmem::Medium;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// A folder that is removed after the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("famio-test-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
    pub fn root(&self) -> &Path {
        &self.0
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Plain stores and system calls.
pub struct Kernel;

pub static KERNEL: Kernel = Kernel;

// SAFETY: moves exactly the bytes that it is asked to.
unsafe impl Medium for Kernel {
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(src, dst, len) }
    }
    unsafe fn zero(&self, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::write_bytes(dst, 0, len) }
    }
    unsafe fn stage(&self, dst: *mut u8, src: *const u8, len: usize, _hot: bool) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(src, dst, len) }
    }
    fn store(&self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }
    unsafe fn flush(&self, _addr: *const u8, _len: usize) {}
    fn fence(&self) {}
    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], mut offset: u64) -> Result<()> {
        for buf in bufs {
            let mut rest: &[u8] = buf;
            while !rest.is_empty() {
                let n = rustix::io::pwrite(fd, rest, offset)?;
                rest = &rest[n..];
                offset += n as u64;
            }
        }
        Ok(())
    }
    fn fsync(&self, fd: BorrowedFd<'_>) -> Result<()> {
        Ok(rustix::fs::fsync(fd)?)
    }
    fn fdatasync(&self, fd: BorrowedFd<'_>) -> Result<()> {
        Ok(rustix::fs::fdatasync(fd)?)
    }
    fn ftruncate(&self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        Ok(rustix::fs::ftruncate(fd, size)?)
    }
}

/// The memory operations of a medium that differs from the kernel only in file operations, or at fences.
macro_rules! kernels_memory {
    () => {
        unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
            // SAFETY: the caller's promise.
            unsafe { $crate::journal::testing::KERNEL.copy(dst, src, len) }
        }
        unsafe fn zero(&self, dst: *mut u8, len: usize) {
            // SAFETY: the caller's promise.
            unsafe { $crate::journal::testing::KERNEL.zero(dst, len) }
        }
        unsafe fn stage(&self, dst: *mut u8, src: *const u8, len: usize, hot: bool) {
            // SAFETY: the caller's promise.
            unsafe { $crate::journal::testing::KERNEL.stage(dst, src, len, hot) }
        }
        fn store(&self, word: &core::sync::atomic::AtomicU64, value: u64) {
            $crate::journal::testing::KERNEL.store(word, value);
        }
        unsafe fn flush(&self, _addr: *const u8, _len: usize) {}
    };
}
pub(crate) use kernels_memory;

/// The calls of such a medium that are the kernel's, by name.
macro_rules! kernels_calls {
    (@ fence) => {
        fn fence(&self) {}
    };
    (@ pwritev) => {
        fn pwritev(&self, fd: std::os::fd::BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> $crate::Result<()> {
            $crate::journal::testing::KERNEL.pwritev(fd, bufs, offset)
        }
    };
    (@ fsync) => {
        fn fsync(&self, fd: std::os::fd::BorrowedFd<'_>) -> $crate::Result<()> {
            $crate::journal::testing::KERNEL.fsync(fd)
        }
    };
    (@ fdatasync) => {
        fn fdatasync(&self, fd: std::os::fd::BorrowedFd<'_>) -> $crate::Result<()> {
            $crate::journal::testing::KERNEL.fdatasync(fd)
        }
    };
    (@ ftruncate) => {
        fn ftruncate(&self, fd: std::os::fd::BorrowedFd<'_>, size: u64) -> $crate::Result<()> {
            $crate::journal::testing::KERNEL.ftruncate(fd, size)
        }
    };
    ($($call:ident)*) => {
        $($crate::journal::testing::kernels_calls!(@ $call);)*
    };
}
pub(crate) use kernels_calls;
