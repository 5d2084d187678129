//! Read locks that processes keep after their programs have unlocked (`file::locks::kept`), and how others recall
//! them.
//!
//! Only hints are shared here: the kernel has every lock, so no damage to these words gives anybody a lock.

use super::Membership;
use crate::index::members::control_page::{MEMBERS, Page};
use crate::sys::Word;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

/// Looks at the keepers, and the wait after that, before a recall wakes the threads that answer: a process that locks again
/// and again notices by itself, if it has a processor. Perhaps it waits for this one, and those threads would only be
/// before it.
const SPINS: u32 = 300;
const PATIENCE_MIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };
/// How long a recall waits for an answer until it is repeated; and in all, which is longer than a process that runs ever
/// takes.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const PATIENCE_MAX: u64 = 1_000_000_000;

impl Membership {
    /// After a detach, another process may have the slot.
    fn attached_page(&self) -> Option<&Page> {
        self.is_attached().then(|| self.page())
    }

    fn bit(&self) -> u64 {
        1 << self.place()
    }

    /// This process is about to keep read locks. Returns the count of recalls until now; `None`: it may not, since
    /// another waits in the kernel for a lock.
    pub fn begin_to_keep_locks(&self) -> Option<u32> {
        let page = self.attached_page()?;
        let recalls = page.recalls.load(Ordering::SeqCst);
        page.hung_keepers.fetch_and(!self.bit(), Ordering::SeqCst);
        page.keepers.fetch_or(self.bit(), Ordering::SeqCst);
        // After the bit: a process that does not see it, and waits, is seen here.
        let is_awaited = self.living(page, &page.lock_waiters) != 0;
        if is_awaited || page.recalls.load(Ordering::SeqCst) != recalls {
            self.end_to_keep_locks();
            return None;
        }
        Some(recalls)
    }

    /// Whether locks were recalled since there were `recalls` recalls.
    #[inline]
    pub fn are_locks_recalled(&self, recalls: u32) -> bool {
        self.page().recalls.load(Ordering::Relaxed) != recalls
    }

    /// The count of recalls.
    pub fn lock_recalls(&self) -> u32 {
        self.page().recalls.load(Ordering::SeqCst)
    }

    /// The word that changes when locks are recalled.
    pub fn watch_recalls(&self) -> Word {
        Word::shared(&self.page().recalls, self.lock_recalls())
    }

    /// The kernel has no lock of this process any more that its program does not have.
    pub fn end_to_keep_locks(&self) {
        let Some(page) = self.attached_page() else { return };
        page.keepers.fetch_and(!self.bit(), Ordering::SeqCst);
        page.hung_keepers.fetch_and(!self.bit(), Ordering::SeqCst);
        page.kept_locks_ended.fetch_add(1, Ordering::SeqCst);
        if page.recallers.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&page.kept_locks_ended, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Whether other processes keep locks.
    #[inline]
    pub fn do_others_keep_locks(&self) -> bool {
        self.has_attached() && self.page().keepers.load(Ordering::SeqCst) & !self.bit() != 0 && self.is_attached()
    }

    /// Makes all other processes drop the locks that they keep, and waits for that. Returns whether any did.
    pub fn recall_kept_locks(&self) -> bool {
        if !self.do_others_keep_locks() {
            return false;
        }
        let page = self.page();
        let hung = page.hung_keepers.load(Ordering::SeqCst);
        let keepers = || self.living(page, &page.keepers) & !hung;
        let asked = keepers();
        if asked == 0 {
            self.ask_keepers();
            return hung & page.keepers.load(Ordering::SeqCst) == 0; // they have just ended, or died
        }
        page.recalls.fetch_add(1, Ordering::SeqCst);
        for _ in 0..SPINS {
            if page.keepers.load(Ordering::SeqCst) & !self.bit() == 0 {
                return true;
            }
            core::hint::spin_loop();
        }
        let left = self.wait_for_keepers(page, keepers);
        page.hung_keepers.fetch_or(left, Ordering::SeqCst);
        asked & !left != 0
    }

    /// Makes them drop what they keep, without waiting for that.
    pub fn ask_keepers(&self) {
        let page = self.page();
        page.recalls.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&page.recalls, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Waits until there are no `keepers`. Returns those that are left after a long time.
    fn wait_for_keepers(&self, page: &Page, keepers: impl Fn() -> u64) -> u64 {
        page.recallers.fetch_add(1, Ordering::SeqCst);
        let begun = crate::sys::monotonic_now();
        let mut patience = &PATIENCE_MIN;
        let left = loop {
            let ended = page.kept_locks_ended.load(Ordering::SeqCst);
            let left = keepers();
            if left == 0 || crate::sys::monotonic_now() - begun > PATIENCE_MAX {
                break left;
            }
            let waited = futex::wait(&page.kept_locks_ended, futex::Flags::empty(), ended, Some(patience));
            if waited == Err(Errno::TIMEDOUT) {
                self.ask_keepers(); // it may have ended, and begun again unseen
                patience = &PATIENCE;
            }
        };
        let _ = page.recallers.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |some| some.checked_sub(1));
        left
    }

    /// A lock call of this process waits in the kernel (`waits`), or does not any more: until then nobody keeps locks.
    pub fn set_waits_for_lock(&self, waits: bool) {
        let Some(page) = self.attached_page() else { return };
        let waiters = &page.lock_waiters;
        match waits {
            true => waiters.fetch_or(self.bit(), Ordering::SeqCst),
            false => waiters.fetch_and(!self.bit(), Ordering::SeqCst),
        };
    }

    /// Those of `bits` that belong to other living processes; the others are cleared.
    fn living(&self, page: &Page, bits: &AtomicU64) -> u64 {
        let all = bits.load(Ordering::SeqCst) & !self.bit();
        let is_dead = |&place: &usize| page.members[place].id.load(Ordering::Acquire) == 0 || !self.lives(place);
        let dead =
            (0..MEMBERS).filter(|place| all >> place & 1 != 0).filter(is_dead).fold(0, |dead, at| dead | 1 << at);
        if dead != 0 {
            bits.fetch_and(!dead, Ordering::SeqCst);
        }
        all & !dead
    }

    /// A new process has this slot.
    pub(super) fn clear_kept_locks(&self, place: usize) {
        let (page, bit) = (self.page(), 1 << place);
        for bits in [&page.keepers, &page.lock_waiters, &page.hung_keepers] {
            bits.fetch_and(!bit, Ordering::SeqCst);
        }
    }
}
