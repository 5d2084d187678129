//! Notes of the granules of a shadow that copies have written since the last SYNC, which writes just these, without
//! comparing bytes and without page faults.
//!
//! There is a byte per granule, and above it one per page, per 256 KiB and per 16 MiB. A copy sets them by plain
//! stores, the lowest level first. A SYNC swaps them out, the highest level first: a note set behind it is set again
//! on the levels above, too, for the next SYNC.
//!
//! A copy notes what it is about to store, so that no byte is forgotten if it ends by a fault; and again afterwards,
//! since a SYNC may have taken the first note before the bytes were stored.

use super::shadow_pages::PAGE;
use crate::error::Result;
use crate::file::base::bits::GRANULE;
use crate::thread::Held;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::OnceLock;

/// Notes of one level per note of the next.
const FAN: u64 = 64;
/// Bytes per note, from granules up. A page that was written as a whole has a separate note.
const LEVELS: [u64; 4] = [GRANULE as u64, PAGE as u64, PAGE as u64 * FAN, PAGE as u64 * FAN * FAN];

/// The notes of one shadow. Pages without notes take no memory.
pub(in crate::file) struct Notes {
    base: *mut u8,
    len: usize,
    /// Bytes of the file that the notes cover.
    reach: u64,
    /// Where each level begins; the last are the notes of whole pages.
    levels: [usize; 5],
    /// Of the bytes from `reach` on, if the file has grown so far. `None`: there is no address space for them.
    beyond: OnceLock<Option<Box<Notes>>>,
}

// SAFETY: an address range of atomic bytes.
unsafe impl Send for Notes {}
// SAFETY: as above.
unsafe impl Sync for Notes {}

