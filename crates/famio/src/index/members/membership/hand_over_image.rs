//! The file with the hand-over image: an open epoch in `/dev/shm`, under a number of its own. The page records the
//! number before and after each step, so that a kill leaves no file that is unknown.

use super::{HAS_IMAGE, Membership};
use core::sync::atomic::Ordering;
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

/// What kind of hand-over image it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ImageKind {
    /// It is kept even if all processes are killed.
    pub is_kept: bool,
    /// It has all uncommitted bytes, whichever process wrote them.
    pub is_whole: bool,
}

impl Membership {
    /// The path of the hand-over image, if there is one.
    pub fn epoch(&self) -> Option<String> {
        (self.state() & HAS_IMAGE != 0).then(|| self.epoch_path(self.page().epoch.load(Ordering::Acquire)))
    }

    /// The path of the hand-over image with that number.
    pub fn epoch_path(&self, number: u64) -> String {
        self.path(number, "epoch")
    }

    /// The complete file with that number is the hand-over image from now on. Only the owner calls it.
    pub fn set_epoch(&self, number: u64, sort: ImageKind) {
        let page = self.page();
        if sort.is_kept && page.kept.load(Ordering::Acquire) == 0 {
            page.kept.store(number, Ordering::Release);
        }
        page.whole.store(if sort.is_whole { number } else { 0 }, Ordering::Release);
        let old = page.epoch.swap(number, Ordering::AcqRel);
        if self.state() & HAS_IMAGE != 0 {
            page.unfinished.store(old, Ordering::Release);
        }
        self.change(HAS_IMAGE, HAS_IMAGE);
        self.remove_unfinished();
    }

    /// Whether the hand-over image is kept whichever process dies.
    pub fn has_kept_epoch(&self) -> bool {
        let (kept, number) = (self.page().kept.load(Ordering::Acquire), self.page().epoch.load(Ordering::Acquire));
        self.state() & HAS_IMAGE != 0 && kept != 0 && number >= kept
    }

    /// Whether the hand-over image has all uncommitted bytes: then a commit of a process that has died since does not
    /// end it.
    pub fn has_whole_epoch(&self) -> bool {
        let page = self.page();
        self.state() & HAS_IMAGE != 0 && page.whole.load(Ordering::Acquire) == page.epoch.load(Ordering::Acquire)
    }

    /// A session is about to begin and takes the hand-over image up: its commit ends the image.
    pub fn begin_session(&self) {
        self.page().whole.store(0, Ordering::Release);
        self.set_session(true);
    }

    /// All processes were killed. An image that is to be kept stays, unless it went with the machine.
    pub(super) fn keep_or_forget_epoch(&self) {
        let is_there = || self.epoch().is_some_and(|path| rustix::fs::lstat(path).is_ok());
        if !(self.has_kept_epoch() && is_there()) {
            self.forget_epoch();
            self.page().kept.store(0, Ordering::Release); // of an image that was about to be written
        }
    }

    /// Whether a process that could store through maps was killed together with all others, so that its stores are
    /// lost.
    pub fn has_lost_stores(&self) -> bool {
        self.page().lost_stores.load(Ordering::Acquire) != 0
    }

    /// The loss was dealt with. Only the owner calls it.
    pub fn forget_lost_stores(&self) {
        self.page().lost_stores.store(0, Ordering::Release);
    }

    /// The number of a file for an image that is about to be written. Only the owner calls it.
    pub fn begin_epoch(&self) -> u64 {
        self.remove_unfinished();
        let number = self.number();
        self.page().unfinished.store(number, Ordering::Release);
        number
    }

    /// Only called by the owner, or by the only member.
    pub(super) fn remove_unfinished(&self) {
        let page = self.page();
        let number = page.unfinished.load(Ordering::Acquire);
        let has_hand_over_image = self.state() & HAS_IMAGE != 0 && page.epoch.load(Ordering::Acquire) == number;
        if number != 0 && !has_hand_over_image {
            let removed = rustix::fs::unlinkat(CWD, &*self.epoch_path(number), AtFlags::empty());
            if matches!(removed, Err(Errno::ACCESS | Errno::PERM)) {
                return; // tried again at the next image and at the last close: the process may have its rights again then
            }
        }
        page.unfinished.store(0, Ordering::Release);
    }

    /// Removes the hand-over image. Only the owner calls it.
    pub fn forget_epoch(&self) {
        if self.state() & HAS_IMAGE != 0 {
            let page = self.page();
            page.unfinished.store(page.epoch.load(Ordering::Acquire), Ordering::Release);
            self.change(HAS_IMAGE, 0);
            page.kept.store(0, Ordering::Release);
            self.remove_unfinished();
        }
    }
}
