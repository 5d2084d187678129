//! The mode of a stream, as glibc reads it.

use core::ffi::{CStr, c_char};

/// The second argument of `fopen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// For `open(2)`.
    pub flags: i32,
    /// The text is converted (`,ccs=`), which only libc's own streams support.
    pub converts: bool,
}

/// How many letters glibc reads after the first.
const LETTERS: usize = 6;

impl Mode {
    /// `None`: invalid; libc reports that.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (first, rest) = text.split_first()?;
        let (mut access, mut flags) = match first {
            b'r' => (libc::O_RDONLY, 0),
            b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
            b'a' => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
            _ => return None,
        };
        for letter in rest.iter().take(LETTERS) {
            match letter {
                b'+' => access = libc::O_RDWR,
                b'x' => flags |= libc::O_EXCL,
                b'e' => flags |= libc::O_CLOEXEC,
                _ => {}
            }
        }
        let converts = rest.windows(5).any(|part| part == b",ccs=");
        Some(Self { flags: flags | access, converts })
    }

    /// As [`parse`](Self::parse).
    ///
    /// # Safety
    /// Null or a C string.
    pub unsafe fn of(text: *const c_char) -> Option<Self> {
        if text.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        Self::parse(unsafe { CStr::from_ptr(text) }.to_bytes())
    }

    pub fn access(self) -> i32 {
        self.flags & libc::O_ACCMODE
    }

    pub fn appends(self) -> bool {
        self.flags & libc::O_APPEND != 0
    }

    /// A stream that only appends begins at the end.
    pub fn begins_at_end(self) -> bool {
        self.appends() && self.access() == libc::O_WRONLY
    }

    /// For `fopencookie`, which opens nothing: whether the stream reads and writes.
    pub fn plain(self) -> &'static CStr {
        match (self.access(), self.appends()) {
            (libc::O_RDONLY, _) => c"r",
            (libc::O_WRONLY, false) => c"w",
            (libc::O_WRONLY, true) => c"a",
            (_, false) => c"r+",
            (_, true) => c"a+",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_glibc_reads_them() {
        let flags = |text: &str| Mode::parse(text.as_bytes()).map(|mode| mode.flags);
        assert_eq!(flags("r"), Some(libc::O_RDONLY));
        assert_eq!(flags("rb+"), Some(libc::O_RDWR));
        assert_eq!(flags("r+be"), Some(libc::O_RDWR | libc::O_CLOEXEC));
        assert_eq!(flags("wx"), Some(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL));
        assert_eq!(flags("a+"), Some(libc::O_RDWR | libc::O_CREAT | libc::O_APPEND));
        assert_eq!(flags(""), None);
        assert_eq!(flags("+r"), None);
        assert!(Mode::parse(b"r,ccs=UTF-8").unwrap().converts);
        assert!(!Mode::parse(b"rb").unwrap().converts);
        assert_eq!(Mode::parse(b"a+x").unwrap().plain(), c"a+");
        assert_eq!(Mode::parse(b"wb").unwrap().plain(), c"w");
    }
}
