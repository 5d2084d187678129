//! The open epoch becomes a hand-over image; or it stays in this process's memory, if there was no room for one or no
//! descriptor.

use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, Inner};
use crate::file::state::hand_over_image::{Change, HandOverImage, OpenChanges};
use crate::index::{OwnerLock, Writer, WriterState};
use crate::settings::OnKill;
use crate::sys::read_at;

impl AtomicFile {
    /// The file goes back to the last commit, and the rest becomes a hand-over image.
    ///
    /// # Errors
    /// As of a write to shared memory. May be called again with the same changes.
    pub(super) fn send_off(&self, inner: &mut Inner, open_changes: &OpenChanges) -> Result<()> {
        let Some(owner_lock) = inner.owner_lock.as_mut() else { return Err(Error::new(libc::EIO)) };
        self.register_for_death_notice(); // for processes that take up the image
        let (image, is_whole) = self.image_of(owner_lock, open_changes)?;
        self.ownership.send(&self.fds, &image, is_whole)?;
        if is_whole {
            self.recover(owner_lock, true)?;
        }
        self.ownership.all_own();
        self.ownership.membership.set_session(false);
        Ok(())
    }

    /// The changes as a hand-over image, and whether it is whole: it is written before the file goes back to the last
    /// commit. For one that is not, the file goes back here.
    fn image_of(&self, owner_lock: &mut OwnerLock, open_changes: &OpenChanges) -> Result<(HandOverImage, bool)> {
        if self.settings.on_kill == OnKill::Keep {
            // At no moment are these bytes only in this process's memory.
            return Ok((HandOverImage::kept(open_changes.all()), true));
        }
        if let Some(changes) = &open_changes.by_writer {
            // It has changes of others, too, which are nowhere else.
            return Ok((HandOverImage { changes: changes.clone() }, true));
        }
        let mut image = self.ownership.hand_over_image(&self.fds)?;
        self.recover(owner_lock, true)?;
        self.fds.with(true, |fd| {
            let committed = rustix::fs::fstat(fd)?.st_size as u64;
            image.add(self.writer_of(open_changes), open_changes, committed, |offset, piece| {
                read_at(fd, offset, piece).map(drop)
            })
        })?;
        Ok((image, false))
    }

    /// What the end of an earlier session could not hand over is handed over now, if there is anything.
    ///
    /// # Errors
    /// As of that end; it stays with this process, which stays the owner.
    pub(super) fn send_unsent(&self, inner: &mut Inner) -> Result<()> {
        let Some(open_changes) = inner.unsent.take() else { return Ok(()) };
        let sent = self.send_off(inner, &open_changes);
        if sent.is_err() {
            inner.unsent = Some(open_changes);
        }
        sent
    }

    /// Before a session begins: what could not be handed over is handed over, for the session to take up; or, if that
    /// fails again, and all of it is this process's own, the session takes it up from memory.
    ///
    /// # Errors
    /// As of [`send_unsent`](Self::send_unsent), if it has changes of others: they must not end with this process.
    pub(in crate::file) fn prepare_unsent(&self, inner: &mut Inner) -> Result<()> {
        if inner.unsent.is_none() {
            return Ok(());
        }
        if let Err(e) = self.send_unsent(inner) {
            let (Some(owner_lock), Some(unsent)) = (inner.owner_lock.as_mut(), inner.unsent.as_mut()) else {
                return Err(e);
            };
            let image = self.image_of(owner_lock, unsent)?.0;
            let membership = &self.ownership.membership;
            let may_end_with_it = |&Change { writer, .. }: &Change| {
                [Writer::NOBODY.id, membership.me().id].contains(&writer.id)
                    || membership.writer_state(writer) == WriterState::Dead
            };
            if !image.changes.iter().all(may_end_with_it) {
                return Err(e);
            }
            unsent.by_writer = Some(image.changes);
        }
        self.recover_and_roll_back(inner)?;
        // The new arena would take the place of the old one, which calls may still use.
        inner.arena = None;
        let Some(owner_lock) = &inner.owner_lock else { return Err(Error::new(libc::EIO)) };
        owner_lock.forget_arena();
        Ok(())
    }

    /// What is not committed, while there is no session: what could not be handed over, or else the hand-over image.
    pub(super) fn open_image(&self, inner: &mut Inner) -> Result<HandOverImage> {
        match (inner.owner_lock.as_mut(), &inner.unsent) {
            (Some(owner_lock), Some(unsent)) => {
                let mut image = self.image_of(owner_lock, unsent)?.0;
                image.roll_back(|writer| self.ownership.membership.writer_state(writer));
                Ok(image)
            }
            _ => self.ownership.hand_over_image(&self.fds),
        }
    }
}
