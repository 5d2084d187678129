//! The zone: log blocks that have memory before a writer needs them (LAWN, section 4.1).
//!
//! The background reserves the next entries and gives their log blocks memory. It does not put them on the free list,
//! but leaves them in [`Zone::laid_down`], where a writer that finds no free entry takes them. So the background
//! needs no lock, and does not hinder a thread that ends the session or cuts the journal. A writer that finds nothing
//! there prepares a few entries itself, and never waits for the background.

use super::Free;
use super::log::Log;
use super::segment::Geometry;
use crate::error::{Error, Result};
use crate::index::Arena;
use crate::map::huge::{self, HUGE};
use crate::pmem::Domain;
use crate::rule::{Rule, in_order};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use rustix::fs::FallocateFlags;
use rustix::mm::Advice;
use std::os::fd::AsFd;

/// The fewest log blocks that a writer prepares at a time; for a small file two more than it has blocks, if that is
/// less. Up to [`STEP_MAX`], a writer prepares as many as there are already.
const STEP_MIN: u64 = 8;
/// The most log blocks that a writer prepares at a time: this takes some microseconds.
const STEP_MAX: u64 = 32;
/// The most prepared pieces, of up to 2 MiB each.
const PIECES: usize = 8;
/// At most as many bytes are prepared as are in use; the first piece is prepared when this many entries are in use.
const FIRST_FROM: u64 = 64;
/// A segment is added when the last one has fewer entries left than this.
const NEARLY_USED: u64 = 2 * (HUGE as u64 >> super::segment::CLASS);
/// How often a writer at the journal's limit yields the processor while it waits for a piece that is being prepared.
const LOOKS: u32 = 100;
/// How often the writer sleeps after that: touching 2 MiB takes longer than yielding, most of all on a busy machine.
const RESTS: u32 = 400;
const REST: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// Values of [`Zone::request`].
const IDLE: u8 = 0;
/// The background should be woken.
const WANTED: u8 = 1;
/// It was woken.
const WOKEN: u8 = 2;

/// What is prepared of a journal, in the process that owns it.
#[derive(Default)]
pub(super) struct Zone {
    /// Prepared pieces, to be put on the free list. 0: none.
    laid_down: [AtomicU64; PIECES],
    /// Whether the background has work.
    request: AtomicU8,
    /// The background is preparing a piece or collapsing pages, or the journal is being cut: never both, since pages
    /// that got memory beyond the new end would keep it.
    pub is_busy: AtomicBool,
    /// The kernel makes no huge pages for the journal.
    pub lacks_huge: AtomicBool,
}

/// Entries `first..first + count`, all in one segment, of the journal as it was before its cut number `cuts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    first: u32,
    count: u16,
    cuts: u16,
}

impl Piece {
    /// Never 0, since a piece has entries.
    fn word(self) -> u64 {
        u64::from(self.first) | u64::from(self.count) << 32 | u64::from(self.cuts) << 48
    }

    fn of(word: u64) -> Option<Self> {
        let piece = Self { first: word as u32, count: (word >> 32) as u16, cuts: (word >> 48) as u16 };
        (piece.count != 0).then_some(piece)
    }
}

/// The part of [`Shared::ready`](crate::index::Shared::ready) that counts entries.
pub(super) fn ready(word: u64) -> u64 {
    word & u64::from(u32::MAX)
}

fn cuts(word: u64) -> u16 {
    (word >> 32) as u16
}

impl Log {
    /// Takes a free entry whose log block has memory, if one is prepared. Lock-free.
    pub fn take_ready(&self, arena: &Arena) -> Result<Option<u32>> {
        if let Some(number) = Free::of(arena).take()? {
            return Ok(Some(number));
        }
        if self.pick_up(arena)? {
            return Free::of(arena).take();
        }
        if ready(arena.shared().ready.load(Ordering::Relaxed)) > FIRST_FROM {
            self.request_more();
        }
        Ok(None)
    }

    /// Takes a free entry whose log block has memory. Lock-free unless none is prepared.
    ///
    /// # Errors
    /// `ENOSPC`: the journal is as large as it may be, or the disk is full.
    pub fn take(&self, arena: &Arena) -> Result<u32> {
        loop {
            if let Some(number) = self.take_ready(arena)? {
                return Ok(number);
            }
            self.make_a_few(arena)?;
        }
    }

