//! A file with allocated space, on a disk without room for a journal.

use crate::posix::descriptors::demote;
use crate::posix::descriptors::description::Description;
use crate::posix::runtime::state::in_vfork_child;
use rustix::fs::{fstatvfs, statvfs};
use std::os::fd::{BorrowedFd, RawFd};

/// Bytes that suffice for most journals, though an epoch may be larger.
const ENOUGH: u64 = 4 << 20;

/// After `length` bytes were allocated. On a plain file, a write into this space cannot fail; on an atomic file it
/// fails if there is no room to log it. So a file that gets such space on a nearly full disk is demoted, unless
/// protection is required.
pub(in crate::posix) fn demote_without_room(fd: RawFd, handle: &Description, length: u64) {
    let settings = handle.file().settings();
    if settings.require || !handle.is_live() || in_vfork_child() {
        return;
    }
    let asked = match &settings.pool {
        Some(pool) => statvfs(pool),
        // SAFETY: the descriptor is open, and stays so during the call.
        None => fstatvfs(unsafe { BorrowedFd::borrow_raw(fd) }),
    };
    let Ok(disk) = asked else { return };
    let blocks = if rustix::process::geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
    // A tmpfs without a limit reports zero blocks.
    if disk.f_blocks != 0 && blocks.saturating_mul(disk.f_frsize) < length.min(ENOUGH) {
        let why = "a full disk: the allocated space can be written, but there is no room for a journal";
        let _ = demote::demote_file(handle.file(), handle.path(), fd, why); // else protected while there is room
    }
}
