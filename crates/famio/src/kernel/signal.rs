//! Signal actions and masks by the kernel's calls: libc's functions may be intercepted, by this library among others.

use super::{check, syscall};
use crate::error::Result;
use core::ffi::c_int;
use core::ptr::null;

/// The kernel's `struct sigaction`, the same on x86-64 and AArch64.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalAction {
    /// `SIG_DFL`, `SIG_IGN` or a function.
    pub handler: usize,
    /// `SA_…`.
    pub flags: u64,
    /// The function to which a handler returns; x86 only.
    pub restorer: usize,
    /// The signals blocked during the handler.
    pub mask: u64,
}

const SA_RESTORER: u64 = 0x0400_0000;

impl SignalAction {
    /// The default action.
    pub const DEFAULT: Self = Self { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };

    /// A handler of ours, with a restorer where the kernel wants one.
    pub fn new(handler: usize, flags: u64, mask: u64) -> Self {
        #[cfg(target_arch = "x86_64")]
        return Self { handler, flags: flags | SA_RESTORER, restorer: restorer as *const () as usize, mask };
        #[cfg(not(target_arch = "x86_64"))]
        return Self { handler, flags, restorer: 0, mask };
    }

    /// From libc's layout, which has a longer mask.
    pub fn from_libc(action: &libc::sigaction) -> Self {
        // SAFETY: a `sigset_t` is plain words; the first holds signals 1 to 64.
        let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
        Self { handler: action.sa_sigaction, flags: action.sa_flags as u32 as u64, restorer: 0, mask }
    }

    /// To libc's layout, without the restorer, which libc sets itself.
    pub fn to_libc(&self, action: &mut libc::sigaction) {
        // SAFETY: all-zero bytes are a `sigaction`.
        *action = unsafe { core::mem::zeroed() };
        action.sa_sigaction = self.handler;
        action.sa_flags = (self.flags & !SA_RESTORER) as c_int;
        // SAFETY: as in `from_libc`.
        unsafe { (&raw mut action.sa_mask).cast::<u64>().write(self.mask) };
    }
}

/// Ends a handler. Debuggers and unwinders recognise a signal frame by exactly these bytes.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn restorer() {
    core::arch::naked_asm!("mov rax, {}", "syscall", const libc::SYS_rt_sigreturn)
}

/// The bit of a signal in a mask.
pub const fn signal_bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Every signal except the two that libc uses itself, with which `setuid` and the like wait for every thread. For
/// threads of the library, on which the program's handlers must not run.
pub const ALL_BUT_LIBCS: u64 = !(signal_bit(32) | signal_bit(33));

const MASK_SIZE: usize = size_of::<u64>();

/// Sets a signal's action, if one is given, and returns the previous one.
pub fn signal_action(signal: c_int, new: Option<&SignalAction>) -> Result<SignalAction> {
    let mut old = SignalAction::DEFAULT;
    let new = new.map_or(null(), |new| new as *const SignalAction) as usize;
    // SAFETY: both are valid or null. Whether the handler is sound is the caller's responsibility.
    check(unsafe {
        let old = &raw mut old as usize;
        syscall(libc::SYS_rt_sigaction, [signal as usize, new, old, MASK_SIZE, 0, 0])
    })?;
    Ok(old)
}

/// Blocks more signals in this thread; returns the previous mask.
pub fn block_signals(mask: u64) -> u64 {
    change_mask(libc::SIG_BLOCK, mask)
}

/// Unblocks signals in this thread.
pub fn unblock_signals(mask: u64) -> u64 {
    change_mask(libc::SIG_UNBLOCK, mask)
}

/// Sets this thread's mask to one that [`block_signals`] returned.
pub fn restore_signals(mask: u64) {
    change_mask(libc::SIG_SETMASK, mask);
}

fn change_mask(how: c_int, mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both words are valid. The call cannot fail with these arguments.
    unsafe {
        let (mask, old) = (&raw const mask as usize, &raw mut old as usize);
        syscall(libc::SYS_rt_sigprocmask, [how as usize, mask, old, MASK_SIZE, 0, 0]);
    }
    old
}

/// Sends this thread a signal.
pub fn signal_this_thread(signal: c_int) -> Result<()> {
    let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
    let [process, thread] = [process, thread].map(|id| id.as_raw_nonzero().get() as usize);
    // SAFETY: no memory is involved.
    check(unsafe { syscall(libc::SYS_tgkill, [process, thread, signal as usize, 0, 0, 0]) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_goes_there_and_back() {
        let bit = signal_bit(libc::SIGWINCH);
        let before = block_signals(bit);
        assert_eq!(block_signals(0), before | bit);
        unblock_signals(bit);
        assert_eq!(block_signals(0), before & !bit);
        restore_signals(before);
    }

    #[test]
    fn an_action_is_what_libc_set() {
        extern "C" fn handler(_: c_int) {}
        // SAFETY: all-zero bytes are a `sigaction`, and the calls get valid ones.
        let set = unsafe {
            let mut set: libc::sigaction = core::mem::zeroed();
            set.sa_sigaction = handler as *const () as usize;
            set.sa_flags = libc::SA_RESTART | libc::SA_NODEFER;
            libc::sigaddset(&mut set.sa_mask, libc::SIGURG);
            assert_eq!(libc::sigaction(libc::SIGWINCH, &set, core::ptr::null_mut()), 0);
            set
        };
        let found = signal_action(libc::SIGWINCH, Some(&SignalAction::DEFAULT)).unwrap();
        let mut back = set;
        found.to_libc(&mut back);
        assert_eq!((back.sa_sigaction, back.sa_flags), (set.sa_sigaction, set.sa_flags));
        assert_eq!((found.mask, SignalAction::from_libc(&set).mask), (signal_bit(libc::SIGURG), found.mask));
    }
}
