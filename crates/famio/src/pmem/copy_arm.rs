//! AArch64: copies by ordinary stores, cleaned to the point of persistence. There are no useful non-temporal stores.

use super::cpu::{FlushOp, features};
use super::lines;
use core::arch::asm;

/// Copies so that the bytes are persistent after the next [`fence`] of this thread.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`] of bytes.
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        dst.copy_from_nonoverlapping(src, len);
        flush(dst, len);
    }
}

/// Copies by ordinary stores; the lines are still to be flushed.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`] of bytes.
#[inline]
pub(super) unsafe fn stage(dst: *mut u8, src: *const u8, len: usize, _hot: bool) {
    // SAFETY: the caller's promise. Later stores that publish are release stores.
    unsafe { dst.copy_from_nonoverlapping(src, len) }
}

/// Copies by ordinary stores: see the other architecture.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`] of bytes.
#[inline]
pub(super) unsafe fn copy_past(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { dst.copy_from_nonoverlapping(src, len) };
    false
}

/// Stores zeros so that they are persistent after the next [`fence`] of this thread.
///
/// # Safety
/// `dst` is valid for `len` bytes.
#[inline]
pub(super) unsafe fn zero(dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        dst.write_bytes(0, len);
        flush(dst, len);
    }
}

/// Starts to clean the lines of `addr..addr + len`.
///
/// # Safety
/// The range is mapped.
#[inline]
pub(super) unsafe fn flush(addr: *const u8, len: usize) {
    let step = line_size();
    // The clean is ordered after this thread's earlier stores to the same line; a barrier is needed only for stores
    // of other threads that it has seen (the kernel's arch_wb_cache_pmem does the same).
    // SAFETY: touches nothing.
    unsafe { asm!("dmb osh", options(nostack, preserves_flags)) };
    match features().flush {
        // Written as `sys`, so that the assembler need not support Armv8.2.
        FlushOp::DcCvap => lines::each(addr as usize, len, step, |line| {
            // SAFETY: the caller says that the range is mapped, the kernel that the CPU has the instruction.
            unsafe { asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags)) };
        }),
        _ => lines::each(addr as usize, len, step, |line| {
            // SAFETY: the caller says that the range is mapped; Linux lets user space clean.
            unsafe { asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)) };
        }),
    }
}

/// Waits for this thread's cleans to complete; only `dsb` does that.
#[inline]
pub(super) fn fence() {
    // SAFETY: touches nothing. Without `nomem` the compiler moves no memory access across it.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// The smallest data cache line of this system, from the cache type register.
#[inline]
fn line_size() -> usize {
    let ctr: u64;
    // SAFETY: reads a register that Linux lets user space read.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags)) };
    4 << ((ctr >> 16) & 0xf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_at_every_offset_is_copied_and_nothing_else() {
        let source: Vec<u8> = (0..800).map(|i| (i * 7 + i / 251) as u8).collect();
        for offset in 0..64 {
            for len in 0..=300 {
                let mut got = [0xEE; 512];
                let mut want = got;
                want[64 + offset..][..len].copy_from_slice(&source[..len]);
                // SAFETY: in bounds.
                unsafe { copy(got.as_mut_ptr().add(64 + offset), source.as_ptr(), len) };
                fence();
                assert!(got == want, "offset {offset} length {len}");
            }
        }
    }
}