    /// Tells the background to go on.
    fn request_more(&self) {
        let _ = self.zone.request.compare_exchange(IDLE, WANTED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether the background should be woken to [prepare more](Self::make_ready). True once per request.
    #[inline]
    pub fn wants_more(&self) -> bool {
        self.zone.request.load(Ordering::Relaxed) == WANTED
            && self.zone.request.compare_exchange(WANTED, WOKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Puts a prepared piece on the free list. Returns whether there was one.
    fn pick_up(&self, arena: &Arena) -> Result<bool> {
        let cuts_now = cuts(arena.shared().ready.load(Ordering::Acquire));
        for place in &self.zone.laid_down {
            if place.load(Ordering::Relaxed) != 0
                && let Some(piece) = Piece::of(place.swap(0, Ordering::AcqRel))
                && piece.cuts == cuts_now
            {
                self.add_early(arena);
                self.request_more();
                Free::of(arena).add(piece.first, piece.count.into())?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a segment before the last one is used up, so that the background can go on; it cannot add one itself,
    /// since the session may end meanwhile. A failure is reported when the last entry is taken.
    fn add_early(&self, arena: &Arena) {
        let is_ready = ready(arena.shared().ready.load(Ordering::Relaxed));
        if u64::from(self.entries()) < is_ready + NEARLY_USED
            && let Some(mut maps) = self.try_grow()
        {
            let _ = self.add_segment(arena, &mut maps);
        }
    }

    /// Prepares the next few entries in a writer, and adds a segment if there are none.
    #[cold]
    fn make_a_few(&self, arena: &Arena) -> Result<()> {
        let mut maps = self.grow()?;
        if !Free::of(arena).is_empty() {
            return Ok(()); // another thread was first
        }
        let step = ready(arena.shared().ready.load(Ordering::Relaxed))
            .clamp(STEP_MIN.min(arena.shared().size() / 4096 + 2), STEP_MAX);
        let piece = loop {
            if let Some(piece) = self.next_piece(arena, 0, step) {
                break piece;
            }
            match self.add_segment(arena, &mut maps) {
                Err(e) if e.errno() == libc::ENOSPC && self.is_coming(arena) => return Ok(()),
                added => added?,
            }
        };
        let (start, end) = self.blocks_of(piece);
        let taken = self.file().run(|file| {
            rustix::fs::fallocate(file.as_fd(), FallocateFlags::KEEP_SIZE, start, end - start)?;
            Ok(())
        });
        if let Err(e) = taken {
            self.put_back(arena, piece);
            return if e.errno() == libc::ENOSPC && self.is_coming(arena) { Ok(()) } else { Err(e) };
        }
        Free::of(arena).add(piece.first, piece.count.into())
    }

    /// With no space left: whether the background is still preparing some.
    fn is_coming(&self, arena: &Arena) -> bool {
        let laid_down = || self.zone.laid_down.iter().any(|place| place.load(Ordering::Acquire) != 0);
        let is_there = || laid_down() || !Free::of(arena).is_empty();
        for look in 0..LOOKS + RESTS {
            if is_there() {
                return true;
            }
            if !self.zone.is_busy.load(Ordering::Acquire) {
                return is_there(); // it may have been laid down between the two looks
            }
            if look < LOOKS {
                rustix::thread::sched_yield();
            } else {
                let _ = rustix::thread::nanosleep(&REST);
            }
        }
        false
    }

    /// Prepares a piece if one is wanted; called by the background, outside the gate. Returns whether it did, and
    /// more may be wanted.
    pub fn make_ready(&self, arena: &Arena) -> bool {
        let zone = &self.zone;
        if zone.request.load(Ordering::Acquire) == IDLE {
            return false;
        }
        let used = arena.shared().used.load(Ordering::Relaxed);
        let pieces = (used as usize / (HUGE >> super::segment::CLASS)).clamp(1, PIECES);
        let Some(place) = zone.laid_down[..pieces].iter().find(|place| place.load(Ordering::Relaxed) == 0) else {
            zone.request.store(IDLE, Ordering::Release); // until a writer takes one
            return false;
        };
        // Before the entries are reserved: a writer that finds them neither free nor coming would be refused.
        if zone.is_busy.swap(true, Ordering::SeqCst) {
            zone.request.store(IDLE, Ordering::Release); // until a writer needs more than the cut leaves
            return false;
        }
        let Some(piece) = self.next_piece(arena, 1, u64::from(u16::MAX)) else {
            zone.is_busy.store(false, Ordering::Release);
            zone.request.store(IDLE, Ordering::Release);
            return false;
        };
        match self.give_memory(piece) {
            Ok(()) => place.store(piece.word(), Ordering::Release),
            Err(_) => {
                // A full disk is reported to the write that needs the space.
                self.put_back(arena, piece);
                zone.request.store(IDLE, Ordering::Release);
            }
        }
        zone.is_busy.store(false, Ordering::Release);
        true
    }

    /// Reserves the next unprepared entries, at most `most`, and up to the end of a segment or of a huge page. `None`:
    /// the existing segments have no more, or the next ones lie before segment `from`. The first segment's are for
    /// writers, of whom one at a time prepares any: so those that got no memory can always be put back, and
    /// [`shrink`](Self::shrink) knows which have some.
    fn next_piece(&self, arena: &Arena, from: usize, most: u64) -> Option<Piece> {
        let word = &arena.shared().ready;
        let mut seen = word.load(Ordering::Acquire);
        loop {
            let first = ready(seen);
            if first >= self.entries().into() {
                return None;
            }
            let (index, i) = Geometry::place(first as u32);
            if index < from {
                return None;
            }
            let segment = Geometry::of(index);
            let to_huge = (HUGE as u64 - segment.block(i) % HUGE as u64) >> super::segment::CLASS;
            let count = most.min(segment.count - i).min(to_huge);
            match word.compare_exchange(seen, seen + count, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Piece { first: first as u32, count: count as u16, cuts: cuts(seen) }),
                Err(now) => seen = now,
            }
        }
    }

    /// The piece got no memory. If other entries were reserved meanwhile, it is lost until the journal is cut.
    fn put_back(&self, arena: &Arena, piece: Piece) {
        let word = &arena.shared().ready;
        let seen = word.load(Ordering::Acquire);
        if ready(seen) == u64::from(piece.first) + u64::from(piece.count) && cuts(seen) == piece.cuts {
            let _ = word.compare_exchange(seen, seen - u64::from(piece.count), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The bytes of the journal that hold the log blocks of a piece.
    fn blocks_of(&self, piece: Piece) -> (u64, u64) {
        let (index, i) = Geometry::place(piece.first);
        let segment = Geometry::of(index);
        (segment.block(i), segment.block(i + u64::from(piece.count)))
    }

    /// Gives memory to a piece's log blocks. It is touched, unless it is a page cache's, which would write it to a
    /// disk.
    fn give_memory(&self, piece: Piece) -> Result<()> {
        let (start, end) = self.blocks_of(piece);
        let at = self.base().wrapping_add(start as usize);
        let len = (end - start) as usize;
        let is_touched = self.file().run(|file| {
            if self.is_in_memory() && !self.zone.lacks_huge.load(Ordering::Relaxed) {
                let huge = huge::take(file.as_fd(), at, start, len)?;
                self.zone.lacks_huge.store(!huge, Ordering::Relaxed);
                return Ok(huge && len == HUGE);
            }
            rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, start, end - start)?;
            Ok(false)
        })?;
        if !is_touched && (self.is_in_memory() || self.domain() == Domain::Pmem) {
            // SAFETY: in a mapping of this process, which stays; the pages keep their bytes.
            let _ = unsafe { rustix::mm::madvise(at.cast(), len, Advice::LinuxPopulateWrite) };
        }
        Ok(())
    }

    /// Adds a segment without prepared entries: its space in the file, memory for its entries, and the new count of
    /// segments.
    ///
    /// # Errors
    /// `ENOSPC`: at the limit, or the disk is full.
    fn add_segment(&self, arena: &Arena, maps: &mut Vec<crate::map::Mapping>) -> Result<()> {
        let index = self.segments() as usize;
        let geometry = Geometry::of(index);
        if index >= super::SEGMENTS_MAX || geometry.end() > self.limit() {
            return Err(Error::new(libc::ENOSPC));
        }
        Free::of(arena).make_links(geometry)?;
        self.map_up_to(maps, geometry.end())?;
        self.shared_limit().grow(geometry.end())?;
        let made = self.file().run(|file| {
            super::mapped::make_room(file, self.medium(), (geometry.start, geometry.block(0)), geometry.end())?;
            self.medium().fdatasync(file.as_fd())
        });
        made.inspect_err(|_| self.shared_limit().set(geometry.start))?;
        // The count becomes durable last, when everything that it counts exists.
        in_order(
            Rule::SegmentBeforeCount,
            || {
                geometry.store_header(self.line(geometry.start), self.medium(), self.key());
                self.medium().fence();
                Ok(())
            },
            || {
                self.extent().store(index as u64 + 1);
                self.medium().fence();
                Ok(())
            },
        )
        .unwrap_or_else(|never: core::convert::Infallible| match never {});
        self.add(geometry);
        Ok(())
    }

    /// Cuts the journal to its first segment, unless the background is preparing a piece: then a later cut will do. No
    /// entry is in use, and no thread takes one meanwhile.
    pub fn shrink(&self, arena: &Arena) -> Result<()> {
        let _growing = self.grow()?;
        if self.zone.is_busy.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let cut = self.cut(arena);
        self.zone.is_busy.store(false, Ordering::Release);
        cut
    }

    fn cut(&self, arena: &Arena) -> Result<()> {
        let first = Geometry::of(0);
        let prepared = ready(arena.shared().ready.load(Ordering::Acquire)).min(first.count);
        in_order(
            Rule::CountBeforeCut,
            || {
                // The count of segments first: what it does not count may be removed.
                self.extent().store(1);
                self.medium().fence();
                self.set_count(1);
                // Pieces prepared before the cut are not used any more.
                arena.shared().begin_entries(prepared);
                Free::of(arena).reset(prepared as u32)
            },
            || self.file().run(|file| self.medium().ftruncate(file.as_fd(), first.end())),
        )?;
        self.shared_limit().set(first.end());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::super::mapped::Mapped;
    use super::*;
    use crate::journal::JournalId;
    use crate::journal::testing::KERNEL;
    use crate::sys::InternalFd;
    use rustix::fs::{MemfdFlags, memfd_create};

    /// A SYNC cut the journal while the background gave memory to a piece, which then lay beyond the end for good.
    #[test]
    fn it_is_not_cut_while_a_piece_is_prepared() {
        let memory = || InternalFd::adopt(memfd_create("famio-test", MemfdFlags::CLOEXEC).unwrap()).unwrap();
        let arena = Arena::create(memory(), std::path::Path::new("/nonexistent")).unwrap();
        let (file, key) = (memory(), Key::of(JournalId([7; 16])));
        let log = Log::create(Mapped::create(file.as_fd(), Domain::PageCache, &KERNEL, key, 64u64 << 20).unwrap());
        let taken: Vec<u32> = (0..100).map(|_| log.take(&arena).unwrap()).collect();
        taken.into_iter().for_each(|number| log.give_back(&arena, number));
        log.zone.is_busy.store(true, Ordering::SeqCst);
        log.shrink(&arena).unwrap();
        assert_eq!(log.segments(), 2);
        // Nor is one prepared meanwhile.
        log.request_more();
        assert!(!log.make_ready(&arena));
        log.zone.is_busy.store(false, Ordering::SeqCst);
        log.shrink(&arena).unwrap();
        assert_eq!(log.segments(), 1);
        assert!(!log.zone.is_busy.load(Ordering::SeqCst));
    }

    #[test]
    fn pieces_fit_a_word() {
        for piece in [Piece { first: 0, count: 64, cuts: 0 }, Piece { first: u32::MAX, count: 512, cuts: u16::MAX }] {
            assert_eq!(Piece::of(piece.word()), Some(piece));
        }
        assert_eq!(Piece::of(0), None);
    }
}
