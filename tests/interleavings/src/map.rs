//! What the arena needs of `map`. Huge pages are not tested here.

pub(crate) mod huge {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    use std::os::fd::{AsFd, BorrowedFd};

    pub(crate) const HUGE: usize = 2 << 20;

    pub(crate) fn aligned(
        fd: impl AsFd,
        len: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> rustix::io::Result<*mut u8> {
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        Ok(unsafe { mmap(core::ptr::null_mut(), len, protection, flags, fd, 0) }?.cast())
    }

    /// Places are not used again here.
    pub(crate) fn note_unmapped(_at: *mut u8) {}

    pub(crate) fn take(file: BorrowedFd<'_>, _at: *mut u8, offset: u64, len: usize) -> rustix::io::Result<bool> {
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, offset, len as u64).map(|()| false)
    }
}
