//! What a caller hands in: buffers, access.

/// A piece of the caller's memory, laid out as `struct iovec`. It is the caller's: it may be a bad pointer, and is
/// touched only by guarded copies or by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UserBuf {
    /// First byte.
    pub base: *mut u8,
    /// Bytes.
    pub len: usize,
}

impl UserBuf {
    /// A piece of our own memory, to be read into.
    pub(crate) fn of(piece: &mut [u8]) -> Self {
        Self { base: piece.as_mut_ptr(), len: piece.len() }
    }

    /// Bytes of all of them.
    #[inline]
    pub(crate) fn total(bufs: &[Self]) -> usize {
        bufs.iter().fold(0, |sum, buf| sum.saturating_add(buf.len))
    }
}

/// What the kernel's descriptor may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`.
    Read,
    /// `O_RDWR`: a write-only open is widened before it comes here.
    Write,
}
