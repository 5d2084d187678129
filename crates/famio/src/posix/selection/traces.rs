//! Whether there is anything of Famio's at a file, told by its name: most files that are looked at, renamed or removed have nothing, and
//! this takes three system calls, where a look at the file itself takes twenty.

use super::config::Config;
use crate::Settings;
use crate::error::Result;
use crate::journal::{Identity, Pool, is_not_beside, journal_name, mark};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the regular file that `name` is the name of, and not a link's, surely has neither mark nor journal nor control file. `owner`:
/// the file's. False where that is not known.
pub(in crate::posix) fn are_absent(config: &Config, dirfd: i32, name: &CStr, owner: u32) -> bool {
    let name = name.to_bytes();
    (dirfd == libc::AT_FDCWD || name.first() == Some(&b'/'))
        && config.settings.pool.is_none()
        && rustix::fs::lgetxattr(name, mark::NAME, &mut [0u8; 0]) == Err(Errno::NODATA)
        && is_not_beside(Path::new(OsStr::from_bytes(name)), owner)
}

/// Whether there is a journal under the file's name: without a mark on the file, what a kill left at the end of a close.
pub(in crate::posix) fn has_journal(file: BorrowedFd<'_>, settings: &Settings) -> Result<bool> {
    match Pool::find(file, settings.pool.as_deref())? {
        Some(pool) => Ok(pool.open_read_only(&journal_name(&Identity::of_fd(file)?), Some(file))?.is_some()),
        None => Ok(false),
    }
}
