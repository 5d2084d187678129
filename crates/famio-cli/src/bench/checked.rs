//! Results of libc calls, which must be complete.

use std::io::Error;

/// Checks a call's result: an error with its errno, or an error for a call that did only a part.
#[inline]
pub fn expect(result: isize, whole: usize) -> Result<(), Error> {
    match result {
        -1 => Err(Error::last_os_error()),
        count if count == whole as isize => Ok(()),
        count => Err(Error::other(format!("{count} of {whole} bytes"))),
    }
}
