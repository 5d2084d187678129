//! The program's addresses that are maps of atomic files.

use super::mapped_range::MappedRange;
use super::places::{self, Old, Slot};
use super::watch;
use crate::fast_path::FAST_PATH;
use crate::file::state::shadow_memory::Shadow;
use crate::thread::{Guard, Mutex};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The maps of the process.
pub(super) struct List {
    maps: Vec<MappedRange>,
    gone: Vec<Gone>,
    /// Ranges of files that a forked child may have mapped for writing. It stores there unseen, whatever this process
    /// maps now.
    inherited: Vec<((u64, u64), Range<u64>)>,
    /// The number of maps ever added to `gone`.
    serial: u64,
    /// Earlier states of [`places`] that a thread may still use.
    old: Vec<Old>,
}

/// Ranges of files that were mapped for writing and are not any more: they may have stores that no SYNC has seen. In
/// the same list as the maps, so that a SYNC during an `munmap` sees the one or the other.
struct Gone {
    key: (u64, u64),
    in_file: Range<u64>,
    serial: u64,
}

impl List {
    const fn new() -> Self {
        Self { maps: Vec::new(), gone: Vec::new(), inherited: Vec::new(), serial: 0, old: Vec::new() }
    }
}

/// The second is for a child whose parent held the first when it forked.
static RANGES: [Mutex<List>; 2] = [const { Mutex::new(List::new()) }; 2];
static WHICH: AtomicUsize = AtomicUsize::new(0);
/// A child may have inherited maps: there was a fork while some were there.
static HAS_INHERITED: AtomicBool = AtomicBool::new(false);
/// The key of maps that a forked child has from its parent.
pub(super) const NOBODYS: (u64, u64) = (0, 0);

/// Whether there are any. Programs that map no atomic file pay one load.
#[inline]
pub(crate) fn any() -> bool {
    FAST_PATH.maps.load(Ordering::Acquire) != 0
}

/// Whether the program has maps of this file other than the kernel's.
pub(crate) fn is_mapped(key: (u64, u64)) -> bool {
    has(key, |range| range.shadow)
}

/// Whether this process may store to this file's shadow, or may have stored what no SYNC has seen.
pub(crate) fn may_have_stores(key: (u64, u64)) -> bool {
    has(key, |range| range.shadow && range.changes()) || has_gone(key)
}

/// The number of private maps: what the kernel is told about those needs a check.
static PRIVATE: AtomicUsize = AtomicUsize::new(0);

/// Whether there are private maps.
#[inline]
pub(crate) fn any_private() -> bool {
    PRIVATE.load(Ordering::Acquire) != 0
}

/// The list, locked for a change. On release it publishes the number of maps, and updates [`places`].
pub(super) struct Ranges {
    list: Guard<'static, List>,
    /// Addresses at which something has changed.
    changed: Vec<(usize, usize)>,
    /// Maps were removed.
    fewer: bool,
    /// Released after the list, since files may go with it.
    over: Vec<Old>,
}

pub(super) fn lock() -> Ranges {
    let list = RANGES[WHICH.load(Ordering::Acquire)].lock();
    Ranges { list, changed: Vec::new(), fewer: false, over: Vec::new() }
}

/// In a forked child: the maps belong to the parent's files.
pub(crate) fn disown() {
    PRIVATE.store(0, Ordering::Release);
    match RANGES[WHICH.load(Ordering::Acquire)].try_lock() {
        Some(mut list) => {
            list.maps.retain(|range| !range.cow); // a child does not get those
            FAST_PATH.maps.store(list.maps.len(), Ordering::Release);
            list.maps.iter_mut().for_each(|range| range.key = NOBODYS);
            list.gone.clear();
            list.inherited.clear();
        }
        None => {
            WHICH.store(1, Ordering::Release);
            FAST_PATH.maps.store(0, Ordering::Release);
        }
    }
}

impl Drop for Ranges {
    fn drop(&mut self) {
        FAST_PATH.maps.store(self.list.maps.len(), Ordering::Release);
        PRIVATE.store(self.list.maps.iter().filter(|range| range.cow).count(), Ordering::Release);
        for window in core::mem::take(&mut self.changed) {
            let slots = |start, end| self.touching(start, end).map(slot_of).collect();
            let old = places::replace(window, slots);
            self.list.old.extend(old);
        }
        if !self.list.old.is_empty() {
            let wait = self.fewer;
            self.over = self.list.old.extract_if(.., |old| old.is_over(wait)).collect();
        }
    }
}

