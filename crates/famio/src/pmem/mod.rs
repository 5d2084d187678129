//! Persistence: what a store needs to survive. This module knows nothing of journals.

#[cfg(target_arch = "aarch64")]
mod copy_arm;
#[cfg(target_arch = "x86_64")]
mod copy_x86;
pub mod cpu;
mod detect;
mod domain;
mod lines;
mod medium;
mod metadata;
mod native;
pub(crate) mod ordinary;
#[doc(hidden)]
pub mod record;
mod test_hooks;

pub use cpu::CpuFeatures;
pub(crate) use detect::unnamed_file_in;
pub use detect::{Detected, detect, is_tiered};
pub(crate) use detect::{detect_on, is_in_memory, is_known};
pub use domain::Domain;
#[doc(hidden)]
pub use lines::LINE;
#[doc(hidden)]
pub use medium::Medium;
pub(crate) use metadata::keeps_order;
pub(crate) use native::copy_past;
#[doc(hidden)]
pub use native::medium;
#[doc(hidden)]
pub use test_hooks::{TestHooks, stand_in};

/// Every thread of the process has passed a fence in the kernel: see [`Medium::fenced_by_all`].
pub(crate) fn fenced_by_all() {
    if let Some(medium) = TestHooks::current().medium {
        medium.fenced_by_all();
    }
}

/// Tells the CPU that the line at `address` will be written soon. Any address is allowed: nothing is accessed.
#[inline]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it faults on no address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// As [`prefetch`], of a line that will be stored to.
#[inline]
pub(crate) fn prefetch_for_store(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it faults on no address, and processors that do not know it ignore it.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
    };
    #[cfg(not(target_arch = "x86_64"))]
    prefetch(address);
}

/// An unnamed file in `folder`, for tests.
#[cfg(test)]
pub(crate) fn test_file(folder: &str, size: u64) -> std::fs::File {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).unwrap());
    file.set_len(size).unwrap();
    file
}
