//! Set-user-id and set-group-id bits, and capabilities of a file: the kernel removes them when the program writes.
//! The library's writes come later, or through a map, or not as the program's; so the kernel is asked to remove them
//! before.

use crate::error::Result;
use crate::file::atomic::{AtomicFile, PLAIN};
use crate::file::descriptors::set_id::{drop_by_allocation, has_privileges, has_set_id};
use crate::file::session::Session;
use crate::index::follow_up;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

impl AtomicFile {
    /// The program has given the file such bits: its next write removes them.
    pub fn bits_were_set(&self) {
        let note =
            |session: &Session| session.arena.shared().follow_up.fetch_or(follow_up::PRIVILEGES, Ordering::Release);
        let is_elsewhere = || self.state.load(Ordering::Acquire) == PLAIN && self.ownership.is_disturbed();
        if self.with_session(note).is_none() && is_elsewhere() && self.fds.has_writable() {
            // Another process has the session, or none at this moment.
            let _ = self.writing(|session| Ok(_ = note(session)), || Ok(()));
        }
    }

    /// Before the process loses its permissions: without them it could not write to the file and keep these bits,
    /// which the program may have set after its write. So the session ends, which is a commit.
    pub(crate) fn checkpoint_with_bits(&self) {
        if self.with_session(|_| ()).is_some() && self.fds.with(false, has_set_id).unwrap_or(false) {
            let _ = self.checkpoint(); // if this fails, the next call reports it
        }
    }

    /// A session that begins with earlier writes: the bits may have been set since, and only the next write removes
    /// them.
    pub(in crate::file) fn keep_bits_until_write(&self, session: &Session) {
        if self.fds.with(false, has_privileges).unwrap_or(true) {
            session.arena.shared().follow_up.fetch_or(follow_up::PRIVILEGES, Ordering::Release);
        }
    }

    /// A write through `fd` was refused after the point at which the kernel removes such bits.
    #[cold]
    pub fn drop_privileges_of_refused_write(&self, fd: BorrowedFd<'_>) {
        if has_set_id(fd).unwrap_or(false) {
            // The write fails in any case.
            let _ = self.preallocate(0, || {
                drop_by_allocation(fd);
                Ok(())
            });
        }
    }

    /// Before a change of the file's bytes.
    pub(in crate::file) fn drop_privileges(&self) -> Result<()> {
        let are_to_go = |session: &Session| {
            session.arena.shared().follow_up.fetch_and(!follow_up::PRIVILEGES, Ordering::AcqRel) & follow_up::PRIVILEGES
                != 0
        };
        if self.with_session(are_to_go) != Some(true) {
            return Ok(());
        }
        self.preallocate(0, || {
            self.fds.with(true, |fd| {
                drop_by_allocation(fd);
                Ok(())
            })
        })
    }
}
