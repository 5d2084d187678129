//! The real media, one for each domain.

#[cfg(target_arch = "aarch64")]
use super::copy_arm as ops;
#[cfg(target_arch = "x86_64")]
use super::copy_x86 as ops;
use super::{Domain, Medium, TestHooks};
use crate::error::{Error, Result};
use crate::sys::{check, syscall};
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The medium of a domain. `eadr`: on pmem, the platform flushes its caches itself (see [`super::Detected`]).
pub fn medium(domain: Domain, eadr: bool) -> &'static dyn Medium {
    if let Some(medium) = TestHooks::current().medium {
        return medium;
    }
    match domain {
        Domain::Pmem if eadr => &PmemFlushedByPlatform,
        // Flushes and fences are executed for both; only what they survive differs.
        Domain::Pmem | Domain::Emulated => &Pmem,
        Domain::Process => &Process,
        Domain::PageCache => &PageCache,
    }
}

/// Copies to ordinary memory past the cache, if the bytes are many whole lines and the processor can: up to a
/// [fence](Medium::order_past), other threads may see later stores of this one before them.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`] of bytes.
#[inline]
pub(crate) unsafe fn copy_past(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { ops::copy_past(dst, src, len) };
}

/// Flush and fence.
struct Pmem;
/// Fence only.
struct PmemFlushedByPlatform;
/// Nothing to do: the memory outlives the process.
struct Process;
/// `fdatasync` only. Stores to a mapping become durable with the next `fdatasync` of its file.
struct PageCache;

// SAFETY: `ops` copies, zeroes and flushes the asked bytes.
unsafe impl Medium for Pmem {
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { ops::copy(dst, src, len) }
    }

    unsafe fn stage(&self, dst: *mut u8, src: *const u8, len: usize, hot: bool) {
        // SAFETY: the caller's promise.
        unsafe { ops::stage(dst, src, len, hot) }
    }

    unsafe fn zero(&self, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { ops::zero(dst, len) }
    }

    fn store(&self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }

    unsafe fn flush(&self, addr: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { ops::flush(addr, len) }
    }

    fn fence(&self) {
        ops::fence();
    }

    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> Result<()> {
        pwritev(fd, bufs, offset)
    }

    fn fdatasync(&self, fd: BorrowedFd<'_>) -> Result<()> {
        fdatasync(fd)
    }

    fn fsync(&self, fd: BorrowedFd<'_>) -> Result<()> {
        fsync(fd)
    }

    fn ftruncate(&self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        ftruncate(fd, size)
    }
}

/// The three media with ordinary stores and an empty flush; the parameters are their fence, `fdatasync` and `fsync`.
macro_rules! ordinary_stores {
    ($medium:ty, $fence:expr, $fdatasync:expr, $fsync:expr) => {
        // SAFETY: ordinary stores of the asked bytes.
        unsafe impl Medium for $medium {
            unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
                // SAFETY: the caller's promise.
                unsafe { super::ordinary::copy(dst, src, len) }
            }

            unsafe fn copy_past(&self, dst: *mut u8, src: *const u8, len: usize) {
                // SAFETY: the caller's promise.
                unsafe { ops::copy_past(dst, src, len) };
            }

            unsafe fn stage(&self, dst: *mut u8, src: *const u8, len: usize, _hot: bool) {
                // SAFETY: the caller's promise.
                unsafe { super::ordinary::copy(dst, src, len) }
            }

            unsafe fn zero(&self, dst: *mut u8, len: usize) {
                // SAFETY: the caller's promise.
                unsafe { dst.write_bytes(0, len) }
            }

            fn store(&self, word: &AtomicU64, value: u64) {
                word.store(value, Ordering::Release);
            }

            unsafe fn flush(&self, _: *const u8, _: usize) {}

            fn fence(&self) {
                $fence()
            }

            fn order_past(&self) {
                ops::fence();
            }

            fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> Result<()> {
                pwritev(fd, bufs, offset)
            }

            fn fdatasync(&self, fd: BorrowedFd<'_>) -> Result<()> {
                $fdatasync(fd)
            }

            fn fsync(&self, fd: BorrowedFd<'_>) -> Result<()> {
                $fsync(fd)
            }

            fn ftruncate(&self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
                ftruncate(fd, size)
            }
        }
    };
}

ordinary_stores!(PmemFlushedByPlatform, ops::fence, fdatasync, fsync);
// A process dies between two instructions, and everything stored before stays: nothing to wait for.
ordinary_stores!(Process, order_stores, |_| Ok(()), |_| Ok(()));
ordinary_stores!(PageCache, order_stores, fdatasync, fsync);

