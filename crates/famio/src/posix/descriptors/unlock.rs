//! What the locks of the program say about its writes: a process that gives up a lock can no longer roll back, by
//! dying, what it wrote before (`file::ownership`).

use super::description::Description;
use crate::error::Result;
use crate::file::LockOf;
use crate::posix::call::lock::not_reentered;

/// Before an unlock: makes what this process has written until now permanent even if it dies, since other processes
/// may rely on it. `certainly`: a lock is given up for sure; otherwise only if there was a write lock. `all`: no lock
/// of that kind remains.
#[inline]
pub(in crate::posix) fn before_unlock(handle: &Description, certainly: bool, all: Option<LockOf>) -> Result<()> {
    if !is_selected(handle) {
        return Ok(());
    }
    if certainly || handle.file().is_in_section() {
        handle.file().end_tenure()?;
    }
    if let Some(of) = all {
        handle.file().end_section(of);
        if matches!(of, LockOf::Description) {
            handle.set_locked(false);
        }
    }
    Ok(())
}

/// As [`before_unlock`], for a descriptor that is being closed: its description's lock ends with the description.
pub(in crate::posix) fn before_close(handle: &Description) {
    if handle.unlocks_at_close() {
        let _ = before_unlock(handle, true, Some(LockOf::Description)); // the next call on the file reports the error
    }
}

/// After a lock was granted: if the process that held it died, the file is rolled back to where that process began.
/// `for_writing`: whose lock it is, if it is a write lock.
#[inline]
pub(in crate::posix) fn has_locked(handle: &Description, for_writing: Option<LockOf>) {
    if is_selected(handle) {
        let _ = handle.file().look_after_dead(); // the next call on the file reports the error
        if let Some(of) = for_writing {
            handle.file().begin_section(of);
            if matches!(of, LockOf::Description) {
                handle.set_locked(true);
            }
        }
    }
}

/// After an unlock: the process that waited for the lock may be about to change the file.
#[inline]
pub(in crate::posix) fn has_unlocked(handle: &Description) {
    if is_selected(handle) {
        handle.file().has_unlocked();
    }
}

#[inline]
fn is_selected(handle: &Description) -> bool {
    is_kept(handle) && not_reentered().is_ok()
}

/// Whether locks of this description may be kept in memory; otherwise the kernel has them.
#[inline]
pub(in crate::posix) fn is_kept(handle: &Description) -> bool {
    handle.is_ours() && !handle.is_demoted()
}
