//! Whether anything of Famio's belongs to a file, by its name. Most files that are examined, renamed or removed have
//! nothing, and this check takes three system calls, where examining the file itself takes twenty.

use super::config::Config;
use crate::Settings;
use crate::error::Result;
use crate::journal::{Identity, Pool, is_not_beside, journal_name, mark};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the regular file at `name`, which is no link, certainly has neither mark nor journal nor control file.
/// `owner`: the file's owner. False if that is unknown.
pub(in crate::posix) fn are_absent(config: &Config, dirfd: i32, name: &CStr, owner: u32) -> bool {
    let is_absent = |name: &[u8]| {
        rustix::fs::lgetxattr(name, mark::NAME, &mut [0u8; 0]) == Err(Errno::NODATA)
            && is_not_beside(Path::new(OsStr::from_bytes(name)), owner)
    };
    let name = name.to_bytes();
    config.settings.pool.is_none()
        && match dirfd {
            _ if name.is_empty() => false,
            libc::AT_FDCWD => is_absent(name),
            _ if name.first() == Some(&b'/') => is_absent(name),
            folder => is_absent(&[format!("/proc/thread-self/fd/{folder}/").as_bytes(), name].concat()),
        }
}

/// Whether a journal lies under the file's name. Without a mark on the file, a kill at the end of a close left it.
pub(in crate::posix) fn has_journal(file: BorrowedFd<'_>, settings: &Settings) -> Result<bool> {
    match Pool::find(file, settings.pool.as_deref())? {
        Some(pool) => Ok(pool.open_read_only(&journal_name(&Identity::of_fd(file)?), Some(file))?.is_some()),
        None => Ok(false),
    }
}
