//! The lock of a journal's session. Processes find each other by the control file; if that was removed, the lock
//! shows that the journal is not a dead process's.

use crate::error::Result;
use crate::sys::locks::{Lock, is_locked, try_lock, unlock};
use core::ops::Range;
use std::os::fd::AsFd;

/// Beyond all bytes of a journal: one byte for each process that may have the session.
const SESSION: Range<i64> = (1 << 62)..(1 << 62) + 64;

/// Shows that this process has a session with the journal, as long as its description is open. Best effort: not every
/// file system has such locks, and there is the control file as well.
pub(super) fn begin(journal: impl AsFd) {
    let _ = SESSION
        .map(|byte| byte..byte + 1)
        .find(|byte| !matches!(try_lock(&journal, byte.clone(), Lock::Exclusive), Ok(false)));
}

/// The session has ended.
pub(super) fn end(journal: impl AsFd) {
    unlock(journal, SESSION);
}

/// For a record of a transaction of several files: a byte that the process locks that uses or removes it.
const RECORD: Range<i64> = (1 << 62) + 64..(1 << 62) + 65;

/// Locks a record for this description. False: another description has it.
///
/// # Errors
/// The file system has no such locks.
pub(super) fn take_record(record: impl AsFd) -> Result<bool> {
    try_lock(record, RECORD, Lock::Exclusive)
}

/// Unlocks a record explicitly, as a session's lock.
pub(crate) fn give_record(record: impl AsFd) {
    unlock(record, RECORD);
}

/// Whether another description has locked the record.
pub(super) fn is_record_taken(record: impl AsFd) -> bool {
    is_locked(record, RECORD, Lock::Exclusive)
}

/// Whether another description has a session with the journal. Read locks do not count: they need no write access.
pub(crate) fn is_in_session(journal: impl AsFd) -> bool {
    is_locked(journal, SESSION, Lock::Shared)
}