impl Notes {
    /// For files of up to `reach` bytes.
    ///
    /// # Errors
    /// `ENOMEM`: there is no address space for them.
    pub fn new(reach: u64) -> Result<Self> {
        let mut levels = [0; 5];
        let mut len = 0;
        for (at, bytes) in levels.iter_mut().zip(LEVELS.into_iter().chain([LEVELS[1]])) {
            *at = len;
            len += (reach.div_ceil(bytes) as usize).next_multiple_of(PAGE);
        }
        use rustix::mm::{Advice, MapFlags, ProtFlags};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        crate::sys::address_space::take(len);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            let base =
                rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)
                    .inspect_err(|_| crate::sys::address_space::give(len))?;
            // A single note must not take two megabytes.
            let _ = rustix::mm::madvise(base, len, Advice::LinuxNoHugepage);
            base.cast()
        };
        Ok(Self { base, len, reach, levels, beyond: OnceLock::new() })
    }

    fn beyond(&self) -> Option<&Notes> {
        self.beyond.get()?.as_deref()
    }

    #[inline]
    fn at(&self, level: usize, index: u64) -> &AtomicU8 {
        let at = self.levels[level] + index as usize;
        debug_assert!(at < self.len);
        // SAFETY: within our mapping: `note` and `take` stay below `reach`.
        unsafe { AtomicU8::from_ptr(self.base.add(at)) }
    }

    /// Notes that `len` bytes (not 0) from `offset` on were stored, or are about to be. False: there is no address space
    /// for notes of a file that has grown so far.
    #[inline(always)]
    pub fn note(&self, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        let (first, last) = (offset / LEVELS[0], end.saturating_sub(1) / LEVELS[0]);
        if first != last || end > self.reach {
            return self.note_several(offset, end);
        }
        // Most are small: one note on each level.
        self.at(0, first).store(1, Ordering::Release);
        self.at(1, first / FAN).store(1, Ordering::Release);
        self.at(2, first / (FAN * FAN)).store(1, Ordering::Release);
        self.at(3, first / (FAN * FAN * FAN)).store(1, Ordering::Release);
        true
    }

    #[inline(never)]
    fn note_several(&self, offset: u64, end: u64) -> bool {
        if end > self.reach {
            return self.note_beyond(offset, end);
        }
        let (first, last) = (offset / LEVELS[0], end.saturating_sub(1) / LEVELS[0]);
        if last - first < FAN {
            (first..=last).for_each(|granule| self.at(0, granule).store(1, Ordering::Release));
        } else {
            self.note_pages(offset, end);
        }
        self.note_above(offset, end);
        true
    }

    #[cold]
    fn note_beyond(&self, offset: u64, end: u64) -> bool {
        let _held = Held::of_process(); // uninterrupted: a signal handler would wait for it
        let make = || Notes::new(self.reach.saturating_mul(7)).ok().map(Box::new);
        let Some(beyond) = self.beyond.get_or_init(make) else { return false };
        if offset < self.reach {
            self.note(offset, (self.reach - offset) as usize);
        }
        let offset = offset.max(self.reach);
        beyond.note(offset - self.reach, (end - offset) as usize)
    }

    /// Notes on the levels above the granules.
    #[inline]
    fn note_above(&self, offset: u64, end: u64) {
        for (level, bytes) in LEVELS.into_iter().enumerate().skip(1) {
            for index in offset / bytes..=(end - 1) / bytes {
                self.at(level, index).store(1, Ordering::Release);
            }
        }
    }

    /// Notes a long range: whole pages by one note each.
    fn note_pages(&self, offset: u64, end: u64) {
        let page = PAGE as u64;
        let (whole, rest) = (offset.next_multiple_of(page), end / page * page);
        for granule in (offset / LEVELS[0]..whole / LEVELS[0]).chain(rest / LEVELS[0]..end.div_ceil(LEVELS[0])) {
            self.at(0, granule).store(1, Ordering::Release);
        }
        for index in whole / page..rest / page {
            self.at(4, index).store(1, Ordering::Release);
        }
    }

    /// Takes all notes. Returns the noted ranges below `size`, the file's end, in order, each byte once. Notes beyond
    /// it are dropped.
    pub fn take(&self, size: u64) -> Vec<Range<u64>> {
        let mut taken = Vec::new();
        let end = size.min(self.reach);
        self.take_level(3, 0..end.div_ceil(LEVELS[3]), end, &mut taken);
        if let Some(beyond) = self.beyond()
            && size > self.reach
        {
            let there = beyond.take(size - self.reach);
            there.into_iter().for_each(|range| push(&mut taken, range.start + self.reach..range.end + self.reach));
        }
        taken
    }

    fn take_level(&self, level: usize, range: Range<u64>, end: u64, taken: &mut Vec<Range<u64>>) {
        for index in range {
            let note = self.at(level, index);
            if note.load(Ordering::Relaxed) == 0 {
                continue;
            }
            note.swap(0, Ordering::SeqCst);
            let start = index * LEVELS[level];
            let stop = (start + LEVELS[level]).min(end);
            let all = level == 1 && self.at(4, index).swap(0, Ordering::SeqCst) != 0;
            if all || level == 0 {
                push(taken, start..stop);
            }
            if level > 0 {
                let below = LEVELS[level - 1];
                let mut of_granules = Vec::new();
                // Also those of a page that is taken as a whole: they would stay for ever.
                let into = if all { &mut of_granules } else { &mut *taken };
                self.take_level(level - 1, start / below..stop.div_ceil(below), end, into);
            }
        }
    }
}

