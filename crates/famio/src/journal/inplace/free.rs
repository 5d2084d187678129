//! The free entries of a journal in place: a lock-free list in the arena.

use super::segment::{Geometry, SEGMENTS_MAX};
use crate::error::{Error, Result};
use crate::index::Arena;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// No entry.
const NIL: u32 = 0;

/// The list of an arena. Its head is a word of the shared state: the number of the first entry plus one, and above it
/// a count of changes, so that a head that was taken and returned meanwhile looks changed.
#[derive(Clone, Copy)]
pub(crate) struct Free<'a> {
    arena: &'a Arena,
}

impl<'a> Free<'a> {
    pub fn of(arena: &'a Arena) -> Self {
        Self { arena }
    }

    /// Whether no entry is free.
    pub fn is_empty(self) -> bool {
        self.arena.shared().free.load(Ordering::Acquire) as u32 == NIL
    }

    /// Takes an entry, if one is free.
    pub fn take(self) -> Result<Option<u32>> {
        let shared = self.arena.shared();
        loop {
            let head = shared.free.load(Ordering::Acquire);
            let first = head as u32;
            if first == NIL {
                return Ok(None);
            }
            let next = self.link(first - 1).ok_or(Error::new(libc::EIO))?.load(Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            if shared.free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                shared.used.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(first - 1));
            }
        }
    }

    /// Gives an entry back.
    pub fn give_back(self, number: u32) {
        self.arena.shared().used.fetch_sub(1, Ordering::Relaxed);
        self.push_chain(number, number);
    }

    /// Memory for the links of a segment's entries.
    pub fn make_links(self, geometry: Geometry) -> Result<()> {
        let place = &self.directory()?[geometry.index];
        if place.load(Ordering::Acquire) == 0 {
            place.store(self.arena.allocate(geometry.count as usize * 4)?, Ordering::Release);
        }
        Ok(())
    }

    /// Adds the entries of one segment, which have links: chained, lowest first, and put in front of the list in one
    /// step.
    pub fn add(self, first: u32, count: u32) -> Result<()> {
        let last = first + count - 1;
        for number in first..last {
            self.link(number).ok_or(Error::new(libc::EIO))?.store(number + 2, Ordering::Relaxed);
        }
        self.push_chain(first, last);
        Ok(())
    }

    /// Makes the list exactly the first `count` entries, of the first segment. No thread takes an entry meanwhile.
    pub fn reset(self, count: u32) -> Result<()> {
        for number in 0..count {
            let next = if number + 1 < count { number + 2 } else { NIL };
            self.link(number).ok_or(Error::new(libc::EIO))?.store(next, Ordering::Relaxed);
        }
        let free = &self.arena.shared().free;
        let changes = (free.load(Ordering::Acquire) >> 32).wrapping_add(1);
        free.store(changes << 32 | u64::from(count.min(1)), Ordering::Release);
        Ok(())
    }

    fn push_chain(self, first: u32, last: u32) {
        let shared = self.arena.shared();
        let Some(link) = self.link(last) else { return };
        loop {
            let head = shared.free.load(Ordering::Acquire);
            link.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(first + 1);
            if shared.free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// The links of each segment's entries.
    fn directory(self) -> Result<&'a [AtomicU64; SEGMENTS_MAX]> {
        let shared = self.arena.shared();
        if shared.links.load(Ordering::Acquire) == 0 {
            let fresh = self.arena.allocate(SEGMENTS_MAX * 8)?;
            let _ = shared.links.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.arena.at(shared.links.load(Ordering::Acquire)).ok_or(Error::new(libc::EIO))
    }

    /// The link of a free entry to the next.
    fn link(self, number: u32) -> Option<&'a AtomicU32> {
        let (segment, i) = Geometry::place(number);
        let links = self.directory().ok()?[segment].load(Ordering::Acquire);
        // Arena offsets are aligned to 64: take the line, then the word in it.
        let line = self.arena.at::<[AtomicU32; 16]>(links + ((i * 4) & !63))?;
        Some(&line[i as usize % 16])
    }
}
