//! What the locks of the program say of its writes: a process that gives a lock up has come to the end of what it may still take back
//! by dying (`file::turn`).

use super::description::Description;
use crate::error::Result;
use crate::file::LockOf;
use crate::posix::call::lock::not_reentered;

/// What was written until now stays, whatever becomes of this process: others are let at it. `certainly`: a lock is given up; else
/// it may be, if there was one for writing. `all`: of that kind there is none left.
#[inline]
pub(in crate::posix) fn before_unlock(handle: &Description, certainly: bool, all: Option<LockOf>) -> Result<()> {
    if !is_meant(handle) {
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

/// As [`before_unlock`], for a descriptor that is being closed: the lock of its description goes with the description.
pub(in crate::posix) fn before_close(handle: &Description) {
    if handle.unlocks_at_close() {
        let _ = before_unlock(handle, true, Some(LockOf::Description)); // who looks at the file next is told what is wrong
    }
}

/// What it locked is as it was before one who died there began. `for_writing`: whose lock it is then.
#[inline]
pub(in crate::posix) fn has_locked(handle: &Description, for_writing: Option<LockOf>) {
    if is_meant(handle) {
        let _ = handle.file().look_after_dead(); // who looks at the file next is told what is wrong
        if let Some(of) = for_writing {
            handle.file().begin_section(of);
            if matches!(of, LockOf::Description) {
                handle.set_locked(true);
            }
        }
    }
}

/// Who waited for the lock may be about to change the file.
#[inline]
pub(in crate::posix) fn has_unlocked(handle: &Description) {
    if is_meant(handle) {
        handle.file().has_unlocked();
    }
}

#[inline]
fn is_meant(handle: &Description) -> bool {
    is_kept(handle) && not_reentered().is_ok()
}

/// Whether its locks may be in memory. Elsewhere they are the kernel's.
#[inline]
pub(in crate::posix) fn is_kept(handle: &Description) -> bool {
    handle.is_ours() && !handle.is_handed_back()
}
