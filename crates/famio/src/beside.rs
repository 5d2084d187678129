//! The name of the folder for journals beside a file (`journal::beside`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Its name in a folder without the sticky bit.
pub const BESIDE: &str = ".famio";

/// Whether a folder has such a name.
pub fn is_beside_name(name: &OsStr) -> bool {
    let Some(rest) = name.as_bytes().strip_prefix(BESIDE.as_bytes()) else { return false };
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    rest.is_empty() || rest.strip_prefix(b"-").is_some_and(is_number)
}
