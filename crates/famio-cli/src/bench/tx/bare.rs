//! The bare copy with which a transaction is compared: written back to the medium, but not atomic.

/// A copy, written back; the caller fences.
///
/// # Safety
/// `to` has room for the bytes, which are whole lines.
pub unsafe fn copy(to: *mut u8, from: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        to.copy_from_nonoverlapping(from.as_ptr(), from.len());
        for line in (0..from.len()).step_by(64) {
            write_back(to.add(line));
        }
    }
}

/// # Safety
/// A line of ours.
#[cfg(target_arch = "x86_64")]
unsafe fn write_back(line: *mut u8) {
    // SAFETY: the caller's promise; clflushopt, used where there is no clwb, takes the same operand.
    unsafe {
        if clwb() {
            core::arch::asm!("clwb [{0}]", in(reg) line, options(nostack, preserves_flags));
        } else {
            core::arch::asm!("clflush [{0}]", in(reg) line, options(nostack, preserves_flags));
        }
    }
}

/// Whether the processor has `clwb`.
#[cfg(target_arch = "x86_64")]
fn clwb() -> bool {
    use std::sync::OnceLock;
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| core::arch::x86_64::__cpuid_count(7, 0).ebx >> 24 & 1 == 1)
}

#[cfg(target_arch = "x86_64")]
pub fn fence() {
    // SAFETY: every x86-64 has this instruction.
    unsafe { core::arch::x86_64::_mm_sfence() };
}

/// # Safety
/// A line of ours.
#[cfg(target_arch = "aarch64")]
unsafe fn write_back(line: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { core::arch::asm!("dc cvac, {0}", in(reg) line, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
pub fn fence() {
    // SAFETY: every 64-bit Arm has this instruction.
    unsafe { core::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
}
