//! The cell of a block: where its bytes live.

use crate::index::lock::SharedLock;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use core::sync::atomic::compiler_fence;

/// A copy in DRAM of one version of a journal entry: which granules of the block live in the log block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Version {
    /// The epoch that wrote it; 0: there is none.
    pub epoch: u64,
    /// Bit *i*: granule *i* lives in the log block (for undo: the log block holds its pre-image).
    pub granules: u64,
}

/// One cell per block. All fields change only under `lock`, with `sequence` odd meanwhile; readers take no lock.
#[repr(C, align(64))]
pub(crate) struct Cell {
    /// Taken by writers and by checkpoints, in file order.
    pub lock: SharedLock,
    sequence: AtomicU32,
    /// Number of the log block and its entry, plus one; 0: the block lives in the file alone.
    pub entry: AtomicU32,
    /// What the engine stores about the entry; in-place journals store its kind.
    pub kind: AtomicU32,
    epochs: [AtomicU64; 2],
    granules: [AtomicU64; 2],
    /// The value of `Shared::transactions` after the last transaction that changed the block; 0:
    /// none has.
    pub transaction: AtomicU64,
    /// Granules written by ordinary stores and not flushed yet.
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

    /// Changes version `which`; the lock is held and the sequence odd. If the process is killed at any instruction,
    /// the cell names only bytes that exist: earlier stores come before this one, and the granules before the epoch
    /// that makes them count.
    #[inline]
    pub fn set_version(&self, which: usize, version: Version) {
        compiler_fence(Ordering::Release);
        self.granules[which].store(version.granules, Ordering::Relaxed);
        self.epochs[which].store(version.epoch, Ordering::Release);
    }

    /// The highest version for epochs up to `limit`, with its number.
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

    /// Makes the sequence odd until the guard is dropped, so that readers retry. The lock is held.
    #[inline]
    pub fn changing(&self) -> Changing<'_> {
        self.sequence.store(self.sequence.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        Changing(self)
    }

    /// As [`changing`](Self::changing), at the end of a change in exclusive mode. A thread that read meanwhile finds
    /// the writer still named (`Gate::is_joined`), or else a new sequence.
    #[inline]
    pub fn changed_alone(&self) {
        self.sequence.store(self.sequence.load(Ordering::Relaxed).wrapping_add(2), Ordering::Release);
    }

    /// Begins an optimistic read: the sequence, or `None` if a writer is changing the block.
    #[inline]
    pub fn begin_read(&self) -> Option<u32> {
        let seen = self.sequence.load(Ordering::Acquire);
        (seen & 1 == 0).then_some(seen)
    }

    /// The sequence, even if it is odd. It only means something while no thread can change the block.
    #[inline]
    pub fn sequence(&self) -> u32 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// Whether the sequence is still `seen`, so that what was read is valid.
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
        // Its holder has fenced its non-temporal stores, so that a reader of the even value sees them; or it has exclusive
        // mode, which readers look for.
        sequence.store(sequence.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        // SAFETY: a cell consists of atomic integers and arrays of them: zeros are a valid cell.
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
