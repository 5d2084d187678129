//! An exit handler that runs before the program's own: these may close standard error before the report of the run.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use famio::posix::process;

unsafe extern "C" {
    pub fn on_exit(function: extern "C" fn(i32, *mut c_void), argument: *mut c_void) -> i32;
}

/// How often it is registered, at the first calls of the program: handlers run from the last to the first, and
/// libraries may call something before `main`.
const TIMES: u32 = 4;
static LEFT: AtomicU32 = AtomicU32::new(0);

/// `is_in_run`: there will be a report.
pub fn begin(is_in_run: bool) {
    LEFT.store(if is_in_run { TIMES } else { 0 }, Ordering::Relaxed);
}

/// At a call of the program.
#[inline]
pub fn called() {
    if LEFT.load(Ordering::Relaxed) != 0 {
        register();
    }
}

#[cold]
fn register() {
    extern "C" fn first(_: i32, _: *mut c_void) {
        process::begin_exit();
    }
    if LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        // SAFETY: the function stays loaded: the library is linked with -z nodelete.
        unsafe { on_exit(first, ptr::null_mut()) };
    }
}
