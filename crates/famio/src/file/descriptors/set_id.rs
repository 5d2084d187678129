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

/// Runs work that writes the library's bytes to the file: bits that the program has set after its write stay. Not if
/// another process has changed owner or permissions meanwhile: that may have removed bits, too.
pub(in crate::file) fn keeping_bits<T>(fds: &Descriptors, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let look = |fd: BorrowedFd<'_>| {
        let stat = fstat(fd)?;
        Ok((stat.st_mode & 0o7777, (stat.st_uid, stat.st_gid)))
    };
    let (before, owner) = fds.with(false, look)?;
    let done = work();
    if before & SET_ID != 0 {
        let (now, owner_now) = fds.with(false, look)?;
        if now != before && now | before & SET_ID == before && owner_now == owner {
            // The bits can only have been set by a user who may set them again, or by a process that let them go.
            let _ = fds.with(false, |fd| Ok(rustix::fs::fchmod(fd, Mode::from_raw_mode(before))?));
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Access;
    use rustix::fs::{Gid, MemfdFlags, Uid, fchmod, fchown, memfd_create};
    use std::os::fd::{AsFd, AsRawFd};

    /// A child's `fchown` cleared bits, and its parent, which was closing the file, set them again, for the new owner.
    #[test]
    fn bits_that_a_write_clears_come_back_and_what_another_process_sets_stays() {
        let file = memfd_create("famio-test", MemfdFlags::CLOEXEC).unwrap();
        let fds = Descriptors::default();
        fds.add(file.as_raw_fd(), Access::Write);
        let mode = |to: u32| Ok(fchmod(&file, Mode::from_raw_mode(to))?);
        let is = || fstat(&file).unwrap().st_mode & 0o7777;
        for (meanwhile, then) in [(0o755, 0o6755), (0o2755, 0o6755), (0o600, 0o600), (0o6700, 0o6700), (0o6777, 0o6777)]
        {
            mode(0o6755).unwrap();
            keeping_bits(&fds, || mode(meanwhile)).unwrap();
            assert_eq!(is(), then, "{meanwhile:o}");
        }
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } == 0 {
            mode(0o6755).unwrap();
            let give = || Ok(fchown(file.as_fd(), Some(Uid::from_raw(1234)), Some(Gid::from_raw(1234)))?);
            keeping_bits(&fds, give).unwrap();
            assert_eq!(is(), 0o755);
        }
        fds.remove(file.as_raw_fd(), true);
    }
}
