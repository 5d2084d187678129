//! Copies by ordinary stores, within the caches.
//!
//! From about 2 KiB to some hundred KiB, libc's `memcpy` is `rep movsb` on many processors. That is slow if the
//! destination lies 1 to 16 bytes further in its page than the source: as with a block of a file and a buffer of
//! `malloc`, which begins 16 bytes after the page that it got from the kernel. A plain loop of vectors is not. Zen 5, 4
//! KiB in order from 512 MiB in huge pages, GB/s of libc and of this loop: 32 and 31 if both lie alike, 9.6 and 31 at
//! 16 bytes, 3.5 and 31 at 8; at random 10 and 11, 7.0 and 8.9. Longer pieces libc stores around the cache.

/// What is shorter, libc copies as fast.
pub(crate) const OWN_FROM: usize = 1024;

/// Copies `len` bytes, in ascending order. The ranges need not be mapped if a guard is around it
/// (`map::guard`).
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`] of bytes; but other threads may write to them, whose bytes arrive in either
/// state.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= OWN_FROM && vectors::serve(len) {
        // SAFETY: the caller's promise, and the processor has them.
        return unsafe { vectors::copy(dst, src, len) };
    }
    // libc's `memcpy`, since Rust's requires valid pointers.
    // SAFETY: the caller's promise.
    unsafe { libc::memcpy(dst.cast(), src.cast(), len) };
}

#[cfg(target_arch = "x86_64")]
mod vectors {
    use crate::pmem::cpu::{CopyOp, features};
    use core::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_store_si256, _mm256_storeu_si256};

    /// What is longer would not stay in a cache: libc knows better.
    const BELOW: usize = 8 << 20;
    /// The same on processors (Intel's) where it was not measured, and `rep movsb` need not read what it overwrites.
    const BELOW_ELSEWHERE: usize = 256 << 10;

    const VECTOR: usize = size_of::<__m256i>();

    /// Whether the processor has them, and this many bytes are copied faster by them.
    #[inline]
    pub fn serve(len: usize) -> bool {
        let cpu = features();
        let below = if cpu.bypass { BELOW_ELSEWHERE } else { BELOW };
        len < below && matches!(cpu.copy, CopyOp::Avx | CopyOp::Avx512)
    }

    /// # Safety
    /// As [`super::copy`], with at least a vector's length; the processor has AVX.
    #[target_feature(enable = "avx")]
    pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        debug_assert!(len >= VECTOR);
        let (to, from) = (|at: usize| dst.wrapping_add(at).cast(), |at: usize| src.wrapping_add(at).cast());
        // SAFETY: each load and store lies in the caller's ranges: the loops end before the last vector's length is
        // exceeded; the first and the last vector may overlap with others, which carry the same bytes. From `head` on
        // the destination is aligned.
        unsafe {
            let head = dst.align_offset(VECTOR);
            _mm256_storeu_si256(to(0), _mm256_loadu_si256(from(0)));
            let mut at = head;
            // Without arrays, which the compiler would keep in memory.
            while at + 4 * VECTOR <= len {
                let first = _mm256_loadu_si256(from(at));
                let second = _mm256_loadu_si256(from(at + VECTOR));
                let third = _mm256_loadu_si256(from(at + 2 * VECTOR));
                let fourth = _mm256_loadu_si256(from(at + 3 * VECTOR));
                _mm256_store_si256(to(at), first);
                _mm256_store_si256(to(at + VECTOR), second);
                _mm256_store_si256(to(at + 2 * VECTOR), third);
                _mm256_store_si256(to(at + 3 * VECTOR), fourth);
                at += 4 * VECTOR;
            }
            while at + VECTOR <= len {
                _mm256_store_si256(to(at), _mm256_loadu_si256(from(at)));
                at += VECTOR;
            }
            _mm256_storeu_si256(to(len - VECTOR), _mm256_loadu_si256(from(len - VECTOR)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_at_every_offset_is_copied_and_nothing_else() {
        let source: Vec<u8> = (0..9000).map(|i| (i * 7 + i / 251) as u8).collect();
        for offset in 0..65 {
            for len in (0..70).chain(1000..1200).chain([2048, 4096, 4097, 8000]) {
                let from = &source[(offset * 5 + len) % 67..][..len];
                let mut got = vec![0xEE; len + 200];
                let mut want = got.clone();
                want[offset..][..len].copy_from_slice(from);
                // SAFETY: both ranges are in bounds.
                unsafe { copy(got.as_mut_ptr().add(offset), from.as_ptr(), len) };
                assert!(got == want, "offset {offset}, length {len}");
            }
        }
    }
}
