//! The kernel's asynchronous queues. Their effect on a file cannot be seen, so the file is demoted first, or the
//! queue refused.

use crate::posix::call::user;
use crate::posix::descriptors::demote;
use crate::posix::life::process;
use crate::posix::runtime::say::{Once, say_once};
use crate::posix::{Ret, fail, raw};
use crate::sys;
use std::os::fd::RawFd;

/// `io_submit(2)`: the descriptor is the sixth word of 32 bits of a control block.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn io_submit(context: usize, count: isize, blocks: *const *const i32) -> Ret {
    crate::file::note_reads_that_end_later();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: any bytes are a pointer and a number, which are checked in turn.
        let fd = unsafe { user::get(blocks.wrapping_add(index)).and_then(|block| user::get(block.wrapping_add(5))) };
        let Ok(fd) = fd else { break };
        let result = demote::demote_for_stream(fd as RawFd, "io_submit(2)");
        if result < 0 {
            return result;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { raw!(SYS_io_submit, context, count, blocks) }
}

/// Before an io_uring is set up: `ENOSYS` in a process with atomic files, since its requests would bypass the
/// library, unless the user allows that.
pub fn io_uring() -> Ret {
    let Some(config) = process::config() else { return 0 };
    if config.async_io {
        crate::file::note_reads_that_end_later();
        if say_once(Once::Ring) {
            sys::notice("io_uring is used (async-io = allow): its requests on atomic files are not protected");
        }
        return 0;
    }
    if say_once(Once::Ring) {
        sys::notice("io_uring refused (ENOSYS): its requests would bypass Famio; the program may fall back");
    }
    fail(libc::ENOSYS)
}
