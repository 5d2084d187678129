//! `lseek`, on the logical size.

use crate::error::Error;
use crate::posix::descriptors::table;
use crate::posix::descriptors::verify::{answer, offset_fits};
use crate::posix::{Ret, raw};
use std::os::fd::RawFd;

/// `lseek(2)`. For `SEEK_DATA` and `SEEK_HOLE`, a file has no holes, as POSIX allows: the log may hold data where the
/// file system has a hole.
pub fn lseek(fd: RawFd, offset: i64, whence: i32) -> Ret {
    // SAFETY: no memory is passed.
    let kernel = || unsafe { raw!(SYS_lseek, fd, offset, whence) };
    let Some(handle) = table::borrow(fd) else { return kernel() };
    let done = answer(fd, &handle, || {
        let position = handle.lock_position(fd)?;
        let invalid = || Error::new(libc::EINVAL);
        let size = || handle.file().size() as i64;
        let target = match whence {
            libc::SEEK_SET => offset,
            libc::SEEK_CUR => (position.get()? as i64).checked_add(offset).ok_or_else(invalid)?,
            libc::SEEK_END => size().checked_add(offset).ok_or_else(invalid)?,
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                let size = size();
                if !(0..size).contains(&offset) {
                    return Err(Error::new(libc::ENXIO));
                }
                if whence == libc::SEEK_DATA { offset } else { size }
            }
            _ => return Err(invalid()),
        };
        if target < 0 || !offset_fits(fd, &handle, target as u64) {
            return Err(invalid());
        }
        position.set(target as u64)?;
        Ok(target as usize)
    });
    done.unwrap_or_else(kernel)
}
