//! The write lease of an attached file (`F_SETLEASE`): while only this process has the file open, an outsider's
//! `open` waits in the kernel until the file shows the last committed state. Alternate writing needs that. Locks on
//! the file can be kept in memory meanwhile (`file::locks`).
//!
//! Locks: `state` comes before the gate. The lease thread needs the registry, `state`, the gate and what is below it;
//! no thread holds any of these while it opens a file of the program's, since the kernel may make it wait for the
//! lease thread.

mod growing;
mod kernel;
mod thread;

pub(super) use growing::Watched;
pub(super) use kernel::{give_up, is_broken};
pub(super) use thread::work;

use super::AtomicFile;
use super::atomic::GROWING;
use super::session::Session;
use crate::error::{Error, Result};
use crate::file::state::lease_state::{Lease, NEVER, State, now};
use crate::index::lease::{EXPOSED, HELD, NONE};
use crate::settings::PolicyChoice;
use crate::sys::users::may_come_back;
use core::sync::atomic::Ordering;
use kernel::Taken;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

impl Lease {
    /// Releases the lease: from here on other processes see the file.
    fn unlock(&self, file: &AtomicFile, state: &mut State) {
        let Some(fd) = state.fd.take() else { return };
        file.move_locks_to_kernel(|joined| {
            self.held.store(false, Ordering::Release);
            // SAFETY: the program's descriptor, which was in use here; if it was closed unseen, the kernel refuses
            // it, or it is another file's, which is checked.
            let fd = joined.unwrap_or(unsafe { BorrowedFd::borrow_raw(fd) });
            if crate::sys::identity(fd).is_ok_and(|identity| identity == file.key()) {
                kernel::give_up(fd);
            }
        });
    }

    /// Tries to take the lease if the session can use it. Breaks are signalled to the thread `tid`.
    fn try_to_take(&self, file: &AtomicFile, state: &mut State, tid: i32) {
        if !state.wanted || state.fd.is_some() {
            return;
        }
        file.with_session(|session| {
            state.tried = now();
            // A descriptor that was cloned unseen has the same description, to which the kernel would not object.
            if file.ownership.membership.has_others() {
                state.failures += 1;
                return self.later(state, Some(session));
            }
            match file.take_lease(tid) {
                Ok((Taken::Yes, fd)) => {
                    (state.fd, state.failures) = (Some(fd), 0);
                    self.held.store(true, Ordering::Release);
                    if state.exposes {
                        session.arena.shared().lease.store(HELD, Ordering::Release);
                    }
                    file.lease_covers_locks();
                }
                Ok((Taken::Later, _)) => {
                    state.failures += 1;
                    self.later(state, Some(session));
                }
                Ok((Taken::Never, _)) => state.wanted = false,
                Err(_) => {}
            }
        });
    }

    /// Shows the committed state, then releases the lease: for a waiting outsider, or before one can come.
    pub(in crate::file) fn give_up(&self, file: &AtomicFile, state: &mut State) {
        if let Some(fd) = state.fd {
            // SAFETY: as in `unlock`.
            let broken = kernel::is_broken(unsafe { BorrowedFd::borrow_raw(fd) });
            let next = if broken { EXPOSED } else { NONE };
            file.with_session(|session| {
                if state.exposes {
                    // What could not be shown stays as under redo: older in the file, newer in the journal.
                    let _ = session.expose(&file.fds, next);
                }
                self.unlock(file, state);
                (state.failures, state.tried) = (1, now());
                self.later(state, Some(session));
            });
            self.unlock(file, state);
        }
    }
}

impl AtomicFile {
    /// The lease thread's look at the file: takes the lease if asked, releases it if a process waits. Returns whether
    /// the file has it now.
    pub(super) fn serve_lease(&self, tid: i32) -> bool {
        let lease = &self.lease;
        if self.state.load(Ordering::Acquire) == GROWING {
            if self.fds.with(true, |fd| Ok(kernel::is_broken(fd))).unwrap_or(false) {
                let _ = self.grow_no_more(); // the lease is released even if this fails
            }
            return self.state.load(Ordering::Acquire) == GROWING;
        }
        let mut state = lease.state();
        if self.is_disowned() {
            return false;
        }
        // As one user it might not be allowed to release what it took as another.
        state.wanted &= !state.asked || !may_come_back();
        if core::mem::take(&mut state.asked) {
            lease.try_to_take(self, &mut state, tid);
        }
        // SAFETY: as in `unlock`.
        if state.fd.is_some_and(|fd| kernel::is_broken(unsafe { BorrowedFd::borrow_raw(fd) })) {
            lease.give_up(self, &mut state);
        }
        state.fd.is_some()
    }

    /// Takes the lease from the kernel; returns the outcome and the descriptor. The program's descriptions are joined
    /// for that.
    fn take_lease(&self, tid: i32) -> Result<(Taken, RawFd)> {
        let take = || self.fds.with(true, |fd| Ok((kernel::take(fd, tid), fd.as_raw_fd())));
        if !self.fds.are_several() {
            return take();
        }
        let mut taken = Ok((Taken::Later, -1));
        self.join_for_lease(|| {
            taken = take();
            matches!(taken, Ok((Taken::Yes, _)))
        });
        taken
    }

