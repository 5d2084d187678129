//! The signal handler, and the program's own action behind it.

use super::{Fault, Frame, Range, entry};
use crate::error::Result;
use crate::sys::{self, SignalAction};
use crate::thread::faults::{self, FAULTS};
use crate::thread::handlers;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::*, fence};

/// The program's action for each of [`FAULTS`], once our handler is installed.
static HOST: [Host; 2] = [const { Host::new() }; 2];

/// The program's action. Signal handlers read it, and the program's threads and handlers write it at any time, also
/// across `fork`. So there is no lock, and a writer never writes the current slot. A reader whose slot is reused
/// (eight writes later) reads again.
struct Host {
    /// 0: the kernel has the program's action. Otherwise one more than the number of the current slot's write.
    current: AtomicUsize,
    next: AtomicUsize,
    slots: [Slot; 8],
}

struct Slot {
    /// The number of the write that filled it; zero while it is being filled.
    number: AtomicUsize,
    words: [AtomicUsize; 4],
}

impl Slot {
    const fn new() -> Self {
        Self { number: AtomicUsize::new(0), words: [const { AtomicUsize::new(0) }; 4] }
    }
}

impl Host {
    const fn new() -> Self {
        Self { current: AtomicUsize::new(0), next: AtomicUsize::new(1), slots: [const { Slot::new() }; 8] }
    }

    fn is_ours(&self) -> bool {
        self.current.load(Acquire) != 0
    }

    fn get(&self) -> SignalAction {
        loop {
            if let Some(action) = self.read(self.current.load(Acquire)) {
                return action;
            }
        }
    }

    fn read(&self, number: usize) -> Option<SignalAction> {
        let slot = &self.slots[number % self.slots.len()];
        let before = slot.number.load(Acquire);
        let [handler, flags, restorer, mask] = [0, 1, 2, 3].map(|i| slot.words[i].load(Relaxed));
        fence(Acquire);
        (before == number && slot.number.load(Relaxed) == number).then_some(SignalAction {
            handler,
            flags: flags as u64,
            restorer,
            mask: mask as u64,
        })
    }

    /// Sets an action and returns the previous one.
    fn swap(&self, action: &SignalAction) -> SignalAction {
        let number = self.next.fetch_add(1, Relaxed);
        let slot = &self.slots[number % self.slots.len()];
        slot.number.store(0, Relaxed);
        fence(Release);
        let words = [action.handler, action.flags as usize, action.restorer, action.mask as usize];
        slot.words.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
        slot.number.store(number, Release);
        let before = self.current.swap(number, AcqRel);
        self.read(before).unwrap_or(SignalAction::DEFAULT)
    }
}

fn host(signal: c_int) -> Option<&'static Host> {
    FAULTS.iter().position(|&s| s == signal).map(|i| &HOST[i])
}

/// Installs our handler for SIGBUS and SIGSEGV before the program's, and again if the program has replaced it by a
/// system call of its own, and lets this thread through. Two system calls if there is nothing to do; called at each
/// open.
pub fn install() -> Result<()> {
    // SA_ONSTACK: the program may have a stack of its own for overflows of the other. No SA_NODEFER: a fault in the
    // handler itself is a bug, and ends the process. SA_RESTART: a signal that is sent by a process, and that the
    // program ignores, interrupts no system call.
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    let ours = SignalAction::new(handle as *const () as usize, flags as u64, 0);
    faults::is_handled_by(ours.handler);
    for (signal, host) in FAULTS.into_iter().zip(&HOST) {
        let found = sys::signal_action(signal, None)?;
        if found.handler == ours.handler && host.is_ours() {
            continue;
        }
        // The program's action is in place before our handler can run.
        host.swap(&found);
        let replaced = sys::signal_action(signal, Some(&ours))?;
        if replaced.handler != ours.handler && replaced.handler != found.handler {
            host.swap(&replaced);
        }
    }
    faults::let_through(crate::thread::current());
    Ok(())
}

/// Whether [`install`] was called. Guarded calls may be made then.
pub fn is_installed() -> bool {
    HOST.iter().all(Host::is_ours)
}

/// Answers the program's `sigaction` for a signal with our handler: the new action goes behind our handler, and the
/// old one comes from there. `None`: our handler is not installed, so the kernel answers.
///
/// # Safety
/// The pointers are valid or null, as `sigaction(2)` wants them.
pub unsafe fn host_action(
    signal: c_int,
    new: Option<*const libc::sigaction>,
    old: *mut libc::sigaction,
) -> Option<Result<()>> {
    let host = host(signal).filter(|host| host.is_ours())?;
    // SAFETY: the caller's promise.
    let before = match new.and_then(|new| unsafe { new.as_ref() }) {
        Some(new) => host.swap(&SignalAction::from_libc(new)),
        None => host.get(),
    };
    if !old.is_null() {
        // SAFETY: the caller's promise.
        unsafe { before.to_libc(&mut *old) };
    }
    Some(Ok(()))
}

unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls with its own structures, ours to change until we return.
    unsafe {
        if !resume_guarded(signal, &*info, &mut *context.cast()) && !stands_in(signal, &*info) {
            pass_on(signal, info, context);
        }
    }
}

