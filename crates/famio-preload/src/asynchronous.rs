//! libaio and io_uring.

use crate::next::Next;
use core::ffi::{c_long, c_void};
use famio::posix;

/// libaio's function; its result is a negated errno.
///
/// # Safety
/// As libaio's.
pub unsafe fn io_submit(context: usize, count: c_long, blocks: *const *const i32) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { posix::io_submit(context, count as isize, blocks) as i32 }
}

macro_rules! ring {
    ($name:ident, $symbol:literal, ($($argument:ident: $type:ty),*)) => {
        /// liburing's function; its result is a negated errno.
        ///
        /// # Safety
        /// As liburing's.
        pub unsafe fn $name($($argument: $type),*) -> i32 {
            static NEXT: Next = Next::new($symbol);
            let refused = posix::io_uring();
            if refused < 0 {
                return refused as i32;
            }
            // SAFETY: the caller's promise; the type is that function's.
            unsafe {
                match NEXT.get::<unsafe extern "C" fn($($type),*) -> i32>() {
                    Some(next) => next($($argument),*),
                    None => -libc::ENOSYS,
                }
            }
        }
    };
}

ring!(io_uring_queue_init, c"io_uring_queue_init", (entries: u32, ring: *mut c_void, flags: u32));
ring!(io_uring_queue_init_params, c"io_uring_queue_init_params", (entries: u32, ring: *mut c_void, params: *mut c_void));
ring!(io_uring_setup, c"io_uring_setup", (entries: u32, params: *mut c_void));
