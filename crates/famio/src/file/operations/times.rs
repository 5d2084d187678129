//! Changes of an inode's times without changes of its bytes: space that is reserved, and times that the program sets.
//! Both are recorded in the arena, as writes are: recovery takes later changes of the inode for an outsider's.

use crate::error::Result;
use crate::file::Descriptors;
use crate::file::atomic::AtomicFile;
use crate::file::base::modified::Modified;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::session::Session;

impl Session {
    /// Makes a system call that preallocates space up to `end` and changes times as a write does.
    fn preallocating<T>(&self, fds: &Descriptors, end: u64, call: impl FnOnce() -> Result<T>) -> Answer<T> {
        let mut cx = self.context(fds);
        let _inside = self.enter_gate(&mut cx)?;
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
        Ok(self.writing(|session| session.preallocating(&self.fds, end, &call), &call)?)
    }

    /// The program has set the file's times: they stay until it writes again.
    pub fn times_were_set(&self, modified: libc::timespec) {
        let accepted = self.with_session(|session| {
            let mut cx = session.context(&self.fds);
            let inside = session.enter_gate(&mut cx)?;
            session.check(cx)?;
            cx.shared().set_last_change(modified);
            drop(inside);
            Ok::<(), Refusal>(())
        });
        self.time_was_set_growing();
        drop(accepted); // without a session there is no checkpoint to come: the kernel has them
    }

    /// When the file was last changed, if the inode does not have that time yet.
    pub fn modified(&self) -> Option<Modified> {
        self.with_session(|session| session.arena.shared().last_change()).unwrap_or_else(|| self.modified_by_owner())
    }
}
