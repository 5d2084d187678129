//! Notices the end of a member at once. When a process is killed, the kernel releases its record locks before its
//! locks on open descriptions. A process that waited for a record lock would still find the dead member's slot
//! locked, and rely on writes that are about to be rolled back. The kernel marks *robust futexes* before either.
//!
//! A robust futex belongs to a thread. A thread that lives as long as the process keeps those of all its control
//! pages; further threads keep the rest if there are more than the kernel marks for one thread.

use crate::sys::Word;
use crate::thread::Held;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use rustix::thread::futex;

/// In a robust futex: its thread has ended.
const OWNER_DIED: u32 = 1 << 30;
/// In a robust futex: a thread waits for that.
const WAITERS: u32 = 1 << 31;

/// The robust futex of one member: the kernel's `struct robust_list`, and the word.
#[repr(C)]
pub(in crate::index) struct Life {
    /// The next one of the same process, as an address there. It means nothing to other processes, and only the
    /// kernel follows it, when the process ends.
    link: AtomicU64,
    /// 0, the id of the thread that keeps it, or [`OWNER_DIED`].
    word: AtomicU32,
    spare: AtomicU32,
}

impl Life {
    /// Whether its process has ended.
    pub(in crate::index) fn is_over(&self) -> bool {
        self.word.load(Ordering::Acquire) & OWNER_DIED != 0
    }

    /// Whether a thread keeps it, so that the kernel marks its end.
    pub(in crate::index) fn is_kept(&self) -> bool {
        self.word.load(Ordering::Acquire) != 0
    }

    /// For tests: marks it as the kernel would.
    pub(in crate::index) fn end(&self) {
        self.word.store(OWNER_DIED, Ordering::Release);
    }

    /// Its process has detached, or a new one has taken the slot.
    pub(in crate::index) fn reset(&self) {
        if self.word.swap(0, Ordering::AcqRel) & WAITERS != 0 {
            let _ = futex::wake(&self.word, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// The word to wait on for its end; `None`: it has ended, or no thread keeps it.
    pub(in crate::index) fn watched(&self) -> Option<Word> {
        let seen = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            (word != 0 && word & OWNER_DIED == 0).then_some(word | WAITERS)
        });
        seen.ok().map(|seen| Word::shared(&self.word, seen | WAITERS))
    }

    fn address(&self) -> u64 {
        (&raw const self.link).expose_provenance() as u64
    }
}

/// The kernel marks at most 2048 per thread.
const MOST: u32 = 2000;
/// Threads that keep futexes: enough for more files than a process may have maps of.
const LISTS: usize = 32;

/// The robust futexes of one process.
pub(crate) struct Lives {
    lists: [List; LISTS],
    /// 1: a thread changes the lists.
    changing: AtomicU32,
    /// 1: a futex found no room in any list.
    wanted: AtomicU32,
}

/// Those that one thread keeps: the kernel's `struct robust_list_head`, and the id of the thread.
#[repr(C)]
struct List {
    first: AtomicU64,
    /// From a link to its word.
    offset: AtomicI64,
    pending: AtomicU64,
    /// 0: no thread.
    keeper: AtomicU32,
    /// 1: a thread keeps it, or is about to.
    taken: AtomicU32,
    /// In the order of the list, its first entry last. The links lie in memory that other processes write: they are
    /// stored there for the kernel, and never followed here.
    order: UnsafeCell<Vec<*const Life>>,
}

// SAFETY: `order` is used by the thread that has set `changing`, or by the only thread of a process. The rest is
// atomic.
unsafe impl Sync for Lives {}
// SAFETY: as above.
unsafe impl Send for Lives {}

/// Those of this process.
pub(crate) static LIVES: Lives = Lives::new();

impl List {
    const fn new() -> Self {
        let offset = (offset_of!(Life, word) - offset_of!(Life, link)) as i64;
        Self {
            first: AtomicU64::new(0),
            offset: AtomicI64::new(offset),
            pending: AtomicU64::new(0),
            keeper: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            order: UnsafeCell::new(Vec::new()),
        }
    }

