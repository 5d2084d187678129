//! The lock of a journal's session. Processes find each other by the control file; where somebody has removed that, the lock
//! tells that a journal is not one that a dead process left.

use crate::error::Result;
use crate::sys::locks::{Lock, is_locked, try_lock, unlock};
use core::ops::Range;
use std::os::fd::AsFd;

/// Beyond all bytes of a journal: one for each process that may have the session.
const SESSION: Range<i64> = (1 << 62)..(1 << 62) + 64;

/// This process has a session with the journal, as long as its description is open. Best effort: not every file system has
/// such locks, and the control file is there as well.
pub(super) fn begin(journal: impl AsFd) {
    let _ = SESSION
        .map(|byte| byte..byte + 1)
        .find(|byte| !matches!(try_lock(&journal, byte.clone(), Lock::Exclusive), Ok(false)));
}

/// The session has ended.
pub(super) fn end(journal: impl AsFd) {
    unlock(journal, SESSION);
}

/// Of a record of joint commits: the byte of who uses it, or removes it.
const RECORD: Range<i64> = (1 << 62) + 64..(1 << 62) + 65;

/// Takes a record for this description. False: another one has it.
///
/// # Errors
/// The file system has no such locks.
pub(super) fn take_record(record: impl AsFd) -> Result<bool> {
    try_lock(record, RECORD, Lock::Exclusive)
}

/// Gives it back: by name, as a session's lock.
pub(crate) fn give_record(record: impl AsFd) {
    unlock(record, RECORD);
}

/// Whether another description has it.
pub(super) fn is_record_taken(record: impl AsFd) -> bool {
    is_locked(record, RECORD, Lock::Exclusive)
}

/// Whether another description has a session with the journal. A lock for reading does not count: it needs no right to write.
pub(crate) fn is_in_session(journal: impl AsFd) -> bool {
    is_locked(journal, SESSION, Lock::Shared)
}