fn slot_of(range: &MappedRange) -> Slot {
    let (start, end, offset, changes, copies) = (range.start, range.end, range.offset, range.changes(), range.copies);
    Slot { start, end, next: end, offset, changes, copies, file: range.file.0.clone(), ahead: range.ahead.get() }
}

/// Whether a map of this file satisfies `such`.
pub(super) fn has(key: (u64, u64), such: impl Fn(&MappedRange) -> bool) -> bool {
    any() && lock().list.maps.iter().any(|range| range.key == key && such(range))
}

/// Whether there were maps of this file, now gone, with stores that no SYNC has seen.
pub(super) fn has_gone(key: (u64, u64)) -> bool {
    lock().list.gone.iter().any(|gone| gone.key == key)
}

/// Whether a map has a byte in `start..end`, as far as that is known without waiting.
pub(crate) fn may_touch(start: usize, end: usize) -> bool {
    RANGES[WHICH.load(Ordering::Acquire)]
        .try_lock()
        .is_some_and(|list| list.maps.iter().any(|range| range.start < end && start < range.end))
}

/// Whether a map has a byte in `start..end`.
pub(crate) fn touches(start: usize, end: usize) -> bool {
    lock().touching(start, end).next().is_some()
}

/// The program has closed the file: what a child stores there is nobody's.
pub(crate) fn forget_inherited(key: (u64, u64)) {
    if HAS_INHERITED.load(Ordering::Acquire) {
        lock().list.inherited.retain(|(of, _)| *of != key);
    }
}

/// Whether a map may have a byte there. Takes no lock.
pub(crate) fn may_have_map(start: usize, len: usize) -> bool {
    any() && places::has_map(start, start.saturating_add(len))
}

/// Before advice to the kernel for `start..end`, after which page tables may go without a trace. Waits only if a map
/// is there: an allocator may give such advice for its own memory, with a lock of its own.
pub(crate) fn may_lose_page_tables(start: usize, end: usize) {
    if any() && places::has_map(start, end) {
        lock().look_exactly(start, end);
    }
}

/// The keys of all mapped files.
pub(crate) fn files() -> Vec<(u64, u64)> {
    if any() { keys(lock().list.maps.iter().filter(|range| range.key != NOBODYS)) } else { Vec::new() }
}

