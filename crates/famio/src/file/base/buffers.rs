//! What callers pass in: buffers, access.

/// A piece of the caller's memory, with the layout of `struct iovec`. It may be a bad pointer, and is only touched by
/// guarded copies or by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UserBuf {
    /// The first byte.
    pub base: *mut u8,
    /// The length in bytes.
    pub len: usize,
}

impl UserBuf {
    /// A piece of our own memory, to be read into.
    pub(crate) fn of(piece: &mut [u8]) -> Self {
        Self { base: piece.as_mut_ptr(), len: piece.len() }
    }

    /// The total length.
    #[inline]
    pub(crate) fn total(bufs: &[Self]) -> usize {
        bufs.iter().fold(0, |sum, buf| sum.saturating_add(buf.len))
    }

    /// What is behind the first `done` bytes.
    pub(crate) fn after(bufs: &[Self], mut done: usize) -> Vec<Self> {
        let rest = bufs.iter().filter_map(|buf| {
            let skipped = done.min(buf.len);
            done -= skipped;
            (skipped < buf.len).then(|| Self { base: buf.base.wrapping_add(skipped), len: buf.len - skipped })
        });
        rest.collect()
    }
}

/// What a descriptor may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`.
    Read,
    /// `O_RDWR`: a write-only open is widened before.
    Write,
}
