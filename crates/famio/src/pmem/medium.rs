//! The narrow interface to the hardware: every store, flush, fence, `pwrite` and `fdatasync` on which durability
//! depends goes through a [`Medium`], so that a recorder can take its place.

use crate::error::Result;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use std::os::fd::BorrowedFd;

/// Storage where stores become persistent by flushes and fences (mapped memory) or by `fdatasync` (files).
///
/// # Safety
/// An implementation moves exactly the bytes that it is asked to move: callers rely on reading from a mapping what
/// they have written to it.
pub unsafe trait Medium: Send + Sync + 'static {
    /// Copies `len` bytes into mapped memory. They are persistent after the next [`fence`](Self::fence) of this
    /// thread; until then in no order, and possibly torn at any byte.
    ///
    /// # Safety
    /// `dst` and `src` are valid for `len` bytes, and do not overlap. The caller guards against faults (SIGBUS).
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize);

    /// As [`copy`](Self::copy), of bytes that will not be used soon: past the cache, where that is quicker. Other threads
    /// may see later stores of this one before them, up to
    /// [`order_past`](Self::order_past).
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    unsafe fn copy_past(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.copy(dst, src, len) }
    }

    /// As [`copy`](Self::copy), with zeros.
    ///
    /// # Safety
    /// `dst` is valid for `len` bytes.
    unsafe fn zero(&self, dst: *mut u8, len: usize);

    /// Copies so that other threads see the bytes before anything that this thread stores later. Persistent only
    /// after [`flush`](Self::flush) of the range and a fence. For bytes that will be stored to again soon, so that
    /// one write-back serves several stores.
    ///
    /// # Safety
    /// As [`copy`](Self::copy). `hot` is a hint: the lines are in the cache, or will be stored to again.
    unsafe fn stage(&self, dst: *mut u8, src: *const u8, len: usize, hot: bool);

    /// An ordinary release store of a word: 8-byte atomic, ordered with other words of its cache line. Certainly
    /// persistent after [`flush`](Self::flush) and [`fence`](Self::fence), but possibly at any time before.
    fn store(&self, word: &AtomicU64, value: u64);

    /// As [`store`](Self::store), of the words of a line, one after the other.
    fn store_line(&self, line: &[AtomicU64; 8], values: &[u64; 8]) {
        line.iter().zip(values).for_each(|(word, value)| self.store(word, *value));
    }

    /// Starts the write-back of the cache lines that hold `addr..addr + len`.
    ///
    /// # Safety
    /// The range is mapped.
    unsafe fn flush(&self, addr: *const u8, len: usize);

    /// Waits until this thread's copies and flushes are persistent.
    fn fence(&self);

    /// As [`fence`](Self::fence), and other threads see what this one has [copied past](Self::copy_past) the cache before
    /// anything that it stores later.
    fn order_past(&self) {
        self.fence();
    }

    /// Writes all of `bufs` to a file at `offset`. Durable after [`fdatasync`](Self::fdatasync). Retries short writes.
    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> Result<()>;

    /// Makes a file's data, and the metadata needed to read it, durable. An error is never to be retried into success.
    fn fdatasync(&self, fd: BorrowedFd<'_>) -> Result<()>;

    /// Makes a file durable with all its attributes, or a folder with its entries. Otherwise as
    /// [`fdatasync`](Self::fdatasync).
    fn fsync(&self, fd: BorrowedFd<'_>) -> Result<()>;

    /// Writes a file's cached bytes to the disk, and waits until the disk has them, in its cache or durably. On a file
    /// system that keeps the order (`pmem::keeps_order`), they are durable if a later change of a name or a mark is. The
    /// flush of another file that was not changed since is not enough. `ENOSYS`, `EPERM`: a sandbox does not allow that.
    fn write_out(&self, fd: BorrowedFd<'_>) -> Result<()> {
        crate::sys::write_out(fd)
    }

    /// Starts the disk's writes of cached bytes of a file, in this range: they are on their way when it returns, or the
    /// disk has them. No flush becomes needless by it, and the next one reports an error of these writes, too. `ENOSYS`,
    /// `EPERM`: a sandbox does not allow that.
    fn start_write_out(&self, fd: BorrowedFd<'_>, range: Range<u64>) -> Result<()> {
        crate::sys::write_out_range(fd, range, libc::SYNC_FILE_RANGE_WRITE)
    }

    /// Sets a file's size; durable after [`fdatasync`](Self::fdatasync).
    fn ftruncate(&self, fd: BorrowedFd<'_>, size: u64) -> Result<()>;

    /// Notes that every thread of the process has passed a fence in the kernel (`membarrier`). For the
    /// [recorder](super::record::Recorder).
    fn fenced_by_all(&self) {}

    /// Notes that a name or a mark was changed, before the next change. For the [recorder](super::record::Recorder).
    fn changed_name(&self) {}

    /// Notes a mapping of a file, before the first store to it: `base` is the file's first byte. For the
    /// [recorder](super::record::Recorder).
    fn watch(&self, fd: BorrowedFd<'_>, base: *const u8, len: usize) {
        let _ = (fd, base, len);
    }
}
