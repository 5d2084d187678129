//! Whether anything of Famio's belongs to a file, by its name. Most files that are examined, renamed or removed have
//! nothing, and this check takes three system calls, where examining the file itself takes twenty.

use super::config::Config;
use crate::Settings;
use crate::error::Result;
use crate::journal::{Identity, Pool, has_no_pool, is_not_beside, journal_name, mark};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the regular file at this path, which is no link, certainly has neither mark nor journal nor control file.
/// `owner`: the file's owner. False if that is unknown.
pub(in crate::posix) fn are_absent(config: &Config, dirfd: i32, said: &CStr, owner: u32) -> bool {
    let name = said.to_bytes();
    if config.settings.pool.is_some() || name.is_empty() {
        return false;
    }
    let is_not_beside = |path: &[u8]| is_not_beside(Path::new(OsStr::from_bytes(path)), owner);
    if dirfd == libc::AT_FDCWD || name[0] == b'/' {
        return rustix::fs::lgetxattr(name, mark::NAME, &mut [0u8; 0]) == Err(Errno::NODATA) && is_not_beside(name);
    }
    // SAFETY: not -1, since a name was found by it; only queried.
    let folder = unsafe { BorrowedFd::borrow_raw(dirfd) };
    let is_in_folder = !name.contains(&b'/');
    let path = || [format!("/proc/thread-self/fd/{dirfd}/").as_bytes(), name].concat();
    matches!(mark::is_on(folder, said), Ok(false)) && (is_in_folder && has_no_pool(folder) || is_not_beside(&path()))
}

/// Whether a journal lies under the file's name. Without a mark on the file, a kill at the end of a close left it.
pub(in crate::posix) fn has_journal(file: BorrowedFd<'_>, settings: &Settings) -> Result<bool> {
    match Pool::find(file, settings.pool.as_deref())? {
        Some(pool) => Ok(pool.open_read_only(&journal_name(&Identity::of_fd(file)?), Some(file))?.is_some()),
        None => Ok(false),
    }
}
