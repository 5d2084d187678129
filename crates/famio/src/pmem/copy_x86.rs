//! x86-64: flushes, fences, and copies that bypass the caches.
//!
//! Bytes of whole lines are stored non-temporally and need only the fence, except on CPUs whose non-temporal stores can
//! stay in the cache (see [`CpuFeatures::bypass`]). Bytes that share their line with others are stored as usual and
//! their line flushed: a non-temporal store of part of a line makes the CPU read, merge and write it, and is slower.

use super::cpu::{CopyOp, CpuFeatures, FlushOp, features};
use super::lines::{self, LINE};
use core::arch::asm;
use core::arch::x86_64::*;

/// Copies shorter than this use ordinary stores and flushes.
///
/// Measured on Zen 5, ns with a fence after each copy (every tenth), ordinary to non-temporal: where the non-temporal
/// stores need no flush, 157 to 95 at 64 B, 388 to 188 at 4 KiB; where they do, 157 to 168 (18 to 19) at 64 B, 226 to
/// 220 (80 to 83) at 2 KiB, 323 to 271 (330 to 147) at 4 KiB.
#[inline]
const fn small(cpu: CpuFeatures) -> usize {
    match cpu.copy {
        CopyOp::Ordinary => usize::MAX,
        _ if cpu.bypass => LINE,
        _ => 2048,
    }
}

/// Larger pieces are staged past the cache: they will not be written again soon, and reading their lines first would
/// cost more than the fence.
const STAGE_SMALL: usize = 2048;

/// Copies so that the bytes are persistent after the next [`fence`] of this thread.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`] of bytes.
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise; `features` tells what the CPU has.
    unsafe { copy_by(features(), dst, src, len) }
}

/// Copies so that later stores of this thread become visible after the bytes: by ordinary stores, or by non-temporal
/// ones and a fence. The lines must still be flushed. `hot`: they are in the cache, or will be stored to again.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`] of bytes.
#[inline]
pub(super) unsafe fn stage(dst: *mut u8, src: *const u8, len: usize, hot: bool) {
    if hot {
        // SAFETY: the caller's promise.
        return unsafe { super::ordinary::copy(dst, src, len) };
    }
    // SAFETY: the caller's promise.
    if unsafe { copy_past(dst, src, len) } {
        fence();
    }
}

/// Copies whole lines past the caches; few bytes, and parts of lines, by ordinary stores. Whether it went past them:
/// only a fence orders that with later stores.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`] of bytes.
#[inline]
pub(super) unsafe fn copy_past(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let cpu = features();
    let parts = lines::split(dst as usize, len);
    if len < STAGE_SMALL || parts.head + parts.tail > 0 || cpu.copy == CopyOp::Ordinary {
        // SAFETY: the caller's promise.
        unsafe { super::ordinary::copy(dst, src, len) };
        return false;
    }
    // SAFETY: the caller's promise; whole lines, and `cpu` is what there is.
    unsafe {
        match cpu.copy {
            CopyOp::Avx512 => stream_avx512(dst, src, len),
            CopyOp::Avx => stream_avx(dst, src, len),
            _ => stream_sse2(dst, src, len),
        }
    }
    true
}

/// Stores zeros so that they are persistent after the next [`fence`] of this thread.
///
/// # Safety
/// `dst` is valid for `len` bytes.
#[inline]
pub(super) unsafe fn zero(dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise; `features` tells what the CPU has.
    unsafe { zero_by(features(), dst, len) }
}

/// Starts the write-back of the lines of `addr..addr + len`.
///
/// # Safety
/// The range is mapped.
#[inline]
pub(super) unsafe fn flush(addr: *const u8, len: usize) {
    // SAFETY: the caller's promise; `features` tells what the CPU has.
    unsafe { flush_by(features().flush, addr, len) }
}

