//! A second `open` of a file that is open in this process and has the lease, or grows, need not end that: the program
//! gets a duplicate with a description of its own in the library (`Descriptors::join`).

use crate::file::atomic::{AtomicFile, GROWING};
use crate::file::lease::is_broken;
use crate::file::registry::files;
use core::sync::atomic::Ordering;
use std::os::fd::{BorrowedFd, RawFd};

/// Descriptions that were split may be joined again.
const TRIES: u32 = 3;

impl AtomicFile {
    /// Opens the file once more, for reading and writing, as a duplicate made by `duplicate`. `look` (`O_PATH`) leads
    /// to it by the name by which the program opens it. `None`: the kernel has to open it.
    pub(crate) fn open_twin(
        &self,
        look: BorrowedFd<'_>,
        duplicate: impl FnOnce(BorrowedFd<'_>) -> isize,
    ) -> Option<RawFd> {
        if Self::may_wait().is_err() || self.is_disowned() {
            return None;
        }
        // Held to the end: no thread closes the last descriptor meanwhile.
        let files = files();
        if !files.get(&self.key()).is_some_and(|file| core::ptr::eq(&**file, self)) {
            return None;
        }
        let add = || self.with_locks_in_memory(|| self.fds.add_twin(look, duplicate));
        let growing = self.growing.stay();
        let new = if self.state.load(Ordering::Acquire) == GROWING {
            let is_broken = self.fds.with(true, |fd| Ok(is_broken(fd))).unwrap_or(true);
            if is_broken { None } else { add() }
        } else {
            drop(growing);
            self.under_lease(add)
        };
        if new.is_some() {
            self.ownership.membership.set_writes(true);
            self.say_pending_notice();
        }
        new
    }

    /// Makes a call that duplicates the program's descriptor `old`; its result is a descriptor, or negative.
    pub fn duplicate(&self, old: RawFd, call: impl FnOnce() -> isize) -> isize {
        let mut result = -1;
        self.fds.duplicate(old, || {
            result = call();
            (result >= 0).then_some(result as RawFd)
        });
        result
    }

    /// Runs `act` while the program's descriptors keep their descriptions.
    pub(crate) fn while_numbers_stay<T>(&self, act: impl FnOnce() -> T) -> T {
        self.fds.while_numbers_stay(act)
    }

    /// Runs `act`, which changes the kernel's description, while that is the program's own.
    pub(crate) fn while_apart<T>(&self, act: impl Fn() -> T) -> T {
        for _ in 0..TRIES {
            if let Some(done) = self.fds.while_apart(&act) {
                return done;
            }
            if self.split().is_err() {
                break;
            }
        }
        act()
    }

    /// The program has opened `fd`, if `is_new` just now, and everything that it does with it is seen: it may be joined
    /// with others.
    pub(crate) fn is_opened(&self, fd: RawFd, is_new: bool) {
        self.fds.is_opened(fd, is_new);
    }

    /// In a forked child: `numbers` are one description of its parent's, and get one of the kernel's of their own.
    pub(crate) fn own_in_child(&self, numbers: &[RawFd]) {
        self.fds.own_in_child(numbers);
    }

    /// Whether several descriptions of the program share one of the kernel's.
    #[doc(hidden)]
    pub fn has_twins(&self) -> bool {
        self.fds.are_joined()
    }
}
