//! Changes of an inode's times without changes of its bytes: space that is reserved, and times that the program sets.
//! Both are recorded in the arena, as writes are: recovery takes later changes of the inode for an outsider's.

use super::Descriptors;
use super::atomic::AtomicFile;
use super::session::Session;
use crate::error::{Error, Result};
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

    fn set_last_change(&self, time: libc::timespec) {
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
        let now = crate::sys::coarse_now();
        let later = if (time.tv_sec, time.tv_nsec) > (now.tv_sec, now.tv_nsec) { time } else { now };
        self.leave_at(later);
    }
}

impl Session {
    /// Makes a system call that preallocates space up to `end` and changes times as a write does.
    fn preallocating<T>(&self, fds: &Descriptors, end: u64, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut cx = self.context(fds);
        let _inside = self.go_in(&mut cx)?;
        self.check(cx)?;
        let done = call()?;
        self.touch(cx);
        if end > cx.shared().size() {
            self.home.preallocate_to(end);
        }
        Ok(done)
    }
}

impl AtomicFile {
    /// Makes a system call that preallocates space up to `end`: it changes neither bytes nor size, but times, as a
    /// write does.
    ///
    /// # Errors
    /// Those of the call; as [`set_size`](Self::set_size).
    pub fn preallocate<T>(&self, end: u64, call: impl Fn() -> Result<T>) -> Result<T> {
        Self::may_lock()?;
        if let Some(done) = self.preallocate_growing(end, &call) {
            return done;
        }
        self.writing(|session| session.preallocating(&self.fds, end, &call), &call)
    }

    /// The program has set the file's times: they stay until it writes again.
    pub fn times_were_set(&self, modified: libc::timespec) {
        let told = self.with_session(|session| {
            let mut cx = session.context(&self.fds);
            let inside = session.go_in(&mut cx)?;
            session.check(cx)?;
            cx.shared().set_last_change(modified);
            drop(inside);
            Ok::<(), Error>(())
        });
        self.time_was_set_growing();
        drop(told); // without a session there is no checkpoint to come: the kernel has them
    }

    /// When the file was last changed, if the inode does not have that time yet.
    pub fn modified(&self) -> Option<Modified> {
        self.with_session(|session| session.arena.shared().last_change()).flatten()
    }
}