/// Makes the guarded call that this fault belongs to return; false if there is none.
unsafe fn resume_guarded(signal: c_int, info: &libc::siginfo_t, context: &mut libc::ucontext_t) -> bool {
    let innermost = crate::thread::current().guard.get() as *mut Frame;
    // SAFETY: a linked frame is alive, further down on this thread's stacks.
    let Some(frame) = (unsafe { innermost.as_mut() }) else { return false };
    // SAFETY: for a signal that the kernel raised for a fault, the address is valid.
    let Some(address) = (unsafe { fault_address(info, &frame.ranges) }) else { return false };
    frame.fault = Fault { address, signal };
    let resume = entry::resume as *const () as usize;
    #[cfg(target_arch = "x86_64")]
    {
        let registers = &mut context.uc_mcontext.gregs;
        registers[libc::REG_RSP as usize] = frame.stack as i64;
        registers[libc::REG_RIP as usize] = resume as i64;
        registers[libc::REG_RAX as usize] = 1;
    }
    #[cfg(target_arch = "aarch64")]
    {
        let registers = &mut context.uc_mcontext;
        registers.sp = frame.stack as u64;
        registers.pc = resume as u64;
        registers.regs[0] = 1;
    }
    true
}

/// Whether a page that another process has cut off is replaced, so that the access continues with zeros.
unsafe fn stands_in(signal: c_int, info: &libc::siginfo_t) -> bool {
    // SAFETY: for a signal that the kernel raised for a fault, the address is valid.
    signal == libc::SIGBUS && info.si_code > 0 && super::standin::stand_in(unsafe { info.si_addr() } as usize)
}

/// The address, if this is a fault of an access (not a signal sent by a process) in one of the ranges.
unsafe fn fault_address(info: &libc::siginfo_t, ranges: &[Range; 2]) -> Option<usize> {
    const SI_KERNEL: c_int = 0x80;
    const BUS_MCEERR_AR: c_int = 4;
    const BUS_MCEERR_AO: c_int = 5;
    if info.si_code <= 0 || (info.si_signo == libc::SIGBUS && info.si_code == BUS_MCEERR_AO) {
        return None;
    }
    // SAFETY: the caller's promise.
    let address = unsafe { info.si_addr() } as usize;
    // x86 reports no address for a non-canonical one; only a range with such addresses can have caused the fault.
    if info.si_code == SI_KERNEL {
        return ranges.iter().find(|range| range.len != 0 && end(range) > CANONICAL).map(|range| range.start);
    }
    // Bad memory is reported by the page or huge page that holds the address.
    let grain = if info.si_signo == libc::SIGBUS && info.si_code == BUS_MCEERR_AR {
        // SAFETY: `si_addr_lsb` follows `si_addr` in this kind of report.
        let bits = unsafe { (&raw const *info).cast::<u8>().add(ADDRESS + size_of::<usize>()).cast::<i16>().read() };
        1usize << bits.clamp(0, 40)
    } else {
        1
    };
    let low = address & !(grain - 1);
    let fault_in = |range: &Range| {
        let start = untag(range.start);
        let hit = range.len != 0 && low + (grain - 1) >= start && low <= start.saturating_add(range.len - 1);
        hit.then(|| range.start.wrapping_add(low.saturating_sub(start)))
    };
    ranges.iter().find_map(fault_in)
}

/// The offset of `si_addr` in `siginfo_t` on 64-bit Linux.
const ADDRESS: usize = 16;

/// Below it, x86 reports every faulting address.
const CANONICAL: usize = 1 << 47;

/// An address as the kernel reports it: on Arm without the tag that user addresses may have in the top byte.
fn untag(address: usize) -> usize {
    #[cfg(target_arch = "aarch64")]
    return address & (((address << 8) as isize) >> 8) as usize;
    #[cfg(not(target_arch = "aarch64"))]
    address
}

fn end(range: &Range) -> usize {
    range.start.saturating_add(range.len)
}

/// Does what the kernel would do without our handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(host) = host(signal) else { return };
    let action = host.get();
    // SAFETY: the kernel's.
    let sent = unsafe { (*info).si_code } <= 0;
    match action.handler {
        libc::SIG_IGN if sent => {}
        libc::SIG_DFL | libc::SIG_IGN => die(signal, sent),
        handler => {
            if action.flags & libc::SA_RESETHAND as u64 != 0 {
                host.swap(&SignalAction { handler: libc::SIG_DFL, ..action });
            }
            // The kernel already blocks the signal itself; our return restores the mask.
            sys::block_signals(action.mask);
            if action.flags & libc::SA_NODEFER as u64 != 0 && action.mask & sys::signal_bit(signal) == 0 {
                sys::unblock_signals(sys::signal_bit(signal));
            }
            let thread = crate::thread::current();
            let outer = handlers::begin(thread, signal);
            // SAFETY: the program has installed it as a handler of this kind.
            unsafe {
                if action.flags & libc::SA_SIGINFO as u64 != 0 {
                    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                        core::mem::transmute(handler);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = core::mem::transmute(handler);
                    handler(signal);
                }
            }
            handlers::end(thread, outer);
        }
    }
}

/// Ends the process by the signal's default action, with its core dump: after our return the instruction faults
/// again, or the sent signal comes again.
fn die(signal: c_int, sent: bool) {
    let _ = sys::signal_action(signal, Some(&SignalAction::DEFAULT));
    if sent {
        let _ = sys::signal_this_thread(signal);
    }
}
