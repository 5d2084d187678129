//! Copies that survive bad addresses: a mapping that another process cut (SIGBUS), a bad pointer from the caller
//! (SIGSEGV).
//!
//! A guarded call keeps a `Frame` on its stack, and the thread's block points to the innermost one. The signal
//! handler takes a fault for ours only while there is a frame and the address is in one of its ranges; it then makes
//! the call return a fault. All other faults go to the action that was installed before (see [`host_action`]).
// Cycle: entry, mod: the frame of a fault goes from the guard to the call and back

mod chain;
mod entry;
mod standin;

pub use chain::{host_action, install, is_installed};
pub(crate) use standin::{end_stand_in, stand_in_for};

use crate::pmem::ordinary;
use core::mem::MaybeUninit;

/// Why a guarded call did not finish. What it had done until then stays done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The faulting address, in a range of the guarded call; rounded down to where a bad medium begins.
    pub address: usize,
    /// `SIGBUS` (nothing lies there any more, or the medium is bad) or `SIGSEGV` (nothing is mapped there, or not for
    /// this access).
    pub signal: i32,
}

impl Fault {
    /// Whether the fault lies in `start..start + len`.
    pub fn is_in(&self, start: *const u8, len: usize) -> bool {
        self.address.wrapping_sub(start as usize) < len
    }
}

/// Addresses in which a fault is ours.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Range {
    start: usize,
    len: usize,
}

impl Range {
    const EMPTY: Range = Range { start: 0, len: 0 };
    const ALL: Range = Range { start: 0, len: usize::MAX };
}

/// One guarded call, on its caller's stack. `entry` writes the first two words by offset.
#[repr(C)]
struct Frame {
    /// The stack pointer to resume with.
    stack: usize,
    /// The frame around this one; zero if there is none.
    outer: usize,
    ranges: [Range; 2],
    /// Written by the signal handler.
    fault: Fault,
}

const NO_FAULT: Fault = Fault { address: 0, signal: 0 };

/// Copies `len` bytes; neither range needs to be mapped. They do not overlap.
///
/// # Safety
/// The part of `dst..dst + len` that is mapped and writable may be overwritten: no reference of Rust's to it is alive.
/// Bytes that other threads write meanwhile arrive in either state. [`install`] was called.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
    let (to, from) = (Range { start: dst as usize, len }, Range { start: src as usize, len });
    // SAFETY: the closure holds three words, and the copy may be interrupted anywhere.
    unsafe { guarded([to, from], || ordinary::copy(dst, src, len)) }
}

/// As [`copy`], of ranges that may overlap.
///
/// # Safety
/// As [`copy`].
#[inline]
pub unsafe fn copy_overlapping(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
    let (to, from) = (Range { start: dst as usize, len }, Range { start: src as usize, len });
    // SAFETY: as in `copy`.
    unsafe {
        guarded([to, from], || {
            if len >= ordinary::OWN_FROM && (dst as usize).abs_diff(src as usize) >= len {
                ordinary::copy(dst, src, len);
            } else {
                libc::memmove(dst.cast(), src.cast(), len);
            }
        })
    }
}

/// Runs `body`; a fault in `start..start + len` ends it there.
///
/// # Safety
/// `body` may be ended at any instruction that touches the range: nothing there has a destructor, takes a lock or
/// allocates. It does not panic. [`install`] was called.
#[inline]
pub unsafe fn run_on<R: Copy>(start: *const u8, len: usize, body: impl FnOnce() -> R) -> Result<R, Fault> {
    // SAFETY: the caller's promise.
    unsafe { guarded([Range { start: start as usize, len }, Range::EMPTY], body) }
}

/// Runs `body`; any fault in it ends it there. A fault in a signal handler of the program that interrupts `body`
/// would be taken for ours, too; prefer [`run_on`].
///
/// # Safety
/// As [`run_on`].
#[inline]
pub unsafe fn run<R: Copy>(body: impl FnOnce() -> R) -> Result<R, Fault> {
    // SAFETY: the caller's promise.
    unsafe { guarded([Range::ALL, Range::EMPTY], body) }
}

/// The thunk's argument: the body, taken once, and room for its result.
struct Call<F, R> {
    body: MaybeUninit<F>,
    result: MaybeUninit<R>,
}

extern "C" fn thunk<F: FnOnce() -> R, R>(call: *mut Call<F, R>) {
    // SAFETY: `guarded` passes its own, initialised, and calls once.
    unsafe {
        let body = (*call).body.assume_init_read();
        (*call).result.write(body());
    }
}

#[inline]
unsafe fn guarded<F: FnOnce() -> R, R: Copy>(ranges: [Range; 2], body: F) -> Result<R, Fault> {
    const { assert!(!core::mem::needs_drop::<F>(), "a guarded body is left without dropping anything") };
    let mut call = Call { body: MaybeUninit::new(body), result: MaybeUninit::uninit() };
    let mut frame = Frame { stack: 0, outer: 0, ranges, fault: NO_FAULT };
    let thread = crate::thread::current();
    crate::thread::faults::let_through(thread);
    let innermost = thread.guard.as_ptr();
    // SAFETY: the thunk and its argument fit; frame and call outlive the call; the word is this thread's.
    let finished = unsafe {
        let thunk: extern "C" fn(*mut Call<F, R>) = thunk::<F, R>;
        entry::call(thunk as *const (), (&raw mut call).cast(), &raw mut frame, innermost)
    };
    if finished == 0 {
        // SAFETY: the thunk has finished, and written it.
        Ok(unsafe { call.result.assume_init() })
    } else {
        // Written by the signal handler, through a pointer that was passed on.
        Err(frame.fault)
    }
}

#[cfg(test)]
mod tests;
