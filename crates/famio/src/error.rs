//! The error type: the errno for a POSIX caller and, except on hot paths, a message that says what failed on which
//! file.

use core::fmt;
use core::num::NonZeroUsize;
use std::sync::Arc;

/// An errno; where a person should read it, with a message that names the file, what was tried, and what to do.
///
/// One word, so that results are returned in registers: a value that is stored and loaded again with another size
/// waits for all earlier stores, which include a block of the caller's data.
///
/// Invariant: an odd word is an errno, shifted by one, or a mark (`mark`); an even word is a pointer from
/// `Box<Described>`, which the error owns.
pub struct Error(NonZeroUsize);

/// An errno and its message.
struct Described {
    errno: i32,
    is_nameless: bool,
    sentence: Box<str>,
    lent: Option<Arc<dyn Lent>>,
}

/// What was refused only because others have borrowed it, and will give it back.
pub(crate) trait Lent: Send + Sync {
    /// Waits for that, for a while. Returns whether it was given back. The caller holds nothing that others wait for.
    fn wait(&self) -> bool;
}

const _: () = assert!(align_of::<Described>() >= 2 && size_of::<Result<()>>() == 8 && size_of::<Result<usize>>() == 16);

/// The result of everything in this crate that can fail.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// A bare errno (`libc::ENOSPC` and the like): no message, no allocation.
    pub const fn new(errno: i32) -> Self {
        Self(NonZeroUsize::new((errno as u32 as usize) << 1 | 1).expect("odd numbers are not zero"))
    }

    /// An errno with a message.
    pub fn with(errno: i32, detail: impl Into<Box<str>>) -> Self {
        Self::of(Described { errno, is_nameless: false, sentence: detail.into(), lent: None })
    }

    /// An errno with a message, for what others have borrowed: once nothing is held, it can be [waited](Self::lent)
    /// for.
    pub(crate) fn of_lent(errno: i32, detail: impl Into<Box<str>>, lent: Arc<dyn Lent>) -> Self {
        Self::of(Described { errno, is_nameless: false, sentence: detail.into(), lent: Some(lent) })
    }

    /// What others have borrowed, if that is the reason.
    pub(crate) fn lent(&self) -> Option<&Arc<dyn Lent>> {
        self.described().and_then(|described| described.lent.as_ref())
    }

    /// `ESTALE`: no path leads to the file, so that there is no folder for what belongs to it. See
    /// [`is_nameless`](Self::is_nameless).
    pub(crate) fn nameless(detail: impl Into<Box<str>>) -> Self {
        Self::of(Described { errno: libc::ESTALE, is_nameless: true, sentence: detail.into(), lent: None })
    }

    fn of(described: Described) -> Self {
        let described = Box::into_raw(Box::new(described));
        Self(NonZeroUsize::new(described.expose_provenance()).expect("a box has an address"))
    }

    /// A word of its own, which no errno has: for a type around this one that also says something else
    /// (`file::base::refusal`).
    pub(crate) const fn mark(number: u32) -> Self {
        Self(NonZeroUsize::new((1 << 32 | number as usize) << 1 | 1).expect("odd numbers are not zero"))
    }

    /// Whether it is that one.
    #[inline]
    pub(crate) const fn is_mark(&self, number: u32) -> bool {
        self.0.get() == (1 << 32 | number as usize) << 1 | 1
    }

    fn described(&self) -> Option<&Described> {
        if self.0.get() & 1 == 1 {
            return None;
        }
        // SAFETY: an even word is a pointer from a box that this error owns (see the invariant).
        Some(unsafe { &*core::ptr::with_exposed_provenance(self.0.get()) })
    }

    /// The same error with a prefix before its message: `"journal /a/b: short read"`.
    pub fn context(self, what: impl fmt::Display) -> Self {
        let errno = self.errno();
        let detail = match self.detail() {
            Some(inner) => format!("{what}: {inner}"),
            None => format!("{what}: {}", describe(errno)),
        };
        let lent = self.lent().cloned();
        Self::of(Described { errno, is_nameless: self.is_nameless(), sentence: detail.into_boxed_str(), lent })
    }

    /// Whether no path leads to the file: it was deleted, or has another name by now, or lies outside this process's
    /// root.
    pub(crate) fn is_nameless(&self) -> bool {
        self.described().is_some_and(|described| described.is_nameless)
    }

    /// The errno for a POSIX caller; always positive.
    pub fn errno(&self) -> i32 {
        self.described().map_or((self.0.get() >> 1) as i32, |described| described.errno)
    }

    /// Whether the caller lacks the right to change something.
    pub(crate) fn is_denied(&self) -> bool {
        [libc::EACCES, libc::EPERM, libc::EROFS].contains(&self.errno())
    }

    /// Whether a disk, or the user's part of it, is full.
    pub(crate) fn is_full(&self) -> bool {
        [libc::ENOSPC, libc::EDQUOT].contains(&self.errno())
    }

    /// The message, if there is one.
    pub fn detail(&self) -> Option<&str> {
        self.described().map(|described| &*described.sentence)
    }
}

impl Drop for Error {
    fn drop(&mut self) {
        if self.0.get() & 1 == 0 {
            // SAFETY: the pointer came from `Box::into_raw`, and no other value has it (see the invariant).
            drop(unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<Described>(self.0.get())) });
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::new(errno.raw_os_error())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail() {
            Some(detail) => f.write_str(detail),
            None => f.write_str(describe(self.errno())),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}: {self})", self.errno())
    }
}

impl std::error::Error for Error {}

/// Keeps the message. The kind is the errno's, except that `ENXIO` (a read beyond the end of a file) becomes
/// `UnexpectedEof`. An errno without a message remains an OS error.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let plain = std::io::Error::from_raw_os_error(error.errno());
        let kind = if error.errno() == libc::ENXIO { std::io::ErrorKind::UnexpectedEof } else { plain.kind() };
        if error.detail().is_none() && kind == plain.kind() { plain } else { std::io::Error::new(kind, error) }
    }
}

/// Descriptions of the errnos that Famio itself returns. For others, libc's `strerror` would be needed, which
/// allocates.
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
        libc::EMFILE | libc::ENFILE => "no descriptor is free",
        libc::EROFS => "read-only file system",
        libc::EDQUOT => "quota exceeded",
        libc::EOPNOTSUPP => "not supported here",
        libc::EDEADLK => "would deadlock",
        libc::ESTALE => "stale",
        libc::EOVERFLOW => "too large",
        libc::ENXIO => "beyond the end of the file",
        libc::ENOTDIR => "not a folder, or a part of its path is none",
        libc::EISDIR => "a folder",
        libc::ENAMETOOLONG => "the name is too long",
        libc::ELOOP => "too many symbolic links",
        libc::EXDEV => "on another file system",
        libc::ETXTBSY => "a program that runs",
        libc::ENODEV => "no such device",
        libc::ENOSYS => "not known to this kernel",
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
        let e = Error::nameless("/z: gone").context("file /y");
        assert_eq!((e.errno(), e.is_nameless(), &*e.to_string()), (libc::ESTALE, true, "file /y: /z: gone"));
        assert!(!Error::with(libc::ESTALE, "it was moved").is_nameless() && !Error::new(libc::ESTALE).is_nameless());
    }
}
