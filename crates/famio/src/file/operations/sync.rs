//! SYNC.

use super::transfer::ENDINGS;
use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, DEMOTED, DISOWNED, GROWING, PLAIN, disowned};
use crate::file::base::refusal::Refusal;
use crate::file::base::waiting::waiting_for_room;
use crate::file::state::burst::Ended;
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;

impl AtomicFile {
    /// After a change: a SYNC, if each call on the file is to be atomic.
    pub fn sync_if_write_atomic(&self) -> Result<()> {
        if self.is_write_atomic() { self.sync() } else { Ok(()) }
    }

    /// SYNC: everything written before the call is durable when it returns, as a whole.
    ///
    /// # Errors
    /// `EIO`: the flush failed, and no more writes are taken. After recovery, all of the epoch is there or none.
    pub fn sync(&self) -> Result<()> {
        self.sync_unless(|| false)
    }

    /// As [`sync`](Self::sync). `is_done` is asked while no thread writes, whether everything written before is
    /// durable by then.
    #[inline]
    pub(in crate::file) fn sync_unless(&self, is_done: impl Fn() -> bool + Copy) -> Result<()> {
        // Stores through maps may have found no room.
        if let Some(group) = self.settings.group {
            return waiting_for_room(|| self.sync_group(group, is_done));
        }
        let synced = waiting_for_room(|| self.sync_all(is_done));
        if synced.is_ok() {
            self.trim_maps();
        }
        if self.is_wanted.load(Ordering::Relaxed) {
            self.leave_if_wanted(Ended::Sync);
        }
        synced
    }

    /// As [`sync`](Self::sync), of a file that belongs to no group; if other processes use the file, too, this one
    /// owns the session afterwards.
    pub(in crate::file) fn sync_all(&self, is_done: impl Fn() -> bool + Copy) -> Result<()> {
        if self.state.load(Ordering::Acquire) == PLAIN {
            self.look()?;
            self.join_shadow()?; // others may have stored there
        }
        if holds(Rule::StoresBeforeCommit) {
            self.take_stores()?;
        }
        for _ in 0..ENDINGS {
            self.roll_back_dead()?;
            match self.state.load(Ordering::Acquire) {
                DISOWNED => return Err(disowned()),
                // There is a hand-over image, or another session: this process has to commit it, whichever process
                // wrote it.
                PLAIN if self.ownership.is_disturbed() && self.fds.has_writable() => match self.session_for_write() {
                    Err(refusal) if refusal.is_session_ended() => {}
                    attached => attached.map(drop)?,
                },
                GROWING => match self.sync_growing() {
                    Some(synced) => return synced,
                    None => self.grow_no_more()?,
                },
                PLAIN | DEMOTED => return self.fds.with(false, |fd| Ok(rustix::fs::fdatasync(fd)?)),
                _ => {
                    Self::may_lock()?;
                    if let Some(synced) = self.sync_session(is_done) {
                        return synced;
                    }
                }
            }
            rustix::thread::sched_yield();
        }
        Err(Error::with(libc::EIO, "its journal ends and begins too often to be committed"))
    }

    /// SYNC of the session. `None`: there is none, or it has ended meanwhile: committed, or not.
    #[inline]
    fn sync_session(&self, is_done: impl Fn() -> bool) -> Option<Result<()>> {
        let session = self.session()?;
        if self.has_dead_changes() {
            return None; // the background has just taken the session over, to end it
        }
        if self.ownership.membership.is_read_along() {
            session.may_be_exclusive.store(false, Ordering::Relaxed);
        }
        let synced = session.sync(&self.fds, is_done, || self.ownership.committed(session.arena.shared()));
        if synced.as_ref().is_err_and(Refusal::is_session_ended) {
            return None;
        }
        if self.lease.is_due(&session) {
            self.lease.ask(&session);
        }
        if synced.is_ok() && session.take_was_lost() {
            drop(session);
            self.try_replace_nameless_control_file();
        }
        Some(synced.map_err(|refusal| self.named(refusal.into())))
    }
}