/// Waits for this thread's non-temporal stores and write-backs.
#[inline]
pub(super) fn fence() {
    // SAFETY: touches nothing. Without `nomem` the compiler moves no memory access across it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

unsafe fn copy_by(cpu: CpuFeatures, dst: *mut u8, src: *const u8, len: usize) {
    if len < small(cpu) {
        // SAFETY: the caller's promise.
        unsafe { copy_and_flush(cpu.flush, dst, src, len) };
        return;
    }
    let parts = lines::split(dst as usize, len);
    let tail = parts.head + parts.body;
    // SAFETY: the three parts lie in the caller's range, `body` on whole lines; `cpu` is what there is.
    unsafe {
        copy_and_flush(cpu.flush, dst, src, parts.head);
        let (dst_body, src_body) = (dst.add(parts.head), src.add(parts.head));
        match cpu.copy {
            CopyOp::Avx512 => stream_avx512(dst_body, src_body, parts.body),
            CopyOp::Avx => stream_avx(dst_body, src_body, parts.body),
            _ => stream_sse2(dst_body, src_body, parts.body),
        }
        if !cpu.bypass {
            flush_by(cpu.flush, dst_body, parts.body);
        }
        copy_and_flush(cpu.flush, dst.add(tail), src.add(tail), parts.tail);
    }
}

unsafe fn zero_by(cpu: CpuFeatures, dst: *mut u8, len: usize) {
    if len < small(cpu) {
        // SAFETY: the caller's promise.
        unsafe { zero_and_flush(cpu.flush, dst, len) };
        return;
    }
    let parts = lines::split(dst as usize, len);
    // SAFETY: the three parts lie in the caller's range, `body` on whole lines; `cpu` is what there is.
    unsafe {
        zero_and_flush(cpu.flush, dst, parts.head);
        let body = dst.add(parts.head);
        match cpu.copy {
            CopyOp::Avx512 => stream_zero_avx512(body, parts.body),
            CopyOp::Avx => stream_zero_avx(body, parts.body),
            _ => stream_zero_sse2(body, parts.body),
        }
        if !cpu.bypass {
            flush_by(cpu.flush, body, parts.body);
        }
        zero_and_flush(cpu.flush, body.add(parts.body), parts.tail);
    }
}

#[inline]
unsafe fn copy_and_flush(by: FlushOp, dst: *mut u8, src: *const u8, len: usize) {
    if len != 0 {
        // SAFETY: the caller's promise.
        unsafe {
            super::ordinary::copy(dst, src, len);
            flush_by(by, dst, len);
        }
    }
}

#[inline]
unsafe fn zero_and_flush(by: FlushOp, dst: *mut u8, len: usize) {
    if len != 0 {
        // SAFETY: the caller's promise.
        unsafe {
            dst.write_bytes(0, len);
            flush_by(by, dst, len);
        }
    }
}

#[inline]
unsafe fn flush_by(by: FlushOp, addr: *const u8, len: usize) {
    let addr = addr as usize;
    // No `nomem` in these three, so that the compiler keeps every store before them.
    match by {
        FlushOp::Clwb => lines::each(addr, len, LINE, |line| {
            // SAFETY: the range is mapped, and the CPU has the instruction: the caller's promise.
            unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) }
        }),
        FlushOp::Clflushopt => lines::each(addr, len, LINE, |line| {
            // SAFETY: as above.
            unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) }
        }),
        _ => lines::each(addr, len, LINE, |line| {
            // SAFETY: as above.
            unsafe { asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)) }
        }),
    }
}

/// Makes a loop over whole lines: loads of any alignment, stores that fill a line.
macro_rules! stream {
    ($name:ident, $zero:ident, $feature:literal, $vector:ty, $load:ident, $store:ident, $none:ident) => {
        #[target_feature(enable = $feature)]
        unsafe fn $name(dst: *mut u8, src: *const u8, len: usize) {
            const STEP: usize = size_of::<$vector>();
            let copy_line = |at: usize| {
                // SAFETY: `len` is a multiple of the line, `dst` lies on one, and both ranges are the caller's.
                unsafe {
                    let mut line = [$none(); LINE / STEP];
                    for (i, vector) in line.iter_mut().enumerate() {
                        *vector = $load(src.add(at + i * STEP).cast());
                    }
                    for (i, vector) in line.into_iter().enumerate() {
                        $store(dst.add(at + i * STEP).cast(), vector);
                    }
                }
            };
            super::lines::each(0, len, LINE, copy_line);
        }

        #[target_feature(enable = $feature)]
        unsafe fn $zero(dst: *mut u8, len: usize) {
            const STEP: usize = size_of::<$vector>();
            let none = $none();
            // SAFETY: `len` is a multiple of the line, `dst` lies on one, and the range is the caller's.
            super::lines::each(0, len, STEP, |at| unsafe { $store(dst.add(at).cast(), none) });
        }
    };
}

stream!(stream_sse2, stream_zero_sse2, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128, _mm_setzero_si128);
stream!(stream_avx, stream_zero_avx, "avx", __m256i, _mm256_loadu_si256, _mm256_stream_si256, _mm256_setzero_si256);
stream!(
    stream_avx512,
    stream_zero_avx512,
    "avx512f",
    __m512i,
    _mm512_loadu_si512,
    _mm512_stream_si512,
    _mm512_setzero_si512
);

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: usize = 128;

    /// Every combination that this CPU supports.
    fn all() -> Vec<CpuFeatures> {
        let mut copies = vec![CopyOp::Ordinary, CopyOp::Sse2];
        if std::is_x86_feature_detected!("avx") {
            copies.push(CopyOp::Avx);
        }
        if std::is_x86_feature_detected!("avx512f") {
            copies.push(CopyOp::Avx512);
        }
        let flushes = [FlushOp::Clflush, features().flush];
        let choices = copies.into_iter().flat_map(|copy| flushes.map(|flush| (copy, flush)));
        choices.flat_map(|(copy, flush)| [false, true].map(|bypass| CpuFeatures { copy, flush, bypass })).collect()
    }

    #[repr(align(64))]
    struct Room([u8; 2 * MARGIN + 512]);

    #[test]
    fn every_length_at_every_offset_is_copied_and_nothing_else() {
        let source: Vec<u8> = (0..800).map(|i| (i * 7 + i / 251) as u8).collect();
        for cpu in all() {
            for offset in 0..LINE {
                for len in 0..=300 {
                    let mut got = Room([0xEE; _]);
                    let from = &source[(offset * 5 + len) % 67..][..len];
                    let mut want = [0xEE; 2 * MARGIN + 512];
                    want[MARGIN + offset..][..len].copy_from_slice(from);
                    // SAFETY: both ranges are in bounds.
                    unsafe { copy_by(cpu, got.0.as_mut_ptr().add(MARGIN + offset), from.as_ptr(), len) };
                    fence();
                    assert!(got.0 == want, "{cpu} offset {offset} length {len}");
                    want[MARGIN + offset..][..len].fill(0);
                    // SAFETY: in bounds.
                    unsafe { zero_by(cpu, got.0.as_mut_ptr().add(MARGIN + offset), len) };
                    fence();
                    assert!(got.0 == want, "zero {cpu} offset {offset} length {len}");
                }
            }
        }
    }
}
