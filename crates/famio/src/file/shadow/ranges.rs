//! Which of the program's addresses are maps of atomic files.

use crate::thread::{Guard, Mutex};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A map of the program's, or what is left of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MappedRange {
    pub start: usize,
    pub end: usize,
    /// Device and inode of the file.
    pub key: (u64, u64),
    /// Where in the file `start` is.
    pub offset: u64,
    /// The protection it was last seen with.
    pub prot: i32,
    /// The file was opened for writing: its protection may become writable.
    pub may_store: bool,
    /// It was writable once: there may be stores.
    pub stores: bool,
    /// It is of the shadow, and not of the file itself.
    pub shadow: bool,
    /// The kernel says which of its pages were stored to ([`super::watch`]).
    pub watched: bool,
    /// All of it is to be looked at, once more.
    pub whole: bool,
}

impl MappedRange {
    /// The file's bytes that lie in it.
    pub fn in_file(&self) -> core::ops::Range<u64> {
        self.offset..self.offset + (self.end - self.start) as u64
    }
}

/// The second is used by a child whose parent was at the first when it forked.
static RANGES: [Mutex<Vec<MappedRange>>; 2] = [const { Mutex::new(Vec::new()) }; 2];
static WHICH: AtomicUsize = AtomicUsize::new(0);
/// The key of maps that a forked child has from its parent.
const NOBODYS: (u64, u64) = (0, 0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether there are any: programs that map no atomic file pay a load.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// The list, for a change. It says how many there are when it is let go.
pub(super) struct Ranges(Guard<'static, Vec<MappedRange>>);

pub(super) fn lock() -> Ranges {
    Ranges(RANGES[WHICH.load(Ordering::Acquire)].lock())
}

/// In a forked child: the maps are of the parent's files, and so of none here.
pub(crate) fn disown() {
    match RANGES[WHICH.load(Ordering::Acquire)].try_lock() {
        Some(mut ranges) => ranges.iter_mut().for_each(|range| range.key = NOBODYS),
        None => {
            WHICH.store(1, Ordering::Release);
            COUNT.store(0, Ordering::Release);
        }
    }
}

impl Drop for Ranges {
    fn drop(&mut self) {
        COUNT.store(self.0.len(), Ordering::Release);
    }
}

/// Whether there is one of this file that is such.
pub(super) fn has(key: (u64, u64), such: impl Fn(&MappedRange) -> bool) -> bool {
    lock().0.iter().any(|range| range.key == key && such(range))
}

impl Ranges {
    pub fn add(&mut self, range: MappedRange) {
        if range.start < range.end {
            self.0.push(range);
        }
    }

    /// Cuts ranges at the bounds of `start..end`, and gives those inside.
    pub fn inside(&mut self, start: usize, end: usize) -> impl Iterator<Item = &mut MappedRange> {
        for bound in [start, end] {
            if let Some(range) = self.0.iter_mut().find(|range| range.start < bound && bound < range.end) {
                let mut upper = range.clone();
                upper.offset += (bound - range.start) as u64;
                upper.start = bound;
                range.end = bound;
                self.0.push(upper);
            }
        }
        self.0.iter_mut().filter(move |range| start <= range.start && range.end <= end)
    }

    /// Takes those out that lie in `start..end`.
    pub fn take(&mut self, start: usize, end: usize) -> Vec<MappedRange> {
        let taken: Vec<MappedRange> = self.inside(start, end).map(|range| range.clone()).collect();
        self.0.retain(|range| !(start <= range.start && range.end <= end));
        taken
    }

    /// Those with a byte in `start..end`, whole.
    pub fn touching(&self, start: usize, end: usize) -> impl Iterator<Item = &MappedRange> {
        self.0.iter().filter(move |range| range.start < end && start < range.end)
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut MappedRange> {
        self.0.iter_mut()
    }

    pub fn of(&mut self, key: (u64, u64)) -> impl Iterator<Item = &mut MappedRange> {
        self.0.iter_mut().filter(move |range| range.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: usize, end: usize, offset: u64) -> MappedRange {
        MappedRange {
            start,
            end,
            key: (0, 77),
            offset,
            prot: 1,
            may_store: true,
            stores: false,
            shadow: true,
            watched: false,
            whole: true,
        }
    }

    #[test]
    fn what_is_taken_from_the_middle_leaves_both_ends() {
        let mut ranges = lock();
        ranges.add(range(0x1000, 0x9000, 0x100000));
        let taken = ranges.take(0x3000, 0x5000);
        assert_eq!(taken, [range(0x3000, 0x5000, 0x102000)]);
        assert_eq!(taken[0].in_file(), 0x102000..0x104000);
        let mut left: Vec<_> = ranges.of((0, 77)).map(|range| range.clone()).collect();
        left.sort_by_key(|range| range.start);
        assert_eq!(left, [range(0x1000, 0x3000, 0x100000), range(0x5000, 0x9000, 0x104000)]);
        assert!(ranges.take(0x9000, 0x10000).is_empty());
        assert_eq!(ranges.take(0, 0x10000).len(), 2);
        drop(ranges);
        assert!(!has((0, 77), |_| true));
    }
}
