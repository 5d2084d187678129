//! Threads of our own, and where they may be started. A new thread takes memory from libc's allocator, which the caller of a call
//! of ours may have interrupted: POSIX lets a signal handler call `open`, `write`, `fsync` and the like. So a thread is started by
//! another of ours, or in a call that certainly is no handler's; what it is for waits, or is done by who needs it.
//!
//! Not in the library's constructor, though nothing could be interrupted there: every process of a run would have two threads
//! then, of which libc and the C++ library take notice (locks in `malloc` and `stdio`, locked reference counts), and
//! `unshare(CLONE_NEWUSER)` and `setns` refuse.

use super::{current, handlers};
use crate::sys::{ALL_BUT_LIBCS, block_signals, restore_signals};
use core::sync::atomic::{AtomicU32, Ordering};

/// Our threads in this process.
static OURS: AtomicU32 = AtomicU32::new(0);

/// How often a start of one was begun, and how often it has come to its end.
static BEGUN: AtomicU32 = AtomicU32::new(0);
static ENDED: AtomicU32 = AtomicU32::new(0);

/// One of our threads, until it is dropped.
struct Counted(());

impl Counted {
    fn begin() -> Self {
        OURS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OURS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// In a forked child: they are the parent's.
pub(crate) fn forget_parents() {
    OURS.store(0, Ordering::Relaxed);
    ENDED.store(BEGUN.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether the program has no thread but this one.
pub(crate) fn is_programs_only() -> bool {
    // One that another thread is about to start counts before the kernel has it: that would hide the other.
    let begun = BEGUN.load(Ordering::SeqCst);
    let starting = begun != ENDED.load(Ordering::SeqCst);
    // A folder has a link for each folder in it, and two of its own.
    let threads = rustix::fs::stat(c"/proc/self/task").map_or(0, |stat| stat.st_nlink as u32);
    threads == OURS.load(Ordering::SeqCst) + 3 && !starting && begun == BEGUN.load(Ordering::SeqCst)
}

/// Whether this thread may start another.
pub(crate) fn may_start() -> bool {
    current().ours.get() != 0 || !handlers::may_be_in_handler()
}

/// Starts a thread, on which no handler of the host's runs. Whether it did.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    if !may_start() || !has_room() {
        return false;
    }
    // No signal of the host's is to run its handler on a thread that the host does not know.
    let before = block_signals(ALL_BUT_LIBCS);
    BEGUN.fetch_add(1, Ordering::SeqCst);
    let counted = Counted::begin();
    let started = std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(move || {
        let _counted = counted;
        current().ours.set(1);
        work();
    });
    ENDED.fetch_add(1, Ordering::SeqCst);
    restore_signals(before);
    started.is_ok()
}

/// Whether a thread finds memory of libc's when it begins: without it libc ends the process. Under a limit (`ulimit -v`) there may be
/// room for its stack alone.
fn has_room() -> bool {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    const ROOM: usize = 4 << 20;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping where the kernel likes, which nobody uses.
    unsafe {
        mmap_anonymous(core::ptr::null_mut(), ROOM, ProtFlags::empty(), flags).and_then(|at| munmap(at, ROOM)).is_ok()
    }
}

/// How many threads may share a piece of work that the caller waits for, of `most`.
pub(crate) fn sharing(most: usize) -> usize {
    if most > 1 && may_start() && has_room() { most } else { 1 }
}
