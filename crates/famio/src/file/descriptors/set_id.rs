//! Set-user-id and set-group-id bits, and capabilities, as the kernel has them.

use crate::error::Result;
use crate::file::Descriptors;
use rustix::fs::{FallocateFlags, Mode, fstat};
use std::os::fd::BorrowedFd;

/// Set-user-id, set-group-id.
const SET_ID: u32 = 0o6000;
const CAPABILITY: &core::ffi::CStr = c"security.capability";

/// Has the kernel do what it does at a write, where there is something to be taken away. It knows who may leave it: who has
/// `CAP_FSETID`. Before there is a session.
pub(in crate::file) fn drop_before_session(file: BorrowedFd<'_>) -> Result<()> {
    if has_privileges(file)? {
        drop_by_allocation(file);
        if has_set_id(file)? {
            rustix::fs::ftruncate(file, fstat(file)?.st_size as u64)?; // the file system can't allocate
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

/// Neither bytes nor size change.
pub(in crate::file) fn drop_by_allocation(file: BorrowedFd<'_>) {
    // What is to be taken away goes before the room is looked for.
    let _ = rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, 1);
}

/// Runs what brings our own bytes to the file: bits that the program has set since it wrote them stay.
pub(in crate::file) fn keeping_bits<T>(fds: &Descriptors, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let bits = |fd: BorrowedFd<'_>| Ok(fstat(fd)?.st_mode & 0o7777);
    let before = fds.with(false, bits)?;
    let done = work();
    if before & SET_ID != 0 && fds.with(false, bits)? != before {
        // Only an owner can have set them who may do so again, or somebody who had them go.
        let _ = fds.with(false, |fd| Ok(rustix::fs::fchmod(fd, Mode::from_raw_mode(before))?));
    }
    done
}
