//! The program's signal handlers during calls of the library. To a handler, a system call has happened or not, never
//! half, and it may leave by `siglongjmp`. So if a handler would begin in a call of the library that holds a lock,
//! its signal is *postponed*: kept in the thread with its `siginfo_t`, the handled signals blocked, and sent again
//! when the last lock is released. A call without a signal pays one load for that.
//!
//! For this, handlers are installed behind a function of ours (`posix::runtime::handlers`). A handler that was
//! installed past libc's `sigaction` and `signal` runs at once, and its calls get `EDEADLK` (`posix::call::lock`).

use super::{ThreadBlock, current, faults};
use crate::kernel::{ALL_BUT_LIBCS, block_signals, restore_signals, signal_action, signal_bit, syscall};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence};

/// Signals whose handlers are installed behind ours: all that can have one, except libc's own and those of the guard
/// of copies.
pub(crate) const OURS: u64 = ALL_BUT_LIBCS & !bits(&[libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS]);

/// Of these, the ones that may be postponed. The kernel raises the others for an instruction.
const POSTPONABLE: u64 = OURS & !bits(&[libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT]);

const fn bits(signals: &[i32]) -> u64 {
    let (mut all, mut index) = (0, 0);
    while index < signals.len() {
        all |= signal_bit(signals[index]);
        index += 1;
    }
    all
}

/// The program's handlers, by signal; zero: none was installed.
static HANDLERS: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];
/// The signals with a handler in `HANDLERS`.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Of these, the ones with `SA_RESETHAND`: the kernel removes the action at the signal, which sent again would find
/// none.
static ONCE: AtomicU64 = AtomicU64::new(0);

/// Whether handlers are installed behind ours.
static IN_FRONT: AtomicBool = AtomicBool::new(false);

/// From now on handlers are installed through `posix::runtime::handlers`.
pub(crate) fn stand_in_front() {
    IN_FRONT.store(true, Ordering::Relaxed);
}

/// A signal that waits in its thread. `tls.c` allocates it, zeroed.
#[repr(C)]
struct Postponed {
    /// The signals that were blocked before it came.
    mask: Cell<u64>,
    thread: Cell<u64>,
    info: Cell<[u64; 16]>,
}

const _: () = assert!(size_of::<Postponed>() == 144 && size_of::<libc::siginfo_t>() == 128);

unsafe extern "C" {
    safe fn famio_postponed_signal() -> *const Postponed;
}

fn postponed() -> &'static Postponed {
    // SAFETY: it lives as long as its thread, and all-zero bytes are a valid one.
    unsafe { &*famio_postponed_signal() }
}

fn tid() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}

/// Installs a handler behind [`on_signal`]; returns the previous one. `once`: with `SA_RESETHAND`.
pub(crate) fn swap_handler(signal: i32, handler: usize, once: bool) -> usize {
    match once {
        true => ONCE.fetch_or(signal_bit(signal), Ordering::Relaxed),
        false => ONCE.fetch_and(!signal_bit(signal), Ordering::Relaxed),
    };
    SEEN.fetch_or(signal_bit(signal), Ordering::Relaxed);
    HANDLERS[signal as usize].swap(handler, Ordering::AcqRel)
}

/// Whether the handler was installed with `SA_RESETHAND`.
pub(crate) fn is_once(signal: i32) -> bool {
    ONCE.load(Ordering::Relaxed) & signal_bit(signal) != 0
}

/// The handler behind [`on_signal`].
pub(crate) fn handler(signal: i32) -> usize {
    HANDLERS[signal as usize].load(Ordering::Acquire)
}

/// In `ThreadBlock::handler` the signal's number begins at this bit, above the handler's address on the stack.
const SIGNAL: u32 = 56;
/// The bits of the address.
const PLACE: usize = (1 << SIGNAL) - 1;

/// The function that the kernel calls for every such signal. `extern "C-unwind"`, and without anything to drop: a
/// handler may end its thread.
///
/// # Safety
/// As of a handler with `SA_SIGINFO`.
pub(crate) unsafe extern "C-unwind" fn on_signal(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let thread = current();
    if (thread.locks_held.get() | thread.posix_locks.get()) != 0
        && thread.postponed.get() == 0
        && POSTPONABLE & !ONCE.load(Ordering::Relaxed) & signal_bit(signal) != 0
    {
        // SAFETY: the kernel's structures, ours until we return.
        unsafe { postpone(thread, signal, &*info, &mut *context) };
        return;
    }
    let outer = begin(thread, signal);
    let handler = HANDLERS[signal as usize].load(Ordering::Acquire);
    // SAFETY: the program has installed this as a handler; one that takes only the signal ignores the other
    // arguments.
    unsafe {
        let handler: unsafe extern "C-unwind" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t) =
            core::mem::transmute(handler);
        handler(signal, info, context);
    }
    end(thread, outer);
}

/// A handler of the program begins; the caller calls it.
#[inline(always)]
pub(crate) fn begin(thread: &ThreadBlock, signal: i32) -> usize {
    let here = 0u8;
    let place = (&raw const here).addr();
    let outer = thread.handler.replace(place | (signal as usize) << SIGNAL);
    // One below this on the stack was left by `siglongjmp`.
    if outer & PLACE < place {
        thread.outermost_handler.set(place);
    }
    compiler_fence(Ordering::SeqCst);
    outer
}

