//! Which instructions this CPU has for writing to persistent memory; detected once.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

/// The instruction that writes a cache line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlushOp {
    /// x86 `clflush`: evicts the line; each waits for the previous one.
    Clflush = 0,
    /// x86 `clflushopt`: evicts the line.
    Clflushopt = 1,
    /// x86 `clwb`: writes the line back, and may keep it.
    Clwb = 2,
    /// Arm `dc cvac`: to the point of coherency.
    DcCvac = 3,
    /// Arm `dc cvap`: to the point of persistence.
    DcCvap = 4,
}

/// How whole cache lines are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CopyOp {
    /// Ordinary stores, then a flush of each line.
    Ordinary = 0,
    /// Non-temporal stores of 16 bytes.
    Sse2 = 1,
    /// Non-temporal stores of 32 bytes.
    Avx = 2,
    /// Non-temporal stores of a whole line.
    Avx512 = 3,
}

/// The choice for this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuFeatures {
    /// How lines are written back.
    pub flush: FlushOp,
    /// How whole lines are copied.
    pub copy: CopyOp,
    /// Non-temporal stores reach memory at the fence, wherever the line was before. If false (AMD; measured on
    /// Zen 5), their lines are flushed as well.
    ///
    /// Zen 5, one line, cycles until a full fence is done, then for the flush of what is left: the line in no cache or
    /// in L2 only: 338 to 546, then 286, as for a line that is nowhere; the line in L1: 78, then 494, as for a line
    /// that an ordinary store made dirty. So a non-temporal store to a line in L1, of any width, 64 bytes too, stays in
    /// L1. Intel's manual says that the line is evicted, and that only some older CPUs (Pentium M) updated it in place.
    pub bypass: bool,
}

/// Zero: not detected yet. Otherwise `KNOWN | bypass << 5 | copy << 3 | flush`. Threads that detect at the same time
/// find the same.
static CHOSEN: AtomicU8 = AtomicU8::new(0);
const KNOWN: u8 = 0x80;

/// The choice for this CPU. The first call detects it; no call does I/O, allocates or locks.
#[inline]
pub fn features() -> CpuFeatures {
    let bits = CHOSEN.load(Ordering::Relaxed);
    CpuFeatures::unpack(if bits == 0 { find() } else { bits })
}

#[cold]
fn find() -> u8 {
    let bits = detect().pack();
    CHOSEN.store(bits, Ordering::Relaxed);
    bits
}

impl CpuFeatures {
    const fn pack(self) -> u8 {
        KNOWN | (self.bypass as u8) << 5 | (self.copy as u8) << 3 | self.flush as u8
    }

    #[inline]
    const fn unpack(bits: u8) -> Self {
        let flush = match bits & 7 {
            0 => FlushOp::Clflush,
            1 => FlushOp::Clflushopt,
            2 => FlushOp::Clwb,
            3 => FlushOp::DcCvac,
            _ => FlushOp::DcCvap,
        };
        let copy = match (bits >> 3) & 3 {
            0 => CopyOp::Ordinary,
            1 => CopyOp::Sse2,
            2 => CopyOp::Avx,
            _ => CopyOp::Avx512,
        };
        Self { flush, copy, bypass: bits & 1 << 5 != 0 }
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> CpuFeatures {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;
    let leaf0 = __cpuid(0);
    // std's feature detection supports neither.
    let leaf7 = if leaf0.eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    let flush = if leaf7 & CLWB != 0 {
        FlushOp::Clwb
    } else if leaf7 & CLFLUSHOPT != 0 {
        FlushOp::Clflushopt
    } else {
        FlushOp::Clflush
    };
    // The width makes no difference to speed (measured on Zen 5, 64 B to 1 MiB: AVX to AVX-512 0.97 to 1.03, SSE2 to
    // AVX-512 0.98 to 1.03), so that AVX-512 is taken only from the generation on that does not lower its clock for it
    // (Ice Lake, Zen 4): it has the merit that a line leaves in one store.
    let copy = if std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512vbmi2") {
        CopyOp::Avx512
    } else if std::is_x86_feature_detected!("avx") {
        CopyOp::Avx
    } else {
        CopyOp::Sse2
    };
    let vendor = [leaf0.ebx, leaf0.edx, leaf0.ecx].map(u32::to_le_bytes);
    CpuFeatures { flush, copy, bypass: vendor.as_flattened() == b"GenuineIntel" }
}

#[cfg(target_arch = "aarch64")]
fn detect() -> CpuFeatures {
    const HWCAP_DCPOP: u64 = 1 << 16;
    // SAFETY: reads the auxiliary vector that libc keeps in memory.
    let hwcap = unsafe { libc::getauxval(libc::AT_HWCAP) };
    let flush = if hwcap & HWCAP_DCPOP != 0 { FlushOp::DcCvap } else { FlushOp::DcCvac };
    CpuFeatures { flush, copy: CopyOp::Ordinary, bypass: false }
}

impl fmt::Display for FlushOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FlushOp::Clflush => "clflush",
            FlushOp::Clflushopt => "clflushopt",
            FlushOp::Clwb => "clwb",
            FlushOp::DcCvac => "dc cvac",
            FlushOp::DcCvap => "dc cvap",
        })
    }
}

impl fmt::Display for CopyOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CopyOp::Ordinary => "ordinary stores",
            CopyOp::Sse2 => "SSE2 non-temporal stores",
            CopyOp::Avx => "AVX non-temporal stores",
            CopyOp::Avx512 => "AVX-512 non-temporal stores",
        })
    }
}

impl fmt::Display for CpuFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write-back by {}, copies by {}", self.flush, self.copy)?;
        if self.copy != CopyOp::Ordinary && !self.bypass {
            f.write_str(" and write-backs (on this CPU they can stay in the cache)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_packs() {
        use {CopyOp::*, FlushOp::*};
        for flush in [Clflush, Clflushopt, Clwb, DcCvac, DcCvap] {
            for copy in [Ordinary, Sse2, Avx, Avx512] {
                for bypass in [false, true] {
                    let choice = CpuFeatures { flush, copy, bypass };
                    assert_eq!(CpuFeatures::unpack(choice.pack()), choice);
                }
            }
        }
        assert_eq!(features(), detect());
        assert_eq!(features(), features());
    }
}
