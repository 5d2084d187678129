//! A file that has its space, on a disk that has none left for a journal.

use crate::posix::descriptors::demote;
use crate::posix::descriptors::description::Description;
use crate::posix::runtime::state::in_vfork_child;
use rustix::fs::{fstatvfs, statvfs};
use std::os::fd::{BorrowedFd, RawFd};

/// Bytes that are enough for a journal: an epoch may be larger, but as a rule is not.
const ENOUGH: u64 = 4 << 20;

/// After `length` bytes were allocated. A write into that space can't fail on a plain file; on an atomic one it fails where there is
/// no room to keep what it replaces. So a file that would have that only on a full disk is the kernel's from here on, unless
/// protection is required.
pub(in crate::posix) fn hand_back_without_room(fd: RawFd, handle: &Description, length: u64) {
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
    // A tmpfs without a limit has no blocks at all.
    if disk.f_blocks != 0 && blocks.saturating_mul(disk.f_frsize) < length.min(ENOUGH) {
        let why = "a full disk: the allocated space can be written, but there is no room for a journal";
        let _ = demote::demote_file(handle.file(), handle.path(), fd, why); // or it stays protected as long as there is room
    }
}
