//! The users of this process.

use super::syscall;

/// The effective user, whose permissions apply when files are opened.
pub(crate) fn effective() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_geteuid, [0; 6]) as u32 }
}

/// Whether the effective user is only temporary, by the real, effective and saved ids.
pub(crate) fn may_come_back() -> bool {
    let mut ids = [0u32; 3];
    let [real, effective, saved] = ids.each_mut().map(|id| core::ptr::from_mut(id) as usize);
    // SAFETY: three words for the results.
    unsafe { syscall(libc::SYS_getresuid, [real, effective, saved, 0, 0, 0]) };
    ids[0] != ids[1] || ids[2] != ids[1]
}
