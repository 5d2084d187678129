//! When a file was last changed, as its arena knows.

use crate::index::Shared;
use core::sync::atomic::Ordering;

/// When a file was last changed, for `stat`.
#[derive(Clone, Copy, Debug)]
pub struct Modified {
    /// The time.
    pub time: libc::timespec,
    /// The program has set it, and not written since: the inode's own time does not count.
    pub is_set: bool,
}

impl Shared {
    /// `None`: the file was not changed in this session, so the inode has the time.
    pub(crate) fn last_change(&self) -> Option<Modified> {
        let load = |words: &[core::sync::atomic::AtomicU64; 2]| {
            let [seconds, nanos] = words.each_ref().map(|word| word.load(Ordering::Relaxed) as i64);
            libc::timespec { tv_sec: seconds, tv_nsec: nanos }
        };
        let modified = load(&self.modified);
        let after = load(&self.set_after);
        let is_set = (modified.tv_sec, modified.tv_nsec) == (after.tv_sec, after.tv_nsec);
        let time = if is_set { load(&self.set) } else { modified };
        (modified.tv_sec != 0).then_some(Modified { time, is_set })
    }

    /// A writer leaves that may have changed the file by system calls, which stamp it precisely.
    pub(in crate::file) fn leave_now(&self) {
        self.leave_beside_set(crate::sys::precise_now());
    }

    /// The same where there were no system calls, but page faults of its stores.
    #[inline]
    pub(in crate::file) fn leave_coarsely(&self) {
        self.leave_beside_set(crate::sys::coarse_now());
    }

    /// The file may have the time that the program has set, also one in the future.
    #[inline]
    fn leave_beside_set(&self, now: libc::timespec) {
        let set = self.last_change().filter(|modified| modified.is_set);
        self.leave_at(set.map_or(now, |modified| later(modified.time, now)));
    }

    pub(in crate::file) fn set_last_change(&self, time: libc::timespec) {
        let store = |words: &[core::sync::atomic::AtomicU64; 2], time: libc::timespec| {
            words[0].store(time.tv_sec as u64, Ordering::Relaxed);
            words[1].store(time.tv_nsec as u64, Ordering::Relaxed);
        };
        let [seconds, nanos] = self.modified.each_ref().map(|word| word.load(Ordering::Relaxed) as i64);
        // Off by a nanosecond: a write in the same tick of the clock counts as later.
        let aside = libc::timespec { tv_sec: seconds, tv_nsec: nanos ^ 1 };
        store(&self.set, time);
        store(&self.set_after, aside);
        store(&self.modified, aside);
        self.leave_at(later(time, crate::sys::coarse_now()));
    }
}

fn later(one: libc::timespec, other: libc::timespec) -> libc::timespec {
    if (one.tv_sec, one.tv_nsec) > (other.tv_sec, other.tv_nsec) { one } else { other }
}
