//! Which instructions this CPU has for writing to persistent memory, found out once.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

/// The instruction that writes a cache line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlushOp {
    /// x86 `clflush`: evicts, and each waits for the one before.
    Clflush = 0,
    /// x86 `clflushopt`: evicts.
    Clflushopt = 1,
    /// x86 `clwb`: writes back, may keep the line.
    Clwb = 2,
    /// Arm `dc cvac`: to the point of coherency.
    DcCvac = 3,
    /// Arm `dc cvap`: to the point of persistence.
    DcCvap = 4,
}

/// What carries copies of whole cache lines.
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

/// What was chosen for this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuFeatures {
    /// How lines are written back.
    pub flush: FlushOp,
    /// How whole lines are copied.
    pub copy: CopyOp,
}

/// Zero: not asked yet. Otherwise `KNOWN | copy << 3 | flush`. Two threads that ask at once find the same.
static CHOSEN: AtomicU8 = AtomicU8::new(0);
const KNOWN: u8 = 0x80;

/// The choice for this CPU. The first call asks it; no call does I/O, allocates or locks.
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
        KNOWN | (self.copy as u8) << 3 | self.flush as u8
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
        Self { flush, copy }
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> CpuFeatures {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;
    // std's detection knows neither of the two.
    let leaf7 = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    let flush = if leaf7 & CLWB != 0 {
        FlushOp::Clwb
    } else if leaf7 & CLFLUSHOPT != 0 {
        FlushOp::Clflushopt
    } else {
        FlushOp::Clflush
    };
    let copy = if std::is_x86_feature_detected!("avx512f") {
        CopyOp::Avx512
    } else if std::is_x86_feature_detected!("avx") {
        CopyOp::Avx
    } else {
        CopyOp::Sse2
    };
    CpuFeatures { flush, copy }
}

#[cfg(target_arch = "aarch64")]
fn detect() -> CpuFeatures {
    const HWCAP_DCPOP: u64 = 1 << 16;
    // SAFETY: reads the auxiliary vector that libc keeps in memory.
    let hwcap = unsafe { libc::getauxval(libc::AT_HWCAP) };
    let flush = if hwcap & HWCAP_DCPOP != 0 { FlushOp::DcCvap } else { FlushOp::DcCvac };
    CpuFeatures { flush, copy: CopyOp::Ordinary }
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
        write!(f, "write-back by {}, copies by {}", self.flush, self.copy)
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
                let choice = CpuFeatures { flush, copy };
                assert_eq!(CpuFeatures::unpack(choice.pack()), choice);
            }
        }
        assert_eq!(features(), detect());
        assert_eq!(features(), features());
    }
}