/// The keys of some maps, each once.
pub(super) fn keys<'a>(maps: impl IntoIterator<Item = &'a MappedRange>) -> Vec<(u64, u64)> {
    let mut keys: Vec<_> = maps.into_iter().map(|range| range.key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Ranges {
    pub fn add(&mut self, range: MappedRange) {
        if range.start < range.end {
            self.changed.push((range.start, range.end));
            self.list.maps.push(range);
        }
    }

    /// Cuts maps at the bounds of `start..end`, and returns those inside.
    pub fn inside(&mut self, start: usize, end: usize) -> impl Iterator<Item = &mut MappedRange> {
        if start < end && self.touching(start, end).next().is_some() {
            self.changed.push((start, end));
        }
        for bound in [start, end] {
            if let Some(range) = self.list.maps.iter_mut().find(|range| range.start < bound && bound < range.end) {
                range.ahead.end();
                let mut upper = range.clone();
                upper.offset += (bound - range.start) as u64;
                upper.start = bound;
                range.end = bound;
                self.list.maps.push(upper);
            }
        }
        self.list.maps.iter_mut().filter(move |range| start <= range.start && range.end <= end)
    }

    /// Removes and returns the maps in `start..end`. Their stores are still to be taken.
    pub fn take(&mut self, start: usize, end: usize) -> Vec<MappedRange> {
        let take = |range: &mut MappedRange| {
            range.ahead.end();
            range.clone()
        };
        let taken: Vec<MappedRange> = self.inside(start, end).map(take).collect();
        self.list.maps.retain(|range| !(start <= range.start && range.end <= end));
        self.fewer |= !taken.is_empty();
        let leaves_stores =
            |range: &&MappedRange| range.changes() && range.shadow && !range.cow && range.key != NOBODYS;
        for range in taken.iter().filter(leaves_stores) {
            self.list.serial += 1;
            let gone = Gone { key: range.key, in_file: range.in_file(), serial: self.list.serial };
            self.list.gone.push(gone);
        }
        taken
    }

    /// Where the program may have stored to this file's shadow since the last call, and the number for
    /// [`were_taken`](Self::were_taken).
    pub fn take_stored(&mut self, key: (u64, u64), shadow: &Shadow) -> (Vec<Range<u64>>, u64) {
        let mut stored = Vec::new();
        for range in self.of(key).filter(|range| range.stores && range.shadow && !range.cow) {
            stored.extend(watch::take(range, shadow.size(), |at| shadow.next_data(at)));
        }
        stored.extend(self.unwatched(key));
        (stored, self.list.serial)
    }

    /// Where the program may ever have stored to this file's shadow without it being known as taken; otherwise as
    /// [`take_stored`](Self::take_stored).
    pub fn stored(&self, key: (u64, u64)) -> (Vec<Range<u64>>, u64) {
        let maps = self.list.maps.iter().filter(|range| range.key == key && range.changes() && range.shadow);
        (maps.map(MappedRange::in_file).chain(self.unwatched(key)).collect(), self.list.serial)
    }

    /// Where stores are seen only by comparing all bytes.
    fn unwatched(&self, key: (u64, u64)) -> impl Iterator<Item = Range<u64>> {
        let gone = self.list.gone.iter().filter(move |gone| gone.key == key).map(|gone| gone.in_file.clone());
        let inherited = self.list.inherited.iter().filter(move |(of, _)| *of == key);
        gone.chain(inherited.map(|(_, in_file)| in_file.clone()))
    }

    /// Before a fork, whose child will have these maps, too.
    pub fn before_fork(&mut self) {
        let List { maps, inherited, .. } = &mut *self.list;
        for range in maps {
            watch::end(range);
            let new = (range.key, range.in_file());
            if range.stores && range.shadow && !range.cow && !inherited.contains(&new) {
                inherited.push(new);
                HAS_INHERITED.store(true, Ordering::Release);
            }
        }
    }

    /// Stores in maps that are gone are in the epoch now, except those that are to be looked at `again`.
    pub fn were_taken(&mut self, key: (u64, u64), serial: u64, again: Vec<Range<u64>>) {
        self.list.gone.retain(|gone| gone.key != key || gone.serial > serial);
        self.list.gone.extend(again.into_iter().map(|in_file| Gone { key, in_file, serial }));
    }

    /// Page tables in `start..end` may go without a trace from now on.
    pub fn look_exactly(&mut self, start: usize, end: usize) {
        let there = self.list.maps.iter_mut().filter(|range| range.start < end && start < range.end);
        there.for_each(|range| range.exact = true);
    }

    /// The maps with a byte in `start..end`, whole.
    pub fn touching(&self, start: usize, end: usize) -> impl Iterator<Item = &MappedRange> {
        self.list.maps.iter().filter(move |range| range.start < end && start < range.end)
    }

    pub fn of(&mut self, key: (u64, u64)) -> impl Iterator<Item = &mut MappedRange> {
        self.list.maps.iter_mut().filter(move |range| range.key == key)
    }
}

/// Copies of the private maps of a file.
pub(super) fn private_of(key: (u64, u64)) -> Vec<MappedRange> {
    lock().of(key).filter(|range| range.cow).map(|range| range.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::shadow::loads::Loads;
    use crate::file::shadow::mapped_range::OfFile;

    fn range(start: usize, end: usize, offset: u64) -> MappedRange {
        MappedRange {
            start,
            end,
            key: (0, 77),
            offset,
            prot: 1,
            may_store: true,
            stores: false,
            copies: false,
            shadow: true,
            cow: false,
            watched: false,
            reach: 0,
            exact: false,
            whole: true,
            file: OfFile::default(),
            ahead: Loads::default(),
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

    #[test]
    fn what_was_stored_in_maps_that_are_gone_is_kept_until_it_is_taken() {
        const KEY: (u64, u64) = (0, 78);
        let written = |start, end| MappedRange { key: KEY, stores: true, ..range(start, end, 0) };
        let mut ranges = lock();
        ranges.add(written(0x101000, 0x103000));
        ranges.take(0x101000, 0x102000);
        let (stored, serial) = ranges.stored(KEY);
        assert_eq!(stored, [0x1000..0x2000, 0..0x1000]);
        ranges.take(0x102000, 0x103000);
        ranges.were_taken(KEY, serial, Vec::new());
        assert_eq!(ranges.stored(KEY).0.first(), Some(&(0x1000..0x2000)), "that one went later");
        let serial = ranges.stored(KEY).1;
        ranges.were_taken(KEY, serial, Vec::new());
        assert_eq!(ranges.stored(KEY).0, []);
    }
}
