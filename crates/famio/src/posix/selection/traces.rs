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

/// Whether the regular file at `name`, which is no link, certainly has neither mark nor journal nor control file.
/// `owner`: the file's owner. False if that is unknown.
pub(in crate::posix) fn are_absent(config: &Config, dirfd: i32, name: &CStr, owner: u32) -> bool {
    let name = name.to_bytes();
    if config.settings.pool.is_some() || name.is_empty() {
        return false;
    }
    let has_no_mark = |path: &[u8]| rustix::fs::lgetxattr(path, mark::NAME, &mut [0u8; 0]) == Err(Errno::NODATA);
    if dirfd == libc::AT_FDCWD || name[0] == b'/' {
        return has_no_mark(name) && is_not_beside(Path::new(OsStr::from_bytes(name)), owner);
    }
    let path = [format!("/proc/thread-self/fd/{dirfd}/").as_bytes(), name].concat();
    let is_in_folder = !name.contains(&b'/');
    // SAFETY: not -1, since a name was found by it; only queried.
    let folder = || unsafe { BorrowedFd::borrow_raw(dirfd) };
    has_no_mark(&path)
        && (is_in_folder && has_no_pool(folder()) || is_not_beside(Path::new(OsStr::from_bytes(&path)), owner))
}

/// Whether a journal lies under the file's name. Without a mark on the file, a kill at the end of a close left it.
pub(in crate::posix) fn has_journal(file: BorrowedFd<'_>, settings: &Settings) -> Result<bool> {
    match Pool::find(file, settings.pool.as_deref())? {
        Some(pool) => Ok(pool.open_read_only(&journal_name(&Identity::of_fd(file)?), Some(file))?.is_some()),
        None => Ok(false),
    }
}
