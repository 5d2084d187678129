//! Set-user-id and set-group-id bits, and capabilities of a file: the kernel takes them away when the file is written. Our own
//! writes reach it later, or through a map, or not as the program's: so it is asked for that beforehand, and only then.

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

/// Has the kernel do what it does at a write, where there is something to be taken away. It knows who may leave it: who has
/// `CAP_FSETID`. Before there is a session.
pub(super) fn drop_before_session(file: BorrowedFd<'_>) -> Result<()> {
    if has_privileges(file)? {
        drop_by_allocation(file);
        if has_set_id(file)? {
            rustix::fs::ftruncate(file, fstat(file)?.st_size as u64)?; // the file system can't allocate
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

/// Neither bytes nor size change.
fn drop_by_allocation(file: BorrowedFd<'_>) {
    // What is to be taken away goes before the room is looked for.
    let _ = rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, 1);
}

/// Runs what brings our own bytes to the file: bits that the program has set since it wrote them stay.
pub(super) fn keeping_bits<T>(fds: &Descriptors, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let bits = |fd: BorrowedFd<'_>| Ok(fstat(fd)?.st_mode & 0o7777);
    let before = fds.with(false, bits)?;
    let done = work();
    if before & SET_ID != 0 && fds.with(false, bits)? != before {
        // Only an owner can have set them who may do so again, or somebody who had them go.
        let _ = fds.with(false, |fd| Ok(rustix::fs::fchmod(fd, Mode::from_raw_mode(before))?));
    }
    done
}

impl AtomicFile {
    /// The program has given the file such bits: its next write takes them away.
    pub fn bits_were_set(&self) {
        let note = |session: &Session| session.arena.shared().also.fetch_or(also::PRIVILEGES, Ordering::Release);
        let is_elsewhere = || self.state.load(Ordering::Acquire) == PLAIN && self.turns.is_disturbed();
        if self.with_session(note).is_none() && is_elsewhere() && self.fds.has_writable() {
            // The session is another process's, or nobody's at this moment.
            let _ = self.writing(|session| Ok(_ = note(session)), || Ok(()));
        }
    }

    /// Before the process loses its rights: without them it could bring nothing to the file and leave it these bits, which the
    /// program may have set after it wrote. So the session ends, which is a commit.
    pub(crate) fn settle_with_bits(&self) {
        if self.with_session(|_| ()).is_some() && self.fds.with(false, has_set_id).unwrap_or(false) {
            let _ = self.settle(); // else the next call says why
        }
    }

    /// A session that begins with what was written before: the bits may have been set since, and only the next write takes them away.
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
