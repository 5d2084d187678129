//! The state of one thread: a small block of words without a destructor. It works before the first constructor, after
//! the last destructor and in signal handlers.

mod count;
pub(crate) mod faults;
mod fork_mutex;
pub(crate) mod handlers;
mod held;
pub(crate) mod main_thread;
mod mutex;
mod start;

pub(crate) use count::{forget_parents, is_programs_only};
pub(crate) use fork_mutex::ForkMutex;
pub(crate) use held::Held;
pub(crate) use mutex::{Guard, Mutex};
pub(crate) use start::{end_with_the_programs_threads, may_start, sharing, start};

use core::cell::Cell;
use core::marker::PhantomData;

/// The block of the current thread. `tls.c` allocates it, zeroed.
#[repr(C)]
pub struct ThreadBlock {
    /// Where a fault in a guarded copy resumes; zero outside of one (see `map::guard`).
    pub(crate) guard: Cell<usize>,
    /// The locks of atomic files that this thread holds. A signal handler that finds some must not take more.
    pub(crate) locks_held: Cell<u64>,
    /// The kernel's id of this thread; zero until it was asked for.
    pub(crate) tid: Cell<u64>,
    /// Not zero: this thread has unblocked the signals of a bad address (see `map::guard`).
    pub(crate) guard_ready: Cell<u64>,
    /// The locks of `posix` that this thread holds: of descriptions and of the table.
    pub(crate) posix_locks: Cell<u64>,
    /// This thread's slot in the list of calls (see `file::base::calls`); zero before its first call.
    pub(crate) calls: Cell<u64>,
    /// Not zero: this thread is doing the follow-up of a change (see `file::operations::follow_up`).
    pub(crate) doing_follow_up: Cell<u64>,
    /// Not zero: this thread stores what was promised room (see `journal::pools::shares::promise`).
    pub(crate) promised: Cell<u64>,
    /// During a fork: the list of files for the child (see `file::registry`); zero otherwise.
    pub(crate) inheritance: Cell<usize>,
    /// The state of the process's maps for which [`places`](Self::places) hold (see `file::shadow::places`).
    pub(crate) places_serial: Cell<u64>,
    /// Targets and sources of this thread's last copies: two of each, the latest first.
    pub(crate) places: [Cell<usize>; 4],
    /// The signal that waits for the end of a call (see `handlers`); zero: none.
    pub(crate) postponed: Cell<u64>,
    /// The innermost running handler of the program, by its address on the stack; zero: none.
    pub(crate) handler: Cell<usize>,
    /// The outermost of those that run, by its address on the stack. Stale if that has ended.
    pub(crate) outermost_handler: Cell<usize>,
    /// Not zero: one of the library's threads.
    pub(crate) ours: Cell<u64>,
    /// The folders that this thread keeps open (see `journal::pools::kept`), by their address; zero: none.
    pub(crate) folders: Cell<usize>,
    /// The stretch of work in which nobody else can change descriptors (see `sys::internal::undisturbed`).
    pub(crate) stretch: Cell<u64>,
    not_sync: PhantomData<*mut ()>,
}

const _: () = assert!(size_of::<ThreadBlock>() == 160);

impl ThreadBlock {
    /// A number that spreads threads over lines of memory: threads with a slot of calls have one each.
    #[inline]
    pub(crate) fn group(&self) -> usize {
        self.calls.get() as usize
    }
}

unsafe extern "C" {
    #[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "there only a test calls it"))]
    fn famio_thread_block() -> *const ThreadBlock;
}

/// The current thread's block.
#[inline(always)]
pub fn current() -> &'static ThreadBlock {
    // SAFETY: the block lives as long as its thread, all-zero bytes are a valid block, and `PhantomData<*mut ()>`
    // keeps the reference on this thread.
    unsafe { &*address() }
}

/// As a C compiler does it: a call would cost more than what most callers do with the block.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn address() -> *const ThreadBlock {
    let block;
    // SAFETY: reads two words that are constant for the thread: its address, and the block's offset.
    unsafe {
        core::arch::asm!(
            "mov {block}, qword ptr [rip + famio_thread_words@GOTTPOFF]",
            "add {block}, qword ptr fs:[0]",
            block = out(reg) block,
            options(pure, nomem, nostack),
        );
    }
    block
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn address() -> *const ThreadBlock {
    // SAFETY: it has no preconditions.
    unsafe { famio_thread_block() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_lead_to_the_same_block() {
        let same = || {
            // SAFETY: it has no preconditions.
            assert_eq!(address(), unsafe { famio_thread_block() });
        };
        same();
        std::thread::spawn(same).join().unwrap();
    }

    #[test]
    fn each_thread_has_its_own_block() {
        current().locks_held.set(7);
        std::thread::spawn(|| assert_eq!(current().locks_held.get(), 0)).join().unwrap();
        assert_eq!(current().locks_held.get(), 7);
        current().locks_held.set(0);
    }
}
