//! Copies that a bad address cannot kill the process with: a mapping cut by somebody else (SIGBUS), a bad pointer of
//! the caller's (SIGSEGV).
//!
//! A guarded call keeps a `Frame` on its stack, and the thread's block points to the innermost one. The signal handler
//! takes a fault for ours only while there is a frame and the address is one that the frame names; it then makes the
//! call return "faulted". Everything else goes to whoever had the signal before us (see [`host`](host_action)).

mod chain;
mod entry;
mod standin;

pub(crate) use chain::handler;
pub use chain::{host_action, install, is_installed};
pub(crate) use standin::{stand_in_for, stand_in_no_more};

use core::mem::MaybeUninit;

/// Why a guarded call did not finish. What it had done until then stays done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address that could not be used; in a range of the guarded call, rounded to where a bad medium begins.
    pub address: usize,
    /// `SIGBUS` (nothing lies there any more, or the medium is bad) or `SIGSEGV` (nothing was ever mapped there, or not
    /// for this access).
    pub signal: i32,
}

impl Fault {
    /// Whether the fault lies in `start..start + len`.
    pub fn is_in(&self, start: *const u8, len: usize) -> bool {
        self.address.wrapping_sub(start as usize) < len
    }
}

/// The addresses in which a fault is ours.
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
    /// The frame around this one, zero when there is none.
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
    // libc's `memcpy`, because Rust's own wants valid pointers even before it is left by a fault.
    // SAFETY: the closure holds three words, and `memcpy` can be left anywhere.
    unsafe {
        guarded([to, from], || {
            libc::memcpy(dst.cast(), src.cast(), len);
        })
    }
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
            libc::memmove(dst.cast(), src.cast(), len);
        })
    }
}

/// Runs `body`; a fault in `start..start + len` ends it where it stands.
///
/// # Safety
/// `body` may be left at any instruction that touches the range: nothing in it has a destructor, takes a lock or
/// allocates at such a place. It does not panic. [`install`] was called.
#[inline]
pub unsafe fn run_on<R: Copy>(start: *const u8, len: usize, body: impl FnOnce() -> R) -> Result<R, Fault> {
    // SAFETY: the caller's promise.
    unsafe { guarded([Range { start: start as usize, len }, Range::EMPTY], body) }
}

/// Runs `body`; any fault in it ends it where it stands. A fault of a signal handler of the host's that interrupts
/// `body` would be taken for ours too, so that [`run_on`] is better.
///
/// # Safety
/// As [`run_on`].
#[inline]
pub unsafe fn run<R: Copy>(body: impl FnOnce() -> R) -> Result<R, Fault> {
    // SAFETY: the caller's promise.
    unsafe { guarded([Range::ALL, Range::EMPTY], body) }
}

/// What the thunk gets: the body, taken once, and the room for its result.
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
    if thread.guard_ready.get() == 0 {
        chain::let_through(thread);
    }
    let innermost = thread.guard.as_ptr();
    // SAFETY: the thunk and its argument fit; frame and call outlive the call; the word is this thread's.
    let finished = unsafe {
        let thunk: extern "C" fn(*mut Call<F, R>) = thunk::<F, R>;
        entry::call(thunk as *const (), (&raw mut call).cast(), &raw mut frame, innermost)
    };
    if finished == 0 {
        // SAFETY: the thunk came to its end, and wrote it.
        Ok(unsafe { call.result.assume_init() })
    } else {
        // Written behind the compiler's back, though through a pointer that it gave away.
        Err(frame.fault)
    }
}

#[cfg(test)]
mod tests;
