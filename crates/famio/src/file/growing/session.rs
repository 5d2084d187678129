//! A growing file gets a session: the kernel's file goes back to the committed state, and the open epoch moves into
//! the session. No other process has the file open meanwhile, and threads of this process look again.

use crate::error::{Error, Result};
use crate::file::atomic::{ATTACHED, AtomicFile, DEMOTED, GROWING, Inner, PLAIN};
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::engine::home::preallocate_again;
use crate::file::growing::tail::{Bytes, Tail};
use crate::file::lease;
use crate::file::session::Session;
use crate::file::state::growing_state::{ReleasedLock, SUSPECT, State};
use crate::index::Membership;
use crate::journal::{Marked, mark};
use crate::recovery::end_growing;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

/// While it exists, a `stat` in another process waits for the session of the file that grew.
pub(in crate::file) struct Announced<'a>(&'a Membership);

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.0.set_grows_no_more(false);
    }
}

impl AtomicFile {
    /// Before [`stop_growing`](Self::stop_growing), which cuts the kernel's file to its committed size. Without this,
    /// processes that do not open the file, and so do not wait for its lease, would take that for its size.
    pub(in crate::file) fn announce_end_of_growth(&self) -> Option<Announced<'_>> {
        let is_marked = || self.growing.state.lock().as_ref().is_some_and(|state| state.is_marked());
        if self.state.load(Ordering::Acquire) != GROWING || !is_marked() {
            return None;
        }
        let membership = &self.ownership.membership;
        if !membership.is_attached() {
            // If this fails, so does the session, which reports it.
            self.check_session_can_begin().and_then(|()| self.attach_to_control_file()).ok()?;
        }
        membership.set_grows_no_more(true);
        Some(Announced(membership))
    }

    /// Prepares a growing file for a session: takes it back to the committed state. The lease stays until
    /// [`tail_is_taken`](Self::tail_is_taken). `None`: the file does not grow.
    ///
    /// # Errors
    /// It goes on growing. `EIO`: or it takes no more changes.
    pub(in crate::file) fn stop_growing(&self, _inner: &mut Inner) -> Result<Option<Tail<'_>>> {
        if self.state.load(Ordering::Acquire) != GROWING {
            return Ok(None);
        }
        let mut growing = self.growing.state.lock();
        let Some(state) = growing.as_mut() else { return Ok(None) };
        let moving = self.growing.moving();
        let take_back = |fd: BorrowedFd<'_>| {
            self.check_lease_was_kept(fd, state)?;
            let to = rustix::fs::fstat(fd)?.st_size as u64;
            if !state.is_marked() {
                return Ok((to, to, Bytes::InMemory(Vec::new()))); // the kernel's until now: its bytes count as found
            }
            let from = state.committed();
            let bytes = Bytes::of(fd, from, to.max(from))?;
            state.apply_again(fd)?;
            if state.mark.is_found && from > 0 || !state.mark.overwrites.is_empty() {
                state.flush_if_power(fd)?; // the mark is to say that these bytes are durable
            }
            end_growing(fd, &state.mark, (from, to), state.durability(), state.medium)
                // Otherwise a file system with a journal does not free the cut part yet.
                .and_then(|()| if to > from { state.flush_if_power(fd) } else { Ok(()) })
                .map_err(|e| state.grow_again(fd, &bytes, (from, to.max(from)), e))?;
            if to > from {
                preallocate_again(fd, from, state.preallocated);
            }
            Ok((from, to.max(from), bytes))
        };
        let moved = keeping_bits(&self.fds, || self.fds.with(true, take_back));
        let (from, to, bytes) = moved.map_err(|e| self.named(e))?;
        let Some(state) = growing.take() else { return Ok(None) };
        self.growing.is_overwritten.store(false, Ordering::Relaxed);
        self.state.store(PLAIN, Ordering::SeqCst);
        self.plain.forget_size();
        let is_taken = from == to && state.overwrites.is_empty();
        Ok(Some(Tail { from, to, bytes, state, is_taken, _moving: moving }))
    }

    /// Checks the mark: if the process was stopped for so long that the kernel took its lease away, another process may
    /// have recovered the file.
    pub(super) fn check_lease_was_kept(&self, fd: BorrowedFd<'_>, state: &mut State) -> Result<()> {
        let is_ours = match mark::get_any(fd)? {
            Some(Marked::Growing(mark)) => mark.identity == state.mark.identity,
            Some(_) => false,
            None => !state.is_marked(),
        };
        if is_ours && !state.is_suspect {
            return Ok(());
        }
        state.is_suspect = true;
        self.growing.is_shared.fetch_or(!is_ours, Ordering::Release);
        let what = if is_ours {
            SUSPECT
        } else {
            "its mark is gone: this process was stopped for so long that another process has recovered the file to its last SYNC, or the mark was removed; close the file, and open it again"
        };
        Err(Error::with(libc::EIO, what))
    }

    /// The session, which no other thread knows yet, takes up the open epoch.
    pub(in crate::file) fn take_up_tail(&self, tail: &mut Option<Tail<'_>>, session: &Session) -> Result<()> {
        let Some(tail) = tail.as_mut() else { return Ok(()) };
        session.home.preallocate_to(tail.state.preallocated);
        if tail.is_taken {
            return Ok(());
        }
        let doing = crate::file::base::doing::doing();
        let put = |offset: u64, piece: &[u8]| self.put_all(session, offset, piece);
        let is_longer = tail.to > tail.from;
        let grown = if is_longer { session.set_size(&self.fds, tail.to).map_err(Error::from) } else { Ok(()) };
        let taken = grown
            .and_then(|()| tail.bytes.each(tail.from, tail.to, put))
            .and_then(|()| tail.state.overwrites.each(put));
        drop(doing);
        taken?;
        tail.is_taken = true;
        if tail.state.released_lock != ReleasedLock::No {
            self.release_writes_of(session, tail.state.released_lock == ReleasedLock::Before);
        }
        self.show_in_shadow(session)
    }

    /// Demotes the file instead of beginning a session. The open epoch goes back into it first: reads and writes of a
    /// demoted file take no lock.
    ///
    /// # Errors
    /// It could not be put back; the file is as it was.
    pub(in crate::file) fn demote_with_tail(&self, tail: &mut Option<Tail<'_>>) -> Result<()> {
        if let Some(tail) = tail.as_mut().filter(|tail| !tail.is_taken) {
            self.fds.with(true, |fd| tail.put_back(fd).and_then(|()| tail.state.put_overwrites(fd)))?;
            tail.is_taken = true;
        }
        self.state.store(DEMOTED, Ordering::SeqCst);
        Ok(())
    }

    /// To be called when a session has taken up the open epoch. If there is no session, puts the epoch back into the
    /// file. Other processes may open the file from here on.
    ///
    /// # Errors
    /// `EIO`: it could not be put back and is lost; the committed state is there.
    pub(in crate::file) fn tail_is_taken(&self, tail: Option<Tail<'_>>) -> Result<()> {
        let Some(mut tail) = tail else { return Ok(()) };
        let state = self.state.load(Ordering::Acquire);
        let put_back = self.fds.with(true, |fd| {
            if tail.is_taken {
                return Ok(());
            }
            if state == PLAIN {
                tail.state.mark = tail.state.mark.of_size_with_room(tail.from);
                tail.state.mark_again(fd)?;
            } else {
                tail.state.put_overwrites(fd)?; // otherwise they stay in memory
            }
            tail.put_back(fd)
        });
        debug_assert!([PLAIN, ATTACHED, DEMOTED].contains(&state));
        if state == PLAIN && !tail.is_taken {
            let Tail { mut state, from, .. } = tail;
            let put_back = put_back.or_else(|e| self.fds.with(true, |fd| Err(state.lost(fd, from, e))));
            // Without the mark, nothing would tell whether another process has changed it.
            let has_mark = put_back.is_err() && self.fds.with(true, |fd| state.has_mark_on(fd)).unwrap_or(false);
            let mut growing = self.growing.state.lock();
            self.growing.show_overwrites_of(&state);
            *growing = Some(state);
            drop(growing);
            self.state.store(GROWING, Ordering::SeqCst);
            if put_back.is_err() {
                self.growing.is_shared.store(has_mark, Ordering::Release);
                let _ = self.give_up_growing_lease(None); // fails only if the lease is gone already
            }
            return put_back.map_err(|e| self.named(e));
        }
        let _ = self.give_up_growing_lease(None); // fails only if the lease is gone already
        lease::Watched::end();
        put_back.map_err(|e| self.named(e))
    }

    /// A growing file gets a session now, before other processes share it; a file that was left to the kernel until
    /// now needs none. If it cannot have one (on a full disk), it is demoted, so that no process waits for its lease.
    ///
    /// # Errors
    /// Those of a session's beginning; the file takes no more changes then.
    pub(in crate::file) fn grow_no_more(&self) -> Result<()> {
        if self.state.load(Ordering::Acquire) != GROWING || self.leave_unmarked()? {
            return Ok(());
        }
        let Err(error) = self.session_for_write().map_err(Error::from) else { return Ok(()) };
        if self.state.load(Ordering::Acquire) != GROWING {
            return Err(error);
        }
        if self.leave_growing(&error) {
            return Ok(());
        }
        // It takes no more changes, and others may use it. The next open takes it back to its last SYNC.
        if let Some(state) = self.growing.state.lock().as_mut() {
            state.is_suspect = true;
            self.growing.is_shared.store(true, Ordering::Release);
            let _ = self.give_up_growing_lease(None); // fails only if the lease is gone already
        }
        Err(error)
    }
}
