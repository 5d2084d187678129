//! One error type: the errno that a POSIX caller gets, and, off the hot path, what was tried on which file.

use core::fmt;

/// An errno with, where somebody should read it, a sentence that names the file, what was tried and what to do.
pub struct Error {
    errno: i32,
    detail: Option<Box<str>>,
}

/// The result of everything in this crate that can fail.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// A bare errno (`libc::ENOSPC` and the like): no message, no allocation.
    pub const fn new(errno: i32) -> Self {
        Self { errno, detail: None }
    }

    /// An errno with its sentence.
    pub fn with(errno: i32, detail: impl Into<Box<str>>) -> Self {
        Self { errno, detail: Some(detail.into()) }
    }

    /// The same error with a sentence in front of what it says: `"journal /a/b: short read"`.
    pub fn context(self, what: impl fmt::Display) -> Self {
        let errno = self.errno;
        let detail = match self.detail {
            Some(inner) => format!("{what}: {inner}"),
            None => format!("{what}: {}", describe(errno)),
        };
        Self::with(errno, detail)
    }

    /// The errno that a POSIX caller gets; always positive.
    pub const fn errno(&self) -> i32 {
        self.errno
    }

    /// The sentence, where there is one.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::new(errno.raw_os_error())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => f.write_str(detail),
            None => f.write_str(describe(self.errno)),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}: {self})", self.errno)
    }
}

impl std::error::Error for Error {}

/// The words for the errnos that we give ourselves; others by number would need libc's `strerror`, which allocates.
fn describe(errno: i32) -> &'static str {
    match errno {
        libc::EPERM => "not permitted",
        libc::ENOENT => "no such file",
        libc::EINTR => "interrupted",
        libc::EIO => "input/output error",
        libc::EBADF => "bad file descriptor",
        libc::EAGAIN => "try again",
        libc::ENOMEM => "out of memory",
        libc::EACCES => "permission denied",
        libc::EFAULT => "bad address",
        libc::EBUSY => "in use",
        libc::EEXIST => "exists already",
        libc::EINVAL => "invalid argument",
        libc::EFBIG => "file too large",
        libc::ENOSPC => "no space left",
        libc::EROFS => "read-only file system",
        libc::EDQUOT => "quota exceeded",
        libc::EOPNOTSUPP => "not supported here",
        libc::EDEADLK => "would deadlock",
        libc::ESTALE => "stale",
        libc::EOVERFLOW => "too large",
        _ => "system error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_keeps_the_errno_and_names_both() {
        let e = Error::new(libc::ENOSPC).context("journal /x").context("file /y");
        assert_eq!(e.errno(), libc::ENOSPC);
        assert_eq!(e.to_string(), "file /y: journal /x: no space left");
    }
}
