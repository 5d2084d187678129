//! A program's advice about its use of a map or a file.

/// How a range will be used. Advice changes what is done in advance, never what is read.
/// [`region::advise`](fn@crate::region::advise) says what each does. Source: map-ahead (HotStorage 2017),
/// section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No particular use.
    Normal,
    /// From front to back.
    Sequential,
    /// At random.
    Random,
    /// Soon.
    WillNeed,
    /// Not soon.
    DontNeed,
}

impl Advice {
    /// From the constants of `posix_madvise(3)`, which `posix_fadvise(2)`, `madvise(2)` and `nvadvise(3)` share.
    /// `None`: any other number.
    pub fn from_posix(advice: i32) -> Option<Self> {
        Some(match advice {
            libc::POSIX_MADV_NORMAL => Self::Normal,
            libc::POSIX_MADV_RANDOM => Self::Random,
            libc::POSIX_MADV_SEQUENTIAL => Self::Sequential,
            libc::POSIX_MADV_WILLNEED => Self::WillNeed,
            libc::POSIX_MADV_DONTNEED => Self::DontNeed,
            _ => return None,
        })
    }
}
