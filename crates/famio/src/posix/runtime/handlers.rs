//! `sigaction(2)`: the program's handlers run behind a function of the library, which postpones them while the thread
//! holds one of the library's locks (`thread::handlers`). The program sees the actions that it has set.

use super::state::{in_vfork_child, may_be_on};
use crate::posix::call::lock::{Lock, not_reentered};
use crate::sys::signal_bit;
use crate::thread::handlers;
use crate::thread::handlers::{OURS, on_signal};
use core::sync::atomic::{AtomicU64, Ordering};

/// Signals whose action the program has set with `SA_SIGINFO`; the library's action always has it.
static WITH_INFO: AtomicU64 = AtomicU64::new(0);
/// Held while an action is set.
static SETTING: Lock = Lock::new();

/// From now on, the program's handlers are set through [`set`].
pub fn begin() {
    handlers::stand_in_front();
}

/// In a forked child: another thread of the parent may have held the lock.
pub(in crate::posix) fn forget() {
    SETTING.reset();
}

fn ours() -> usize {
    on_signal as *const () as usize
}

/// `sigaction(2)`, with libc's own as `kernel`.
///
/// # Safety
/// The pointers are valid or null; `kernel` is libc's `sigaction`, and the handler is a valid function.
pub unsafe fn set(
    signal: i32,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    kernel: impl Fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32,
) -> i32 {
    // A `vfork` child has its own signal actions, but shares the parent's memory.
    let possible = (1..65).contains(&signal) && OURS & signal_bit(signal) != 0 && may_be_on() && !in_vfork_child();
    if !possible || not_reentered().is_err() {
        let before = (1..65).contains(&signal).then(|| (handlers::handler(signal), has_info(signal)));
        let result = kernel(signal, new, old);
        if let (0, Some(before)) = (result, before) {
            // SAFETY: the caller's promise.
            unsafe { as_set(old, before) };
        }
        return result;
    }
    let _setting = SETTING.lock();
    let before = (handlers::handler(signal), has_info(signal));
    // SAFETY: the caller's promise. A copy: both may point to the same.
    let mut action = unsafe { new.as_ref() }.copied();
    let (mut with_info, was_once) = (before.1, handlers::is_once(signal));
    if let Some(action) = &mut action
        && ![libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR].contains(&action.sa_sigaction)
    {
        // A program that read the action without this hook may set the library's function again.
        if action.sa_sigaction != ours() {
            with_info = action.sa_flags & libc::SA_SIGINFO != 0;
            handlers::swap_handler(signal, action.sa_sigaction, action.sa_flags & libc::SA_RESETHAND != 0);
        }
        action.sa_sigaction = ours();
        action.sa_flags |= libc::SA_SIGINFO;
    }
    let result = kernel(signal, action.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), old);
    if result == 0 {
        match with_info {
            true => WITH_INFO.fetch_or(signal_bit(signal), Ordering::Relaxed),
            false => WITH_INFO.fetch_and(!signal_bit(signal), Ordering::Relaxed),
        };
        // SAFETY: the caller's promise.
        unsafe { as_set(old, before) };
    } else {
        handlers::swap_handler(signal, before.0, was_once);
    }
    result
}

fn has_info(signal: i32) -> bool {
    WITH_INFO.load(Ordering::Relaxed) & signal_bit(signal) != 0
}

/// Turns the action that libc returned into the one that the program had set.
///
/// # Safety
/// `old` is null or valid.
unsafe fn as_set(old: *mut libc::sigaction, before: (usize, bool)) {
    // SAFETY: the caller's promise.
    if let Some(old) = unsafe { old.as_mut() }
        && old.sa_sigaction == ours()
    {
        old.sa_sigaction = before.0;
        if !before.1 {
            old.sa_flags &= !libc::SA_SIGINFO;
        }
    }
}
