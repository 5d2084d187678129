//! What happens to a file by its name. `unlink`, `rename` and `link` need nothing: mark and journal follow the inode.

use super::{Ret, close, fail, openat, process, raw, size, table, verify};
use crate::file::AtomicFile;
use core::ffi::c_char;
use std::sync::Arc;

/// `truncate(2)`: a cut or a growth; of a file that is not open here, committed by the close that follows.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn truncate(path: *const c_char, length: i64) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        let meant = length >= 0 && super::open::wanted(libc::AT_FDCWD, path, 0, false).is_some();
        if !meant || process::in_vfork_child() {
            return raw!(SYS_truncate, path, length);
        }
        // Closing a second descriptor would drop the program's record locks: use one that it has.
        let mut through = None;
        if let Ok(stat) = super::open::stat_at(libc::AT_FDCWD, path, 0)
            && let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino)
        {
            let allowed = raw!(SYS_faccessat, libc::AT_FDCWD, path, libc::W_OK, 0);
            if allowed < 0 {
                return allowed;
            }
            table::for_each(0, u32::MAX, |fd, handle| {
                if Arc::ptr_eq(handle.file(), &file) && (through.is_none() || handle.kernel_access() == libc::O_RDWR) {
                    through = Some((fd, handle.share()));
                }
            });
        }
        match through {
            Some((fd, handle)) if handle.kernel_access() == libc::O_RDWR => {
                verify::answer(fd, &handle, || size::resize(fd, &handle, length as u64))
                    .unwrap_or_else(|| raw!(SYS_truncate, path, length))
            }
            // Open here for reading only.
            Some((_, handle)) => {
                process::say(handle.path(), "truncate(2) refused: it is open in this process for reading only");
                fail(libc::EBUSY)
            }
            None => {
                let fd = openat(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_CLOEXEC, 0);
                if fd < 0 {
                    return fd;
                }
                let done = super::ftruncate(fd as i32, length);
                let closed = close(fd as i32);
                if done < 0 { done } else { closed }
            }
        }
    }
}
