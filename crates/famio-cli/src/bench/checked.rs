//! Results of libc calls, which must be whole.

use std::io::Error;

/// A call's result: an error with its errno, or one for a call that did less than it was told to.
#[inline]
pub fn expect(result: isize, whole: usize) -> Result<(), Error> {
    match result {
        -1 => Err(Error::last_os_error()),
        count if count == whole as isize => Ok(()),
        count => Err(Error::other(format!("{count} of {whole} bytes"))),
    }
}
