//! The row of a process in the lock table, which it alone writes, and others read.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

/// The most locks of a process in it.
pub(crate) const LOCKS: usize = 5;
/// Looks at a row that is being written, until it counts as a lock of everything: its process is stopped.
const LOOKS: u32 = 10_000;
/// In [`Holder::word`], left to others.
const FLAG: u32 = 1 << 31;

/// The locks of one process.
#[repr(C, align(128))]
pub(super) struct Row {
    /// The number of the process; 0: none has used the row yet.
    pub(super) id: AtomicU64,
    /// Odd while its process writes it. Counts its calls.
    pub(super) sequence: AtomicU32,
    /// How many locks it has.
    pub(super) count: AtomicU32,
    /// A bit for each that is for writing.
    pub(super) writes: AtomicU32,
    /// Calls that wait in the kernel.
    pub(super) in_kernel: AtomicU32,
    /// The slot, plus one, of the process for whose lock it waits; 0: none.
    pub(super) waits_for: AtomicU32,
    /// How many processes wait for a lock of this one. Too high after one was killed that did.
    pub(super) waited_for: AtomicU32,
    /// Process id and PID namespace, as the control page has them of an owner.
    pub(super) process: AtomicU64,
    /// First and last byte of each.
    regions: [[AtomicI64; 2]; LOCKS],
    /// Counts releases while a process waits for one: a futex.
    pub(super) releases: AtomicU32,
}

/// A process that has locks in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its slot.
    pub place: u32,
    /// Its number.
    pub id: u64,
}

/// Bytes of a lock, including the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub start: i64,
    pub last: i64,
    pub is_write: bool,
}

impl Holder {
    /// Bits of a slot, plus one, in [`word`](Self::word).
    const PLACE: u32 = 7;

    /// The slot, plus one, and the lower bits of the number. Not 0.
    #[inline]
    pub(super) fn word(self) -> u32 {
        (self.place + 1) | ((self.id as u32) << Self::PLACE & !FLAG)
    }

    pub(super) fn of_word(word: u32) -> Self {
        let place = (word & ((1 << Self::PLACE) - 1)).wrapping_sub(1);
        Self { place, id: u64::from((word & !FLAG) >> Self::PLACE) }
    }

    /// Whether `id`, the number of the process in that slot, is this one's, as far as its lower bits tell.
    #[inline]
    pub fn may_be(self, id: u64) -> bool {
        (self.id ^ id) as u32 & (!FLAG >> Self::PLACE) == 0
    }
}

impl Region {
    pub(super) fn excludes(self, other: Self) -> bool {
        self.start <= other.last && other.start <= self.last && (self.is_write || other.is_write)
    }
}

impl Row {
    /// Only its own process calls it, one thread at a time.
    #[inline]
    pub(super) fn write(&self, regions: &[Region]) {
        let regions = &regions[..regions.len().min(LOCKS)];
        let odd = self.sequence.load(Ordering::Relaxed) | 1;
        self.sequence.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut writes = 0;
        for (at, (to, region)) in self.regions.iter().zip(regions).enumerate() {
            to[0].store(region.start, Ordering::Relaxed);
            to[1].store(region.last, Ordering::Relaxed);
            writes |= u32::from(region.is_write) << at;
        }
        self.writes.store(writes, Ordering::Relaxed);
        self.count.store(regions.len() as u32, Ordering::Relaxed);
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// The first lock that `is_wanted`. A row that is never whole counts as a lock of the whole file.
    #[inline]
    pub(super) fn find(&self, is_wanted: impl Fn(Region) -> bool, is_gone: impl Fn() -> bool) -> Option<Region> {
        for look in 0..LOOKS {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence & 1 == 0 {
                let count = (self.count.load(Ordering::Relaxed) as usize).min(LOCKS);
                let writes = self.writes.load(Ordering::Relaxed);
                let region = |at: usize| {
                    let [start, last] = self.regions[at].each_ref().map(|word| word.load(Ordering::Relaxed));
                    Region { start, last, is_write: writes >> at & 1 != 0 }
                };
                let found = (0..count).map(region).find(|&region| is_wanted(region));
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == sequence {
                    return found;
                }
            } else if look % 64 == 63 {
                if is_gone() {
                    return None;
                }
                rustix::thread::sched_yield();
            }
            core::hint::spin_loop();
        }
        Some(Region { start: 0, last: i64::MAX, is_write: true })
    }
}
