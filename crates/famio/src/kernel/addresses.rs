//! Whether there are addresses for a map.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Checks that the process has a range of addresses of this length left.
///
/// # Errors
/// `ENOMEM`.
pub fn try_address_space(len: usize) -> rustix::io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses, and not used.
    unsafe { mmap_anonymous(core::ptr::null_mut(), len, ProtFlags::empty(), flags).and_then(|at| munmap(at, len)) }
}