/// Keeps this thread's stores in program order. x86 does so itself, so only the compiler is told.
#[inline]
fn order_stores() {
    #[cfg(target_arch = "x86_64")]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(target_arch = "x86_64"))]
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// Buffers per system call: few enough for the stack, and below the kernel's 1024.
const BATCH: usize = 64;

fn pwritev(fd: BorrowedFd<'_>, bufs: &[&[u8]], mut offset: u64) -> Result<()> {
    let mut next = 0; // the first buffer not yet written completely
    let mut done = 0; // bytes of it that are written
    loop {
        while next < bufs.len() && done == bufs[next].len() {
            (next, done) = (next + 1, 0);
        }
        let rest = &bufs[next..];
        let Some((first, others)) = rest.split_first() else { return Ok(()) };
        let mut batch = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; BATCH];
        let pieces = core::iter::once(&first[done..]).chain(others.iter().copied());
        let count = batch.iter_mut().zip(pieces).map(|(slot, piece)| *slot = iovec(piece)).count();
        // SAFETY: the kernel only reads the buffers, which are borrowed during the call.
        let result = check(unsafe {
            let fd = fd.as_raw_fd() as usize;
            syscall(libc::SYS_pwritev, [fd, batch.as_ptr() as usize, count, offset as usize, 0, 0])
        });
        match result {
            // A kernel that writes nothing and reports no error would cause an endless loop.
            Ok(0) => return Err(Error::new(libc::EIO)),
            Ok(written) => {
                offset += written as u64;
                let mut left = written;
                while left > 0 {
                    let piece = (bufs[next].len() - done).min(left);
                    (left, done) = (left - piece, done + piece);
                    if done == bufs[next].len() {
                        (next, done) = (next + 1, 0);
                    }
                }
            }
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) => return Err(error),
        }
    }
}

fn iovec(piece: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: piece.as_ptr() as *mut libc::c_void, iov_len: piece.len() }
}

/// No retry, not even after EINTR: the kernel may have dropped by then what it failed to write.
fn fdatasync(fd: BorrowedFd<'_>) -> Result<()> {
    Ok(rustix::fs::fdatasync(fd)?)
}

/// As [`fdatasync`].
fn fsync(fd: BorrowedFd<'_>) -> Result<()> {
    Ok(rustix::fs::fsync(fd)?)
}

fn ftruncate(fd: BorrowedFd<'_>, size: u64) -> Result<()> {
    loop {
        match rustix::fs::ftruncate(fd, size) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    fn all() -> [&'static dyn Medium; 5] {
        let [a, b, c, d] = Domain::ALL.map(|domain| medium(domain, false));
        [a, b, c, d, medium(Domain::Pmem, true)]
    }

    #[test]
    fn each_medium_moves_the_asked_bytes() {
        for medium in all() {
            let source: Vec<u8> = (0..255).collect();
            let mut room = [7u8; 400];
            // SAFETY: in bounds.
            unsafe {
                medium.copy(room.as_mut_ptr().add(50), source.as_ptr(), 255);
                medium.zero(room.as_mut_ptr().add(60), 100);
                medium.flush(room.as_ptr(), room.len());
            }
            medium.fence();
            assert!(room[..50].iter().chain(&room[305..]).all(|&byte| byte == 7));
            assert!(room[50..60] == source[..10] && room[160..305] == source[110..]);
            assert!(room[60..160].iter().all(|&byte| byte == 0));
            let word = AtomicU64::new(1);
            medium.store(&word, u64::MAX);
            assert_eq!(word.into_inner(), u64::MAX);
        }
    }

    #[test]
    fn many_buffers_are_written_in_order_with_empty_ones_between() {
        let file = crate::pmem::test_file("/dev/shm", 0);
        let pieces: Vec<Vec<u8>> = (0..3000u32).map(|i| vec![i as u8; (i % 7) as usize]).collect();
        let bufs: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
        for medium in all() {
            medium.ftruncate(file.as_fd(), 0).unwrap();
            medium.pwritev(file.as_fd(), &bufs, 5).unwrap();
            medium.fdatasync(file.as_fd()).unwrap();
            let want = pieces.concat();
            let mut got = vec![0; want.len()];
            assert_eq!(file.metadata().unwrap().len(), 5 + want.len() as u64);
            file.read_exact_at(&mut got, 5).unwrap();
            assert!(got == want);
        }
    }

    #[test]
    fn errors_of_the_kernel_come_through() {
        // A pipe accepts no offset.
        let (_reader, writer) = std::io::pipe().unwrap();
        assert_eq!(pwritev(writer.as_fd(), &[b"x"], 0).unwrap_err().errno(), libc::ESPIPE);
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(pwritev(full.as_fd(), &[b"x", b"y"], 0).unwrap_err().errno(), libc::ENOSPC);
    }

    #[test]
    fn short_writes_go_on_where_they_stopped() {
        let file = crate::pmem::test_file("/dev/shm", 0);
        let limit = 10_000u64;
        // A write across RLIMIT_FSIZE is short, and the next one fails. In a child, since the limit applies to the
        // process.
        // SAFETY: the child makes only system calls and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: plain calls with valid arguments; `_exit` runs nothing of the parent's.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: limit, rlim_max: limit });
                let result = pwritev(file.as_fd(), &[&[1; 6000], &[2; 3000], &[3; 3000]], 0);
                libc::_exit(matches!(result, Err(e) if e.errno() == libc::EFBIG) as i32);
            }
        }
        let mut status = 0;
        // SAFETY: waits for our child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert_eq!(file.metadata().unwrap().len(), limit);
    }
}