fn push(taken: &mut Vec<Range<u64>>, range: Range<u64>) {
    match taken.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ if range.start < range.end => taken.push(range),
        _ => {}
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        // SAFETY: our mapping, not used any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
        crate::sys::address_space::give(self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 40 << 20;

    fn taken(notes: &Notes, size: u64) -> Vec<(u64, u64)> {
        notes.take(size).into_iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn what_was_noted_is_taken_once_in_whole_granules() {
        let notes = Notes::new(1 << 30).unwrap();
        assert_eq!(taken(&notes, SIZE), []);
        notes.note(100, 1);
        notes.note(130, 60);
        notes.note(4095, 2);
        notes.note(33 << 20, 64);
        assert_eq!(notes.take(SIZE), [64..192, 4032..4160, 33 << 20..(33 << 20) + 64]);
        assert_eq!(taken(&notes, SIZE), []);
    }

    #[test]
    fn long_ranges_are_noted_by_the_page() {
        let notes = Notes::new(1 << 30).unwrap();
        for (offset, len) in [(1000, 20_000usize), (4096, 8192), (0, 4096 * 3), (4000, 4096 + 1), (5, 3 << 20)] {
            notes.note(offset, len);
            let end = (offset + len as u64).next_multiple_of(64);
            assert_eq!(taken(&notes, SIZE), [(offset / 64 * 64, end)], "{offset} {len}");
            assert_eq!(taken(&notes, SIZE), []);
        }
        // A page's own granules are taken together with the whole page.
        notes.note(8192, 4096 * 2);
        notes.note(8192 + 64, 1);
        assert_eq!(taken(&notes, SIZE), [(8192, 16384)]);
        assert_eq!(taken(&notes, SIZE), []);
    }

    #[test]
    fn nothing_is_taken_beyond_the_end() {
        let notes = Notes::new(1 << 20).unwrap();
        notes.note(1000, 50);
        notes.note(10_000, 4096);
        notes.note(u64::MAX - 1, 1);
        assert_eq!(taken(&notes, 1010), [(960, 1010)]);
        // What was cut off is forgotten; what is stored there after the file has grown again is not.
        assert_eq!(taken(&notes, 1 << 20), []);
        notes.note(10_000, 1);
        assert_eq!(taken(&notes, 1 << 20)[0].0, 9984);
    }

    #[test]
    fn they_reach_as_far_as_the_file_grows() {
        let notes = Notes::new(1 << 20).unwrap();
        assert!(notes.note((1 << 20) - 100, 200));
        notes.note((8 << 20) - 4096, 3 * 4096);
        assert!(notes.note(299 << 20, 1) && notes.note(5, 1));
        let at = (1 << 20) - 128;
        assert_eq!(
            notes.take(300 << 20),
            [0..64, at..at + 256, (8 << 20) - 4096..(8 << 20) + 8192, 299 << 20..(299 << 20) + 64]
        );
        assert_eq!(taken(&notes, 300 << 20), []);
        notes.note((1 << 20) + 10, 100);
        assert_eq!(taken(&notes, (1 << 20) + 20), [(1 << 20, (1 << 20) + 20)]);
    }

    /// A note that one taking has not seen is there for the next: concurrent copies and takings lose none.
    #[test]
    fn no_note_is_lost_beside_a_taking() {
        let notes = Notes::new(64 << 20).unwrap();
        let data: Vec<core::sync::atomic::AtomicU64> = (0..512).map(|_| Default::default()).collect();
        let done = core::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (notes, data, done) = (&notes, &data, &done);
                scope.spawn(move || {
                    for round in 1..=40_000u64 {
                        let index = (round * 7 % 256) * 2 + thread;
                        let offset = index * 100_000;
                        notes.note(offset, 8);
                        data[index as usize].store(round, Ordering::Relaxed);
                        notes.note(offset, 8);
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            let mut seen = vec![0; data.len()];
            loop {
                let last = done.load(Ordering::SeqCst) == 2;
                for range in notes.take(64 << 20) {
                    let index = range.start.div_ceil(100_000).min(511) as usize;
                    let index = if index as u64 * 100_000 < range.end { index } else { index - 1 };
                    seen[index] = data[index].load(Ordering::Relaxed);
                }
                if last {
                    break;
                }
            }
            for (index, (seen, data)) in seen.iter().zip(&data).enumerate() {
                assert_eq!(*seen, data.load(Ordering::Relaxed), "{index}");
            }
        });
    }
}
