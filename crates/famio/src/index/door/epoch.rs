//! The file in which an open epoch travels: in `/dev/shm`, with a number of its own. Who is killed between two steps
//! leaves none behind that nobody knows of.

use super::{Door, TRAVELS};
use core::sync::atomic::Ordering;
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

/// What an epoch is that travels.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sort {
    /// It stays, though all processes are killed.
    pub is_kept: bool,
    /// It has all that is not committed, of whomever.
    pub is_whole: bool,
}

impl Door {
    /// The path of the travelling epoch, if it travels.
    pub fn epoch(&self) -> Option<String> {
        (self.state() & TRAVELS != 0).then(|| self.epoch_path(self.page().epoch.load(Ordering::Acquire)))
    }

    /// The path of a travelling epoch with that number.
    pub fn epoch_path(&self, number: u64) -> String {
        self.path(number, "epoch")
    }

    /// The epoch travels in the file with that number from now on, which is complete. By who has the turn.
    pub fn set_epoch(&self, number: u64, sort: Sort) {
        let page = self.page();
        if sort.is_kept && page.kept.load(Ordering::Acquire) == 0 {
            page.kept.store(number, Ordering::Release);
        }
        page.whole.store(if sort.is_whole { number } else { 0 }, Ordering::Release);
        let old = page.epoch.swap(number, Ordering::AcqRel);
        if self.state() & TRAVELS != 0 {
            page.unfinished.store(old, Ordering::Release);
        }
        self.change(TRAVELS, TRAVELS);
        self.remove_unfinished();
    }

    /// Whether the epoch that travels stays, whoever dies.
    pub fn has_kept_epoch(&self) -> bool {
        let (kept, number) = (self.page().kept.load(Ordering::Acquire), self.page().epoch.load(Ordering::Acquire));
        self.state() & TRAVELS != 0 && kept != 0 && number >= kept
    }

    /// Whether that epoch has all that is not committed: what a dead process has committed does not end it.
    pub fn has_whole_epoch(&self) -> bool {
        let page = self.page();
        self.state() & TRAVELS != 0 && page.whole.load(Ordering::Acquire) == page.epoch.load(Ordering::Acquire)
    }

    /// A session is about to begin, which takes up what travels: what it commits ends it.
    pub fn begin_session(&self) {
        self.page().whole.store(0, Ordering::Release);
        self.set_session(true);
    }

    /// All processes were killed. What stays goes on travelling, unless it went with the machine.
    pub(super) fn keep_or_forget_epoch(&self) {
        let is_there = || self.epoch().is_some_and(|path| rustix::fs::lstat(path).is_ok());
        if !(self.has_kept_epoch() && is_there()) {
            self.forget_epoch();
            self.page().kept.store(0, Ordering::Release); // of one that was about to travel
        }
    }

    /// Whether a process could store through maps that was killed with all others; and that it is seen to.
    pub fn has_lost_stores(&self) -> bool {
        self.page().lost_stores.load(Ordering::Acquire) != 0
    }

    /// That is seen to. By who has the turn.
    pub fn forget_lost_stores(&self) {
        self.page().lost_stores.store(0, Ordering::Release);
    }

    /// The number of a file for an epoch that is about to be written. By who has the turn.
    pub fn begin_epoch(&self) -> u64 {
        self.remove_unfinished();
        let number = self.number();
        self.page().unfinished.store(number, Ordering::Release);
        number
    }

    /// By who has the turn, or is alone.
    pub(super) fn remove_unfinished(&self) {
        let page = self.page();
        let number = page.unfinished.load(Ordering::Acquire);
        let travels = self.state() & TRAVELS != 0 && page.epoch.load(Ordering::Acquire) == number;
        if number != 0 && !travels {
            let removed = rustix::fs::unlinkat(CWD, &*self.epoch_path(number), AtFlags::empty());
            if matches!(removed, Err(Errno::ACCESS | Errno::PERM)) {
                return; // tried again at the next epoch and at the last close: the process may have its rights again then
            }
        }
        page.unfinished.store(0, Ordering::Release);
    }

    /// Nothing travels any more. By who has the turn.
    pub fn forget_epoch(&self) {
        if self.state() & TRAVELS != 0 {
            let page = self.page();
            page.unfinished.store(page.epoch.load(Ordering::Acquire), Ordering::Release);
            self.change(TRAVELS, 0);
            page.kept.store(0, Ordering::Release);
            self.remove_unfinished();
        }
    }
}
