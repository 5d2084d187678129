//! The process's limit on file sizes (`RLIMIT_FSIZE`), cached: asking the kernel at each write would cost more
//! than the write.

use crate::error::{Error, Result};
use crate::posix::raw;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::rlimit64;

static FILE_SIZE: AtomicU64 = AtomicU64::new(libc::RLIM64_INFINITY);

/// Asks the kernel for the limit.
pub(in crate::posix) fn read() {
    let mut limit = rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing.
    if unsafe { raw!(SYS_prlimit64, 0, libc::RLIMIT_FSIZE, 0, &raw mut limit) } == 0 {
        FILE_SIZE.store(limit.rlim_cur, Ordering::Relaxed);
    }
}

/// The limit; `RLIM64_INFINITY`: there is none.
pub(in crate::posix) fn limit() -> u64 {
    FILE_SIZE.load(Ordering::Relaxed)
}

/// How many of `count` bytes at `offset` a write may transfer; at the limit `SIGXFSZ` and `EFBIG`.
#[inline]
pub(in crate::posix) fn clip(offset: u64, count: usize) -> Result<usize> {
    let limit = FILE_SIZE.load(Ordering::Relaxed);
    if limit == libc::RLIM64_INFINITY || count == 0 {
        return Ok(count);
    }
    if offset >= limit {
        return Err(exceeded());
    }
    Ok(count.min(usize::try_from(limit - offset).unwrap_or(usize::MAX)))
}

/// Checks a new size.
pub(in crate::posix) fn check_size(size: u64) -> Result<()> {
    let limit = FILE_SIZE.load(Ordering::Relaxed);
    if limit != libc::RLIM64_INFINITY && size > limit { Err(exceeded()) } else { Ok(()) }
}

#[cold]
fn exceeded() -> Error {
    // SAFETY: no memory is passed; the signal goes to this thread, as the kernel would send it.
    unsafe { raw!(SYS_tgkill, raw!(SYS_getpid), raw!(SYS_gettid), libc::SIGXFSZ) };
    Error::new(libc::EFBIG)
}
