//! Set-user-id and set-group-id bits, and capabilities, as the kernel has them.

use crate::error::Result;
use crate::file::Descriptors;
use rustix::fs::{FallocateFlags, Mode, fstat};
use std::os::fd::BorrowedFd;

/// Set-user-id, set-group-id.
const SET_ID: u32 = 0o6000;
const CAPABILITY: &core::ffi::CStr = c"security.capability";

/// Makes the kernel do what it does at a write, if there is something to remove. It knows which process may keep the
/// bits: one with `CAP_FSETID`. Before there is a session.
pub(in crate::file) fn drop_before_session(file: BorrowedFd<'_>) -> Result<()> {
    if has_privileges(file)? {
        drop_by_allocation(file);
        if has_set_id(file)? {
            rustix::fs::ftruncate(file, fstat(file)?.st_size as u64)?; // the file system cannot allocate
        }
    }
    Ok(())
}

pub(in crate::file) fn has_set_id(file: BorrowedFd<'_>) -> Result<bool> {
    Ok(fstat(file)?.st_mode & SET_ID != 0)
}

pub(in crate::file) fn has_privileges(file: BorrowedFd<'_>) -> Result<bool> {
    Ok(has_set_id(file)? || rustix::fs::fgetxattr(file, CAPABILITY, &mut [0u8; 0]).is_ok())
}

/// Changes neither bytes nor size.
pub(in crate::file) fn drop_by_allocation(file: BorrowedFd<'_>) {
    // The kernel removes the bits before it looks for room.
    let _ = rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, 1);
}

/// Runs work that writes the library's bytes to the file: bits that the program has set after its write stay.
pub(in crate::file) fn keeping_bits<T>(fds: &Descriptors, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let bits = |fd: BorrowedFd<'_>| Ok(fstat(fd)?.st_mode & 0o7777);
    let before = fds.with(false, bits)?;
    let done = work();
    if before & SET_ID != 0 && fds.with(false, bits)? != before {
        // The bits can only have been set by a user who may set them again, or by a process that let them go.
        let _ = fds.with(false, |fd| Ok(rustix::fs::fchmod(fd, Mode::from_raw_mode(before))?));
    }
    done
}