    fn end(&self) -> u64 {
        (&raw const self.first).expose_provenance() as u64
    }

    fn keeper(&self) -> u32 {
        self.keeper.load(Ordering::Acquire)
    }

    fn keep(&'static self) {
        const HEAD: usize = 24;
        self.first.store(self.end(), Ordering::Release);
        // SAFETY: a static that the kernel reads when this thread ends; all entries stay valid until then, since each
        // is taken out before its memory goes.
        let kept = unsafe { crate::sys::syscall(libc::SYS_set_robust_list, [self.end() as usize, HEAD, 0, 0, 0, 0]) };
        if kept == 0 {
            let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            self.keeper.store(me, Ordering::Release);
        }
    }

    /// The entries.
    ///
    /// # Safety
    /// The caller is the one thread that changes the lists.
    #[allow(clippy::mut_from_ref, reason = "the caller's promise")]
    unsafe fn order(&self) -> &mut Vec<*const Life> {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.order.get() }
    }

    fn put_in(&self, order: &mut Vec<*const Life>, life: &Life) {
        order.push(life);
        // The list is whole at each moment: the process may end at any.
        life.word.store(self.keeper(), Ordering::Relaxed);
        life.link.store(self.first.load(Ordering::Relaxed), Ordering::Release);
        self.first.store(life.address(), Ordering::Release);
    }

    fn take_out(&self, order: &mut Vec<*const Life>, at: usize) {
        // SAFETY: entries of this process, in control pages that it is attached to: they are taken out before those
        // go.
        let of = |at: usize| order.get(at).map(|&there| unsafe { &*there });
        let next = at.checked_sub(1).and_then(of).map_or(self.end(), Life::address);
        of(at + 1).map_or(&self.first, |before| &before.link).store(next, Ordering::Release);
        of(at).iter().for_each(|life| life.reset());
        order.remove(at);
    }
}

impl Lives {
    pub(in crate::index) const fn new() -> Self {
        Self { lists: [const { List::new() }; LISTS], changing: AtomicU32::new(0), wanted: AtomicU32::new(0) }
    }

    /// Makes this thread the keeper. It must end only with its process, and must not use robust mutexes of libc.
    pub fn keep(&'static self) {
        self.lists[0].taken.store(1, Ordering::Relaxed);
        self.lists[0].keep();
    }

    /// Whether another thread is needed to [keep](Self::keep_more) futexes that found no room.
    pub fn want_keeper(&self) -> bool {
        self.wanted.load(Ordering::Acquire) != 0
    }

    /// Such a thread is about to start. False: no more lists are left.
    pub fn will_have_keeper(&self) -> bool {
        self.wanted.store(0, Ordering::Release);
        self.lists.iter().any(|list| list.taken.load(Ordering::Relaxed) == 0)
    }

    /// As [`keep`](Self::keep), in a further thread.
    pub fn keep_more(&'static self) {
        if let Some(list) = self.lists.iter().find(|list| list.taken.swap(1, Ordering::Relaxed) == 0) {
            list.keep();
        }
    }

    /// Runs `change` while no other thread changes the lists. It is a few stores, so other threads spin.
    fn change(&self, change: impl FnOnce()) {
        let _held = Held::of_process();
        while self.changing.swap(1, Ordering::Acquire) != 0 {
            rustix::thread::sched_yield();
        }
        change();
        self.changing.store(0, Ordering::Release);
    }

    /// In a forked child: the keeping threads are the parent's, as is a thread that was changing the lists.
    pub fn forget(&self) {
        self.wanted.store(0, Ordering::Release);
        for list in &self.lists {
            list.keeper.store(0, Ordering::Release);
            list.taken.store(0, Ordering::Release);
            list.first.store(list.end(), Ordering::Release);
            // SAFETY: the child has one thread. What the parent was changing is not looked at.
            core::mem::forget(core::mem::take(unsafe { list.order() }));
        }
        self.changing.store(0, Ordering::Release);
    }