/// The handler has returned.
#[inline(always)]
pub(crate) fn end(thread: &ThreadBlock, outer: usize) {
    compiler_fence(Ordering::SeqCst);
    thread.handler.set(outer);
}

/// # Safety
/// `info` and `context` are the kernel's, for this signal.
unsafe fn postpone(thread: &ThreadBlock, signal: i32, info: &libc::siginfo_t, context: &mut libc::ucontext_t) {
    let kept = postponed();
    // SAFETY: both are 128 bytes; a `siginfo_t` is plain words.
    kept.info.set(unsafe { (&raw const *info).cast::<[u64; 16]>().read() });
    kept.thread.set(tid());
    // The first word of libc's set is the kernel's. Our return makes it the mask of the interrupted call.
    let mask = (&raw mut context.uc_sigmask).cast::<u64>();
    // SAFETY: inside `context`.
    unsafe {
        kept.mask.set(mask.read());
        // A signal without a handler still ends the process at once.
        mask.write(mask.read() | SEEN.load(Ordering::Relaxed) & POSTPONABLE | signal_bit(signal));
    }
    compiler_fence(Ordering::SeqCst);
    thread.postponed.set(signal as u64);
}

/// In a forked child, whose thread holds no lock any more: the postponed signal was the parent's.
pub(crate) fn forget_postponed() {
    if current().postponed.get() != 0 {
        deliver();
    }
}

/// Called when the thread's last lock was released and a signal waits.
#[cold]
pub(super) fn deliver() {
    let thread = current();
    if (thread.locks_held.get() | thread.posix_locks.get()) != 0 {
        return;
    }
    let kept = postponed();
    let (signal, info, mask) = (thread.postponed.replace(0), kept.info.get(), kept.mask.get());
    let (process, tid) = (rustix::process::getpid().as_raw_nonzero().get() as usize, tid());
    // Otherwise this is a child that was forked meanwhile, and the signal is the parent's.
    if kept.thread.get() == tid {
        let (tid, signal) = (tid as usize, signal as usize);
        // SAFETY: `info` is only read. The signal is delivered when it is unblocked, below.
        unsafe {
            let info = (&raw const info) as usize;
            if syscall(libc::SYS_rt_tgsigqueueinfo, [process, tid, signal, info, 0, 0]) < 0 {
                // The queue is full, or a sandbox forbids it: send the signal without its `info`.
                syscall(libc::SYS_tgkill, [process, tid, signal, 0, 0, 0]);
            }
        }
    }
    // The guard of copies may have unblocked its signals meanwhile: they stay unblocked.
    let guarded = if thread.guard_ready.get() != 0 { signal_bit(libc::SIGBUS) | signal_bit(libc::SIGSEGV) } else { 0 };
    restore_signals(mask & !guarded);
}

/// Whether this thread may be in a handler of the program, and so for example in the middle of libc's allocator.
/// False is certain, except for a handler that was installed past libc with `SA_NODEFER`. Makes system calls: for
/// slow paths. Always false in a program that calls the library by its own functions, which are not for handlers.
#[cold]
pub(crate) fn may_be_in_handler() -> bool {
    if !IN_FRONT.load(Ordering::Relaxed) {
        return false;
    }
    let thread = current();
    let blocked = block_signals(0);
    let running = thread.handler.get();
    if running != 0 {
        let here = 0u8;
        let (place, signal) = (running & PLACE, (running >> SIGNAL) as i32);
        // A handler that was left by `siglongjmp` has a lower frame than ours, or its signal was unblocked again.
        if place > (&raw const here).addr() && (blocked & signal_bit(signal) != 0 || lets_itself_in(signal)) {
            return true;
        }
    }
    // A handler that is not behind ours has its own signal blocked.
    let known = [libc::SIG_DFL, libc::SIG_IGN, on_signal as *const () as usize, faults::handler()];
    (1..65).any(|signal| {
        blocked & ALL_BUT_LIBCS & signal_bit(signal) != 0
            && signal_action(signal, None).is_ok_and(|action| !known.contains(&action.handler))
    })
}

/// Whether all handlers that were begun on this thread have been left by `siglongjmp`: this call lies above the outermost
/// on the stack. Forgets them then, and the guarded copy that they may have interrupted.
#[cold]
pub(crate) fn forget_those_that_were_left(thread: &ThreadBlock) -> bool {
    let here = 0u8;
    let were_left = (&raw const here).addr() > thread.outermost_handler.get();
    if were_left {
        thread.handler.set(0);
        thread.guard.set(0);
    }
    were_left
}

/// Whether a handler may run with its own signal unblocked: the guard of copies unblocks its signals.
fn lets_itself_in(signal: i32) -> bool {
    [libc::SIGSEGV, libc::SIGBUS].contains(&signal)
        || signal_action(signal, None).map_or(true, |action| action.flags & libc::SA_NODEFER as u64 != 0)
}
