//! The file in which an open epoch travels: in `/dev/shm`, with a number of its own. Who is killed between two steps
//! leaves none behind that nobody knows of.

use super::{Door, TRAVELS};
use core::sync::atomic::Ordering;
use rustix::fs::{AtFlags, CWD};

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
    pub fn set_epoch(&self, number: u64) {
        let page = self.page();
        let old = page.epoch.swap(number, Ordering::AcqRel);
        if self.state() & TRAVELS != 0 {
            page.unfinished.store(old, Ordering::Release);
        }
        self.change(TRAVELS, true);
        self.remove_unfinished();
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
            let _ = rustix::fs::unlinkat(CWD, &*self.epoch_path(number), AtFlags::empty());
        }
        page.unfinished.store(0, Ordering::Release);
    }

    /// Nothing travels any more. By who has the turn.
    pub fn forget_epoch(&self) {
        if self.state() & TRAVELS != 0 {
            let page = self.page();
            page.unfinished.store(page.epoch.load(Ordering::Acquire), Ordering::Release);
            self.change(TRAVELS, false);
            self.remove_unfinished();
        }
    }
}
