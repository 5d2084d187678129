//! Converts results from the kernel's convention to C's; no panic leaves the library.

use famio::posix::Ret;
use famio::sys;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The errno of this thread.
#[inline]
pub fn errno() -> *mut i32 {
    // SAFETY: libc's accessor has no preconditions.
    unsafe { libc::__errno_location() }
}

/// Runs `call`; turns an error into -1 and errno, and otherwise leaves errno unchanged.
#[inline]
pub fn finish(call: impl FnOnce() -> Ret) -> Ret {
    crate::first_exit_handler::called();
    finish_in_allocator(call)
}

/// As [`finish`], for a call that allocators make while they hold their locks: it takes no memory of libc's.
#[inline]
pub fn finish_in_allocator(call: impl FnOnce() -> Ret) -> Ret {
    let errno = errno();
    // SAFETY: the thread's errno lives as long as the thread.
    let before = unsafe { *errno };
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| panicked());
    let (after, result) = if (-4095..0).contains(&result) { (-result as i32, -1) } else { (before, result) };
    // SAFETY: as above.
    unsafe { *errno = after };
    result
}

/// Runs a call without a result, and leaves errno unchanged.
#[inline]
pub fn note(call: impl FnOnce()) {
    finish(|| {
        call();
        0
    });
}

/// Runs a hook that has its own convention, and calls libc. A thread that is cancelled there would be unwound through
/// this library, which ends the process. So it is not, until the hook returns.
pub fn calling_libc<T>(call: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::begin();
    plain(call)
}

/// Runs a hook that has its own convention.
#[inline]
pub fn plain<T>(call: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => value,
        Err(_) => {
            panicked();
            // Not every such function has a value that means failure.
            std::process::abort()
        }
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
}

/// While it lives, this thread cannot be cancelled.
struct Uncancelled(i32);

impl Uncancelled {
    #[inline]
    fn begin() -> Self {
        const DISABLE: i32 = 1;
        let mut before = DISABLE;
        // SAFETY: `before` is ours.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the state that libc gave. A request that came meanwhile waits for the next cancellation point.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}

/// Sets errno from a negated one.
pub fn set_errno(error: Ret) {
    // SAFETY: the thread's errno lives as long as the thread.
    unsafe { *errno() = -error as i32 };
}

#[cold]
fn panicked() -> Ret {
    sys::notice("a defect in the library was caught; the call fails with EIO; please report it");
    -(libc::EIO as Ret)
}