    /// Whether a thread keeps them.
    pub fn are_kept(&self) -> bool {
        self.lists[0].keeper() != 0
    }

    /// The list that has an entry, and where. Only called by the thread that changes them.
    fn find(&self, life: &Life) -> Option<(&List, usize)> {
        self.lists.iter().find_map(|list| {
            // SAFETY: only one thread changes the lists.
            let at = unsafe { list.order() }.iter().position(|&there| core::ptr::eq(there, life));
            at.map(|at| (list, at))
        })
    }

    /// From now on other members see the end of this process by it, if a thread can keep it. Returns whether this is
    /// new.
    pub(in crate::index) fn add(&self, life: &Life) -> bool {
        let mut added = false;
        self.change(|| {
            if !self.are_kept() || self.find(life).is_some() {
                return;
            }
            // SAFETY: no other thread changes the lists.
            let has_room = |list: &&List| list.keeper() != 0 && unsafe { list.order() }.len() < MOST as usize;
            match self.lists.iter().find(has_room) {
                // SAFETY: as above.
                Some(list) => list.put_in(unsafe { list.order() }, life),
                None => self.wanted.store(1, Ordering::Release),
            }
            added = self.find(life).is_some();
        });
        added
    }

    /// Before the process detaches.
    pub(in crate::index) fn remove(&self, life: &Life) {
        self.change(|| {
            if let Some((list, at)) = self.find(life) {
                // SAFETY: no other thread changes the lists.
                list.take_out(unsafe { list.order() }, at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life() -> &'static Life {
        Box::leak(Box::new(Life { link: AtomicU64::new(0), word: AtomicU32::new(0), spare: AtomicU32::new(0) }))
    }

    #[test]
    fn ends_with_the_thread_that_keeps_it_unless_it_was_removed() {
        let lives: &'static Lives = Box::leak(Box::new(Lives::new()));
        let (first, second, third, late) = (life(), life(), life(), life());
        assert!(!lives.add(late) && !lives.are_kept());
        std::thread::spawn(move || {
            lives.keep();
            assert_eq!([first, second, third, third].map(|life| lives.add(life)), [true, true, true, false]);
            lives.remove(second);
            lives.remove(second);
            assert!([first, second, third].iter().all(|life| !life.is_over()));
        })
        .join()
        .unwrap();
        // The kernel marks them as the thread ends, which may be a moment after the join.
        while !(first.is_over() && third.is_over()) {
            std::thread::yield_now();
        }
        assert!(!second.is_over() && !late.is_over());
        first.reset();
        assert!(!first.is_over());
    }

    /// The kernel marks 2048 per thread.
    #[test]
    fn thousands_end_with_the_threads_that_keep_them() {
        let lives: &'static Lives = Box::leak(Box::new(Lives::new()));
        let all: Vec<_> = (0..5000).map(|_| life()).collect();
        let kept = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                lives.keep();
                kept.wait();
                kept.wait();
            });
            kept.wait();
            assert_eq!(all.iter().filter(|life| lives.add(life)).count(), MOST as usize);
            assert!(lives.want_keeper() && lives.will_have_keeper() && !lives.want_keeper());
            kept.wait();
        });
        let first = all[..MOST as usize].iter();
        while !first.clone().all(|life| life.is_over()) {
            std::thread::yield_now();
        }
        let kept = std::sync::Barrier::new(3);
        let rest = &all[MOST as usize..];
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    lives.keep_more();
                    kept.wait();
                    kept.wait();
                });
            }
            kept.wait();
            assert_eq!(rest.iter().filter(|life| lives.add(life)).count(), rest.len());
            lives.remove(rest[7]);
            kept.wait();
        });
        while !rest.iter().enumerate().all(|(i, life)| life.is_over() || i == 7) {
            std::thread::yield_now();
        }
        assert!(!rest[7].is_over());
    }
}
