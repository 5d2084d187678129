//! The control file may be removed (`rm -r .famio`), or the file may move to another folder: the members move to the
//! control file by which others find the file now, and take along what is not committed.

use crate::error::{Error, Result};
use crate::file::atomic::{ATTACHED, AtomicFile, Inner, PLAIN};
use crate::file::registry::files;
use crate::file::state::hand_over_image::HandOverImage;
use crate::index::{HAS_IMAGE, MOVED, Writer, WriterState};
use crate::journal::control;
use core::sync::atomic::Ordering;

impl AtomicFile {
    /// As [`become_member`](Self::become_member), at the control file by which others find the file now.
    /// Without a session.
    ///
    /// # Errors
    /// Those of `become_member`, and of acquiring ownership. `EIO`: others have written there since, and there are
    /// uncommitted changes here.
    pub(in crate::file) fn follow_control_file(&self, inner: &mut Inner) -> Result<()> {
        let membership = &self.ownership.membership;
        let pool = self.settings.pool.as_deref();
        let Some(here) = membership.control() else { return self.become_member() };
        let is_here = self.fds.with(false, |fd| control::is_found(fd, pool, &here))?;
        if is_here {
            return Ok(());
        }
        // Gives the control file its new name, if it has one: then all members stay together.
        if membership.state() & MOVED == 0 && self.fds.with(false, |fd| control::move_to(fd, pool, &here)).is_ok() {
            return Ok(());
        }
        let carried = if membership.state() & MOVED == 0 { self.pick_up(inner)? } else { HandOverImage::default() };
        self.leave_keeper();
        membership.leave_behind();
        self.release_owner_lock(inner); // waiting members see that all have moved
        if carried.changes.is_empty() {
            return self.become_member();
        }
        self.store_image_at_new_control_file(inner, &carried).map_err(|e| {
            let what = "its control file was removed, and what processes wrote since the last SYNC is lost with it";
            Error::with(libc::EIO, format!("{}: {what} ({e})", self.path.to_string_lossy()))
        })
    }

    /// Acquires ownership, waiting for it, and takes the hand-over image away.
    fn pick_up(&self, inner: &mut Inner) -> Result<HandOverImage> {
        let membership = &self.ownership.membership;
        self.acquire_ownership(inner)?;
        if membership.state() & (MOVED | HAS_IMAGE) != HAS_IMAGE {
            return Ok(HandOverImage::default());
        }
        // If there is no other control file, it stays here.
        self.fds.with(false, |fd| control::find_or_make(fd, self.settings.pool.as_deref()).map(drop))?;
        let mut carried = self.ownership.hand_over_image(&self.fds)?;
        carried.roll_back(|writer| membership.writer_state(writer));
        // Other members have other slots there and have not attached yet, so their changes stay.
        let me = membership.me();
        let is_mine = |writer: Writer| writer == me && membership.writer_state(writer) == WriterState::Open;
        for change in &mut carried.changes {
            change.writer = match change.writer {
                Writer::NOBODY => Writer::NOBODY,
                writer if is_mine(writer) => Writer::CARRIER,
                _ => Writer::EVERYBODY,
            };
        }
        membership.forget_epoch();
        Ok(carried)
    }

    /// Stores what was picked up as hand-over image at the new control file.
    fn store_image_at_new_control_file(&self, inner: &mut Inner, carried: &HandOverImage) -> Result<()> {
        let membership = &self.ownership.membership;
        self.become_member()?;
        self.acquire_ownership(inner)?;
        let sent = if membership.state() & HAS_IMAGE == 0 {
            let (mut there, me) = (carried.clone(), membership.me());
            let mine = there.changes.iter_mut().filter(|change| change.writer == Writer::CARRIER);
            mine.for_each(|change| change.writer = me);
            self.register_for_death_notice(); // for processes that take up the image
            self.ownership.send(&self.fds, &there, false)
        } else {
            Err(Error::with(libc::EIO, "other processes have written since"))
        };
        self.release_owner_lock(inner);
        sent
    }

    /// If the control file has lost its name, no process could attach, not even a child: all members move to a new
    /// one.
    ///
    /// # Errors
    /// Those of a session's end, and of [`follow_control_file`](Self::follow_control_file).
    fn replace_nameless_control_file(&self) -> Result<()> {
        let has_lost_it = || self.ownership.membership.control().is_some_and(|control| !control.has_name());
        if !has_lost_it() || self.ownership.membership.shadow().is_some() {
            return Ok(());
        }
        if self.state.load(Ordering::Acquire) == ATTACHED {
            // What belongs to a group is committed with it, and not carried.
            if self.settings.group.is_some() { self.close_session()? } else { self.end_ownership()? }
        }
        let mut inner = self.inner();
        if self.state.load(Ordering::Acquire) != PLAIN
            || !self.ownership.membership.is_attached()
            || inner.unsent.is_some()
        {
            return Ok(()); // another thread was first
        }
        self.follow_control_file(&mut inner)
    }

    /// After a SYNC that had to make the journal again: other processes have to be able to find this one.
    pub(in crate::file) fn try_replace_nameless_control_file(&self) {
        let _ = self.replace_nameless_control_file(); // the next hand-over tries again, and reports errors
    }
}

/// Before a fork, or before a program is started that may inherit a file: processes that attach have to find this
/// one, even if its control file was removed.
pub(crate) fn replace_nameless_control_files() {
    let all: Vec<_> = files().values().cloned().collect();
    for file in all {
        file.try_replace_nameless_control_file();
    }
}
