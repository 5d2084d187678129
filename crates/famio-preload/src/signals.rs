//! The program's signal handlers: those of SIGBUS and SIGSEGV run behind the guard of the library's copies, the
//! others behind a function that postpones them during calls of the library.

use crate::next::Next;
use crate::outcome::set_errno;
use core::ptr;
use famio::map::guard;
use famio::posix::handlers;

/// libc's function.
pub static SIGACTION: Next = Next::new(c"sigaction");

/// # Safety
/// As libc's.
pub unsafe fn sigaction(signal: i32, new: *const libc::sigaction, old: *mut libc::sigaction) -> i32 {
    type Function = unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32;
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        match guard::host_action(signal, (!new.is_null()).then_some(new), old) {
            Some(Ok(())) => 0,
            Some(Err(error)) => {
                set_errno(-(error.errno() as isize));
                -1
            }
            None => match SIGACTION.get::<Function>() {
                Some(next) => handlers::set(signal, new, old, |signal, new, old| next(signal, new, old)),
                None => {
                    set_errno(-(libc::ENOSYS as isize));
                    -1
                }
            },
        }
    }
}

/// The forms of `signal`, which differ in their flags.
///
/// # Safety
/// As libc's.
pub unsafe fn signal(signal: i32, handler: usize, flags: i32) -> usize {
    // SAFETY: all-zero bytes are a valid sigaction; the handler is the caller's promise.
    unsafe {
        let mut new: libc::sigaction = core::mem::zeroed();
        let mut old: libc::sigaction = core::mem::zeroed();
        if handler == libc::SIG_ERR {
            set_errno(-(libc::EINVAL as isize));
            return libc::SIG_ERR;
        }
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        if flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(ptr::from_mut(&mut new.sa_mask), signal);
        }
        if sigaction(signal, &raw const new, &raw mut old) < 0 { libc::SIG_ERR } else { old.sa_sigaction }
    }
}
