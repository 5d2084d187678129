//! Whether there is anything of Famio's at a file, told by its name: most files that are looked at, renamed or removed have nothing, and
//! this takes three system calls, where a look at the file itself takes twenty.

use super::config::Config;
use crate::journal::{is_not_beside, mark};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the regular file that `name` is the name of, and not a link's, surely has neither mark nor journal nor control file. `owner`:
/// the file's. False where that is not known.
pub(super) fn are_absent(config: &Config, dirfd: i32, name: &CStr, owner: u32) -> bool {
    let name = name.to_bytes();
    (dirfd == libc::AT_FDCWD || name.first() == Some(&b'/'))
        && config.settings.pool.is_none()
        && rustix::fs::lgetxattr(name, mark::NAME, &mut [0u8; 0]) == Err(Errno::NODATA)
        && is_not_beside(Path::new(OsStr::from_bytes(name)), owner)
}
