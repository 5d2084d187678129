//! Discards the open epoch: the file goes back to the last commit, by the same recovery as after a crash.

use crate::error::{Error, Result};
use crate::file::atomic::disowned;
use crate::file::atomic::{ATTACHED, AtomicFile, DEMOTED, DISOWNED, Inner, PLAIN};
use crate::file::session::{OldSession, Session};
use crate::file::shadow;
use crate::index::{Images, OwnerLock};
use core::sync::atomic::Ordering;

/// Sessions that may go to another process just after this one has acquired them.
const TRIES: u32 = 1000;

impl AtomicFile {
    /// Discards what was written to the file since its last SYNC and not committed by a transaction: the file has the
    /// bytes and the size of that SYNC again. Waits for commits under way first.
    ///
    /// # Errors
    /// `EBUSY`: another process has written in the open epoch and relies on it; or the file is mapped; or it belongs
    /// to the parent of this forked child. `EBADF`: it is open for reading only. `EOPNOTSUPP`: it is the kernel's.
    /// `EIO`: the journal cannot be recovered; the next call that opens or changes the file tries again.
    pub fn rollback(&self) -> Result<()> {
        Self::may_lock()?;
        let _discarding = self.commits.discard()?;
        for _ in 0..TRIES {
            match self.state.load(Ordering::Acquire) {
                DISOWNED => return Err(disowned()),
                DEMOTED => return Err(self.without_transactions()),
                _ => {}
            }
            if !self.fds.has_writable() {
                return Err(Error::with(libc::EBADF, "it was opened for reading"));
            }
            if shadow::is_mapped(self.key()) || self.ownership.membership.shadow().is_some() {
                return Err(Error::with(
                    libc::EBUSY,
                    "it is mapped, and its maps would keep what is discarded: unmap it first",
                ));
            }
            self.take_stores()?; // of maps that are gone
            if self.state.load(Ordering::Acquire) == PLAIN {
                self.look()?;
                if !self.ownership.is_disturbed() {
                    return Ok(()); // nothing is open
                }
            }
            // Owned by this process from now on, with everything that is open.
            match self.session_for_write() {
                Err(refusal) if refusal.is_session_ended() => continue,
                attached => attached.map(drop)?,
            }
            let _changing = self.shadow.lock();
            let mut inner = self.inner();
            if self.state.load(Ordering::Acquire) == ATTACHED {
                return self.discard_epoch(&mut inner);
            }
        }
        Err(self.in_use())
    }

    fn discard_epoch(&self, inner: &mut Inner) -> Result<()> {
        let Some(session) = &inner.session else { return Ok(()) };
        if self.ownership.has_epoch_of_others(session)? {
            let what =
                "another process has written to it since its last SYNC, and would lose that: it has to SYNC first";
            return Err(Error::with(libc::EBUSY, what));
        }
        self.lease.rest();
        session.close_to_others();
        let abandoned = session.abandon_epoch(&self.fds);
        if !matches!(abandoned, Ok(true)) {
            session.open_to_others();
            self.lease.begin(session);
            return abandoned.map(drop);
        }
        self.lease_ends(true);
        self.plain.forget_size();
        self.session.store(core::ptr::null_mut(), Ordering::SeqCst);
        let ended = inner.session.take();
        self.state.store(PLAIN, Ordering::Release);
        inner.old.extend(ended.map(OldSession::new));
        let Some(owner_lock) = inner.owner_lock.as_mut() else { return Err(Error::new(libc::EIO)) };
        let recovered = self.recover(owner_lock, true);
        inner.arena = None; // the recovery has taken its name: the next session makes a new one
        self.shadow_is_stale();
        self.ownership.nothing_is_open();
        if recovered.is_err() {
            // The next process with the owner lock first recovers the file.
            self.give_up(inner, OwnerLock::leave);
            return recovered;
        }
        inner.old.retain_mut(|old| !old.is_unused());
        self.ownership.membership.set_session(false);
        self.ownership.membership.note_end();
        Ok(())
    }
}

impl Session {
    /// Ends the session with its epoch open, for a recovery. False: nothing was open, and it goes on.
    fn abandon_epoch(&self, fds: &crate::file::Descriptors) -> Result<bool> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let _closed = self.close_gate(fds)?;
        self.check(cx)?;
        if shared.dirty.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        // If this process is killed in here, the epoch is not kept, either.
        shared.keeps.store(0, Ordering::Release);
        if !self.engine.finds_journal_now(cx) {
            self.make_journal_anew(cx)?;
        }
        self.abandon();
        shared.closed.store(1, Ordering::Release);
        Ok(true)
    }

    /// Whether the open epoch has before-images of a writer that satisfies `is`.
    pub(in crate::file) fn has_images(&self, is: impl Fn(crate::index::Writer) -> bool) -> Result<bool> {
        if self.arena.shared().dirty.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        let all = Images::of(&self.arena).ranges(self.arena.shared().committed() + 1)?;
        Ok(all.iter().any(|(_, writer)| is(*writer)))
    }
}
