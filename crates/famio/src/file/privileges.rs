//! Set-user-id and set-group-id bits, and capabilities of a file: the kernel removes them when the program writes.
//! The library's writes come later, or through a map, or not as the program's; so the kernel is asked to remove them
//! before.

use super::Descriptors;
use super::atomic::{AtomicFile, PLAIN};
use super::session::Session;
use crate::error::Result;
use crate::index::also;
use core::sync::atomic::Ordering;
use rustix::fs::{FallocateFlags, Mode, fstat};
use std::os::fd::BorrowedFd;

/// Set-user-id, set-group-id.
const SET_ID: u32 = 0o6000;
const CAPABILITY: &core::ffi::CStr = c"security.capability";

/// Makes the kernel do what it does at a write, if there is something to remove. It knows which process may keep the
/// bits: one with `CAP_FSETID`. Before there is a session.
pub(super) fn drop_before_session(file: BorrowedFd<'_>) -> Result<()> {
    if has_privileges(file)? {
        drop_by_allocation(file);
        if has_set_id(file)? {
            rustix::fs::ftruncate(file, fstat(file)?.st_size as u64)?; // the file system cannot allocate
        }
    }
    Ok(())
}

fn has_set_id(file: BorrowedFd<'_>) -> Result<bool> {
    Ok(fstat(file)?.st_mode & SET_ID != 0)
}

fn has_privileges(file: BorrowedFd<'_>) -> Result<bool> {
    Ok(has_set_id(file)? || rustix::fs::fgetxattr(file, CAPABILITY, &mut [0u8; 0]).is_ok())
}

/// Changes neither bytes nor size.
fn drop_by_allocation(file: BorrowedFd<'_>) {
    // The kernel removes the bits before it looks for room.
    let _ = rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, 1);
}

/// Runs work that writes the library's bytes to the file: bits that the program has set after its write stay.
pub(super) fn keeping_bits<T>(fds: &Descriptors, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let bits = |fd: BorrowedFd<'_>| Ok(fstat(fd)?.st_mode & 0o7777);
    let before = fds.with(false, bits)?;
    let done = work();
    if before & SET_ID != 0 && fds.with(false, bits)? != before {
        // The bits can only have been set by a user who may set them again, or by a process that let them go.
        let _ = fds.with(false, |fd| Ok(rustix::fs::fchmod(fd, Mode::from_raw_mode(before))?));
    }
    done
}

impl AtomicFile {
    /// The program has given the file such bits: its next write removes them.
    pub fn bits_were_set(&self) {
        let note = |session: &Session| session.arena.shared().also.fetch_or(also::PRIVILEGES, Ordering::Release);
        let is_elsewhere = || self.state.load(Ordering::Acquire) == PLAIN && self.turns.is_disturbed();
        if self.with_session(note).is_none() && is_elsewhere() && self.fds.has_writable() {
            // Another process has the session, or none at this moment.
            let _ = self.writing(|session| Ok(_ = note(session)), || Ok(()));
        }
    }

    /// Before the process loses its permissions: without them it could not write to the file and keep these bits,
    /// which the program may have set after its write. So the session ends, which is a commit.
    pub(crate) fn settle_with_bits(&self) {
        if self.with_session(|_| ()).is_some() && self.fds.with(false, has_set_id).unwrap_or(false) {
            let _ = self.settle(); // if this fails, the next call reports it
        }
    }

    /// A session that begins with earlier writes: the bits may have been set since, and only the next write removes
    /// them.
    pub(super) fn keep_bits_until_write(&self, session: &Session) {
        if self.fds.with(false, has_privileges).unwrap_or(true) {
            session.arena.shared().also.fetch_or(also::PRIVILEGES, Ordering::Release);
        }
    }

    /// Before a change of the file's bytes.
    pub(super) fn drop_privileges(&self) -> Result<()> {
        let are_to_go = |session: &Session| {
            session.arena.shared().also.fetch_and(!also::PRIVILEGES, Ordering::AcqRel) & also::PRIVILEGES != 0
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
