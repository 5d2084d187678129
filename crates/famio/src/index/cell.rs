//! One block of the file: where its bytes live.

use super::lock::SharedLock;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use core::sync::atomic::compiler_fence;

/// A copy, in DRAM, of one version of a journal entry: which granules of the block live in the log block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Version {
    /// The epoch that wrote it; 0: there is none.
    pub epoch: u64,
    /// Bit *i*: granule *i* lives in the log block (for undo: the log block holds its pre-image).
    pub granules: u64,
}

/// One cell a block. All fields change only under `lock`, with `sequence` odd meanwhile; readers take no lock.
#[repr(C, align(64))]
pub(crate) struct Cell {
    /// Taken by writers and by settling, in file order.
    pub lock: SharedLock,
    sequence: AtomicU32,
    /// Number of the log block and its entry, plus one; 0: the block lives in the file alone.
    pub entry: AtomicU32,
    /// What the engine keeps of the entry: for journals in place its kind.
    pub kind: AtomicU32,
    epochs: [AtomicU64; 2],
    granules: [AtomicU64; 2],
    /// What [`Shared::transactions`](super::Shared) became by the last transaction that changed the block; 0: none has.
    pub transaction: AtomicU64,
    /// Granules stored by ordinary stores that nobody has flushed yet.
    pub unflushed: AtomicU64,
}

const _: () = assert!(size_of::<Cell>() == 64);

impl Cell {
    /// Version `which` (0 or 1).
    #[inline]
    pub fn version(&self, which: usize) -> Version {
        Version {
            epoch: self.epochs[which].load(Ordering::Relaxed),
            granules: self.granules[which].load(Ordering::Relaxed),
        }
    }

    /// Changes version `which`; the lock is held and the sequence odd. A process that is killed at any instruction leaves a
    /// cell that names bytes which are there: what came before this is stored before it, and the granules before the epoch that
    /// makes them count.
    #[inline]
    pub fn set_version(&self, which: usize, version: Version) {
        compiler_fence(Ordering::Release);
        self.granules[which].store(version.granules, Ordering::Relaxed);
        self.epochs[which].store(version.epoch, Ordering::Release);
    }

    /// The version that holds for epochs up to `limit`: the highest there is, with its place.
    #[inline]
    pub fn holding(&self, limit: u64) -> Option<(usize, Version)> {
        let (a, b) = (self.version(0), self.version(1));
        let sound = |v: &Version| v.epoch != 0 && v.epoch <= limit;
        match (sound(&a), sound(&b)) {
            (true, true) => Some(if a.epoch > b.epoch { (0, a) } else { (1, b) }),
            (true, false) => Some((0, a)),
            (false, true) => Some((1, b)),
            (false, false) => None,
        }
    }

    /// Tells readers that the block changes until the guard is dropped; the lock is held.
    #[inline]
    pub fn changing(&self) -> Changing<'_> {
        self.sequence.store(self.sequence.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        Changing(self)
    }

    /// As [`changing`](Self::changing), at the end of a change by the thread that has the file alone. Who read meanwhile finds
    /// that thread named ([`is_joined`](super::gate::Gate::is_joined)), or, once it is named no more, this.
    #[inline]
    pub fn changed_alone(&self) {
        self.sequence.store(self.sequence.load(Ordering::Relaxed).wrapping_add(2), Ordering::Release);
    }

    /// Begins an optimistic read: the sequence, if no writer is at the block.
    #[inline]
    pub fn begin_read(&self) -> Option<u32> {
        let seen = self.sequence.load(Ordering::Acquire);
        (seen & 1 == 0).then_some(seen)
    }

    /// The sequence, whatever it is. It says something while nobody can change the block.
    #[inline]
    pub fn sequence(&self) -> u32 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// Whether what was read since `seen` holds.
    #[inline]
    pub fn still(&self, seen: u32) -> bool {
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == seen
    }
}

/// The block is being changed; readers retry.
pub(crate) struct Changing<'a>(&'a Cell);

impl Drop for Changing<'_> {
    #[inline]
    fn drop(&mut self) {
        let sequence = &self.0.sequence;
        // Whoever dropped this fenced its non-temporal stores before, so that a reader who sees the even value sees them.
        sequence.store(sequence.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        // SAFETY: a cell is made of atomic integers and arrays of them: zeros are a valid cell.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn the_highest_version_up_to_the_limit_holds() {
        let c = cell();
        assert_eq!(c.holding(9), None);
        c.set_version(0, Version { epoch: 4, granules: 1 });
        c.set_version(1, Version { epoch: 5, granules: 2 });
        assert_eq!(c.holding(4), Some((0, c.version(0))));
        assert_eq!(c.holding(5), Some((1, c.version(1))));
        assert_eq!(c.holding(3), None);
    }

    #[test]
    fn a_reader_sees_a_change() {
        let c = cell();
        let seen = c.begin_read().unwrap();
        {
            let _change = c.changing();
            assert_eq!(c.begin_read(), None);
        }
        assert!(!c.still(seen));
        assert!(c.still(c.begin_read().unwrap()));
    }
}