    /// A lock was released in the kernel; the process's own locks had prevented the lease.
    #[cold]
    pub(super) fn try_lease_at_unlock(&self) {
        // Otherwise a thread is at it.
        let Some(mut state) = self.lease.state.try_lock() else { return };
        let is_due = state.wanted && state.fd.is_none() && !state.resting && !may_come_back();
        if is_due && let Some(watcher) = Watched::begin() {
            let left = self.locks.tries_left();
            self.lease.try_to_take(self, &mut state, watcher.thread());
            self.locks.try_no_more_than(left);
            if state.fd.is_some() && !watcher.tells() {
                self.lease.give_up(self, &mut state);
            }
        }
    }

    /// Whether an outsider's `open` would wait until the file shows the last committed state.
    pub fn has_lease(&self) -> bool {
        self.with_session(|session| session.arena.shared().lease.load(Ordering::Acquire) == HELD).unwrap_or(false)
    }

    /// The present policy of an in-place journal.
    pub fn policy(&self) -> Option<PolicyChoice> {
        let policy = |session: &Session| session.arena.shared().policy.load(Ordering::Relaxed);
        match crate::file::engine::policy::Policy::from_number(self.with_session(policy)?) {
            crate::file::engine::policy::Policy::Undo => Some(PolicyChoice::Undo),
            crate::file::engine::policy::Policy::Redo => Some(PolicyChoice::Redo),
            crate::file::engine::policy::Policy::Alternate => Some(PolicyChoice::Alternate),
        }
    }

    /// For tests: asks for the lease now, if policy and journal can use it. Another thread takes it a moment later.
    /// Without this call it is asked for at a SYNC from time to time.
    #[doc(hidden)]
    pub fn ask_for_lease(&self) {
        let mut state = self.lease.state();
        self.lease.ask_now(&mut state);
    }

    /// Before this process opens the file once more: the file shows the committed state, and the lease is released,
    /// to be tried again later. Does nothing if the lease is not held.
    ///
    /// # Errors
    /// `EDEADLK`: a signal handler interrupted a call on an atomic file.
    pub fn give_up_lease(&self) -> Result<()> {
        if self.state.load(Ordering::Acquire) == GROWING {
            Self::may_wait()?;
            self.grow_no_more()?;
        }
        if !self.lease.held.load(Ordering::Acquire) {
            return Ok(());
        }
        self.give_up_lease_held()
    }

    /// As [`give_up_lease`](Self::give_up_lease); also waits for a thread that is about to take the lease.
    pub(super) fn give_up_lease_held(&self) -> Result<()> {
        Self::may_wait()?;
        if self.state.load(Ordering::Acquire) == GROWING {
            self.grow_no_more()?;
        }
        self.lease.give_up(self, &mut self.lease.state());
        Ok(())
    }

    /// As [`give_up_lease`](Self::give_up_lease), for good: others share the open description (a forked child), or
    /// the program uses leases or owners itself.
    ///
    /// # Errors
    /// As there.
    pub fn bar_lease(&self) -> Result<()> {
        Self::may_wait()?;
        let _ = self.grow_no_more(); // if this fails, the next change reports it
        let mut state = self.lease.state();
        (state.barred, state.wanted) = (true, false);
        self.lease.give_up(self, &mut state);
        self.lease.due.store(NEVER, Ordering::Relaxed);
        Ok(())
    }

    /// The program closes `fd`: a lease held by it is released first, unless another descriptor has the same
    /// description.
    pub(super) fn lease_leaves(&self, fd: RawFd) {
        let mut state = self.lease.state();
        if state.fd == Some(fd) {
            if let Some(other) = self.fds.find(kernel::is_held) {
                state.fd = Some(other);
                return;
            }
            self.lease.give_up(self, &mut state);
            state.failures = 0;
        }
    }

    /// Runs `act` while the lease is held and no process waits for it.
    pub(super) fn under_lease<T>(&self, act: impl FnOnce() -> Option<T>) -> Option<T> {
        let state = self.lease.state();
        // SAFETY: as in `unlock`.
        let is_held = state.fd.is_some_and(|fd| kernel::is_held(unsafe { BorrowedFd::borrow_raw(fd) }));
        if is_held && !state.resting && !state.barred { act() } else { None }
    }

    /// The session has ended, or failed to. `checkpointed`: everything committed is in the file.
    pub(super) fn lease_ends(&self, checkpointed: bool) {
        let mut state = self.lease.state();
        if checkpointed {
            self.with_session(|session| session.arena.shared().lease.store(NONE, Ordering::Release));
            self.lease.unlock(self, &mut state);
        } else {
            self.lease.give_up(self, &mut state);
        }
    }

    pub(super) fn may_wait() -> Result<()> {
        let thread = crate::thread::current();
        if thread.locks_held.get() == 0 && thread.posix_locks.get() == 0 {
            Ok(())
        } else {
            Err(Error::new(libc::EDEADLK))
        }
    }
}

/// Before this process uses a description from another process: ends a lease that the other process may have taken with
/// it, as any `open` does. Then the kernel has that process's locks, and the file has the committed state.
pub(crate) fn end_lease_of_others(fd: BorrowedFd<'_>) {
    if kernel::is_held(fd) {
        let _ = crate::sys::open_again(fd, rustix::fs::OFlags::RDONLY); // without permission to open it the process goes on
    }
}

/// [`AtomicFile::bar_lease`] for every file: before a fork, whose child shares all open descriptions.
pub fn bar_leases() {
    let all: Vec<_> = super::registry::files().values().cloned().collect();
    for file in all {
        // Fails only in a signal handler that interrupted a call on the file: the lease stays then, until an open ends
        // it.
        let _ = file.bar_lease();
    }
}
