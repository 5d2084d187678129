//! Finds the map of an atomic file at an address, in a tree of two levels that is never changed, only replaced, so
//! that reading takes no lock. In front of it are the slots of the thread's last copies (Libnvmmio, section 3.5).
//!
//! A chunk is a stretch of the address space with some maps. Each of its slots is a map and the gap behind it, so
//! that gaps are found, and remembered, like maps. Readers are inside a [`Call`]; a replaced tree is freed when no
//! call that may use it is left.

use crate::file::atomic::AtomicFile;
use crate::file::{Call, Grace};
use crate::map::ahead::Ahead;
use crate::thread::current;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::Arc;

/// Slots of a chunk: the gap in front, and maps.
const CHUNK: usize = 64;
/// The most maps of a chunk.
const MAPS: usize = CHUNK - 1;

/// A map of an atomic file, and the gap behind it.
#[derive(Clone)]
pub(crate) struct Slot {
    /// Where the map begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Where the gap behind it ends, or the next map begins.
    pub next: usize,
    /// The file's offset at `start`.
    pub offset: u64,
    /// The program may change the file there.
    pub changes: bool,
    /// By copies only.
    pub copies: bool,
    /// `None`: only a gap.
    pub file: Option<Arc<AtomicFile>>,
    /// Map-ahead for loads from it.
    pub ahead: Option<Arc<Ahead>>,
}

/// In one piece, for fewer cache misses in a search.
struct Chunk {
    /// The starts of its slots; unused ones are `usize::MAX`.
    starts: [usize; CHUNK],
    /// The first has no map: it is the gap in front of the second.
    slots: [Slot; CHUNK],
    maps: usize,
    start: usize,
    end: usize,
}

/// All chunks in order; the first begins at zero, the last ends where addresses end.
pub(super) struct Top {
    serial: u64,
    starts: Box<[usize]>,
    chunks: Box<[Arc<Chunk>]>,
}

/// Null: there was never a map.
static TOP: AtomicPtr<Top> = AtomicPtr::new(ptr::null_mut());
/// The number of the tree at `TOP`, for threads that remember slots.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// The end of a copy: each has its own memory.
#[derive(Clone, Copy)]
pub(crate) enum End {
    To = 0,
    From = 2,
}

/// The slot at `address`, valid during the call.
#[inline]
pub(crate) fn find(_call: &Call, address: usize, end: End) -> Option<&Slot> {
    let thread = current();
    if thread.places_serial.get() == SERIAL.load(Ordering::Acquire) {
        let [first, second] = [&thread.places[end as usize], &thread.places[end as usize + 1]];
        for place in [first, second] {
            // SAFETY: a slot of the tree with this number, which existed in this call, or null (`remember`).
            if let Some(slot) = unsafe { (place.get() as *const Slot).as_ref() }
                && address >= slot.start
                && address < slot.next
            {
                return Some(slot);
            }
        }
    }
    look_up(address, end)
}

/// Whether a map has a byte in `start..end`.
pub(super) fn has_map(start: usize, end: usize) -> bool {
    let (call, mut at) = (Call::begin(), start);
    while at < end
        && let Some(slot) = find(&call, at, End::To)
    {
        if slot.file.is_some() && at < slot.end {
            return true;
        }
        at = slot.next;
    }
    false
}

/// As [`find`], in the tree; remembers the slot.
#[inline(never)]
fn look_up<'a>(address: usize, end: End) -> Option<&'a Slot> {
    // SAFETY: the caller is inside a call, during which the tree is not freed.
    let top = unsafe { TOP.load(Ordering::Acquire).as_ref() }?;
    let slot = top.slot(address);
    remember(top.serial, slot, end);
    Some(slot)
}

/// A signal handler may interrupt this anywhere, and do the same.
fn remember(serial: u64, slot: &Slot, end: End) {
    let thread = current();
    if thread.places_serial.get() != serial {
        thread.places.iter().for_each(|place| place.set(0));
        thread.places_serial.set(serial);
    }
    let [first, second] = [&thread.places[end as usize], &thread.places[end as usize + 1]];
    second.set(first.get());
    first.set(ptr::from_ref(slot) as usize);
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    if thread.places_serial.get() != serial {
        // A handler has seen a later tree in between.
        thread.places.iter().for_each(|place| place.set(0));
    }
}

/// The index of the last of `starts` that is not above `address`; the first never is.
#[inline]
fn last_not_above(starts: &[usize], address: usize) -> usize {
    let (mut base, mut size) = (0, starts.len());
    while size > 1 {
        let half = size / 2;
        // SAFETY: `base + size` is at most the length.
        let above = unsafe { *starts.get_unchecked(base + half) } > address;
        base = core::hint::select_unpredictable(above, base, base + half);
        size -= half;
    }
    base
}

impl Top {
    #[inline]
    fn slot(&self, address: usize) -> &Slot {
        let chunk = &self.chunks[last_not_above(&self.starts, address)];
        &chunk.slots[last_not_above(&chunk.starts, address)]
    }

    fn of(serial: u64, chunks: Vec<Arc<Chunk>>) -> Self {
        Self { serial, starts: chunks.iter().map(|chunk| chunk.start).collect(), chunks: chunks.into() }
    }
}

impl Chunk {
    fn new(start: usize, end: usize, maps: &[Slot]) -> Arc<Self> {
        let none = |start, next| Slot {
            start,
            end: start,
            next,
            offset: 0,
            changes: false,
            copies: false,
            file: None,
            ahead: None,
        };
        let next = |index: usize| maps.get(index).map_or(end, |slot| slot.start);
        let slot = |index: usize| match index.checked_sub(1).map(|at| maps.get(at)) {
            None => none(start, next(0)),
            Some(Some(slot)) => Slot { next: next(index), ..slot.clone() },
            Some(None) => none(usize::MAX, usize::MAX),
        };
        // Made in its place: it is large, and the stack may be small.
        let mut made = Box::<Self>::new_uninit();
        let to = made.as_mut_ptr();
        for index in 0..CHUNK {
            let slot = slot(index);
            // SAFETY: within the new chunk.
            unsafe {
                (&raw mut (*to).starts[index]).write(slot.start);
                (&raw mut (*to).slots[index]).write(slot);
            }
        }
        // SAFETY: with these, everything in it is initialized.
        unsafe {
            (&raw mut (*to).maps).write(maps.len());
            (&raw mut (*to).start).write(start);
            (&raw mut (*to).end).write(end);
            made.assume_init().into()
        }
    }

    fn maps(&self) -> &[Slot] {
        &self.slots[1..=self.maps]
    }
}

/// Chunks for `start..end` with these maps, in order.
fn chunks_of(start: usize, end: usize, maps: &[Slot]) -> Vec<Arc<Chunk>> {
    if maps.len() <= MAPS {
        return vec![Chunk::new(start, end, maps)];
    }
    // Half full, since most maps come one by one.
    let mut pieces = maps.chunks(CHUNK / 2).peekable();
    let (mut made, mut from) = (Vec::new(), start);
    while let Some(piece) = pieces.next() {
        let to = pieces.peek().map_or(end, |next| next[0].start);
        made.push(Chunk::new(from, to, piece));
        from = to;
    }
    made
}

/// A replaced tree, until no call that may use it is left.
pub(super) struct Old {
    _top: Box<Top>,
    grace: Grace,
}

impl Old {
    pub fn is_over(&mut self, wait: bool) -> bool {
        if wait { self.grace.wait() } else { self.grace.is_over() }
    }
}

/// Replaces all maps in `window` by those that `maps` returns for a range: the ones with a byte in it. The caller
/// holds the list of maps.
pub(super) fn replace(window: (usize, usize), maps: impl Fn(usize, usize) -> Vec<Slot>) -> Option<Old> {
    // SAFETY: only the holder of the list replaces and frees.
    let before = unsafe { TOP.load(Ordering::Acquire).as_ref() };
    let chunks = match before {
        Some(top) => replaced(&top.chunks, window, maps),
        None => replaced(&[Chunk::new(0, usize::MAX, &[])], window, maps),
    };
    let serial = before.map_or(0, |top| top.serial) + 1;
    let old = TOP.swap(Box::into_raw(Box::new(Top::of(serial, chunks))), Ordering::AcqRel);
    SERIAL.store(serial, Ordering::SeqCst);
    // SAFETY: from `Box::into_raw` above, and not reachable any more.
    (!old.is_null()).then(|| Old { _top: unsafe { Box::from_raw(old) }, grace: Grace::new() })
}

fn replaced(
    before: &[Arc<Chunk>],
    window: (usize, usize),
    maps: impl Fn(usize, usize) -> Vec<Slot>,
) -> Vec<Arc<Chunk>> {
    let index = |address: usize| before.partition_point(|chunk| chunk.start <= address).saturating_sub(1);
    let (mut first, mut last) = (index(window.0), index(window.1 - 1));
    // Maps that lie partly in it are looked up as a whole: they may have been cut.
    let touched = before[first..=last].iter().flat_map(|chunk| chunk.maps());
    let touched = touched.filter(|slot| slot.start < window.1 && window.0 < slot.end);
    let (start, end) = touched.fold(window, |(start, end), slot| (start.min(slot.start), end.max(slot.end)));
    (first, last) = (index(start), index(end - 1));
    let outside = |slot: &&Slot| slot.end <= start || slot.start >= end;
    let mut all: Vec<Slot> =
        before[first..=last].iter().flat_map(|chunk| chunk.maps()).filter(outside).cloned().collect();
    all.extend(maps(start, end));
    all.sort_unstable_by_key(|slot| slot.start);
    // A chunk with few maps is merged with its neighbour, so that maps that come and go leave nothing.
    while let Some(next) = before.get(last + 1)
        && all.len() + next.maps().len() <= CHUNK / 2
    {
        all.extend_from_slice(next.maps());
        last += 1;
    }
    while first > 0 && all.len() + before[first - 1].maps().len() <= CHUNK / 2 {
        first -= 1;
        all.splice(0..0, before[first].maps().iter().cloned());
    }
    let mut chunks = before[..first].to_vec();
    chunks.extend(chunks_of(before[first].start, before[last].end, &all));
    chunks.extend_from_slice(&before[last + 1..]);
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio_test_support::random::Random;
    use std::collections::BTreeMap;

    fn slot(start: usize, end: usize) -> Slot {
        Slot { start, end, next: 0, offset: start as u64, changes: true, copies: false, file: None, ahead: None }
    }

    /// What the kernel and the list do, as a map from starts to ends.
    struct Model {
        maps: BTreeMap<usize, usize>,
        chunks: Vec<Arc<Chunk>>,
    }

    impl Model {
        fn change(&mut self, start: usize, end: usize, mapped: bool) {
            let cut: Vec<_> = self.maps.iter().map(|(&s, &e)| (s, e)).filter(|&(s, e)| s < end && start < e).collect();
            for (s, e) in cut {
                self.maps.remove(&s);
                for (s, e) in [(s, e.min(start)), (s.max(end), e)].into_iter().filter(|(s, e)| s < e) {
                    self.maps.insert(s, e);
                }
            }
            if mapped {
                self.maps.insert(start, end);
            }
            let maps = &self.maps;
            let within = |start: usize, end: usize| {
                maps.iter().filter(|&(&s, &e)| s < end && start < e).map(|(&s, &e)| slot(s, e)).collect()
            };
            self.chunks = replaced(&self.chunks, (start, end), within);
        }

        fn check(&self) {
            let top = Top::of(0, self.chunks.clone());
            let all: Vec<_> =
                top.chunks.iter().flat_map(|chunk| chunk.maps()).map(|slot| (slot.start, slot.end)).collect();
            assert_eq!(all, self.maps.iter().map(|(&s, &e)| (s, e)).collect::<Vec<_>>());
            for &(start, end) in &all {
                for (address, inside) in [(start - 1, None), (start, Some(true)), (end - 1, Some(true)), (end, None)] {
                    let slot = top.slot(address);
                    assert!(slot.start <= address && address < slot.next, "{address:x}");
                    let expected =
                        inside.unwrap_or_else(|| self.maps.range(..=address).last().is_some_and(|m| address < *m.1));
                    assert_eq!(address < slot.end, expected, "{address:x}");
                }
            }
            assert_eq!((top.slot(0).start, top.slot(usize::MAX - 1).next), (0, usize::MAX));
            assert!(top.chunks.iter().all(|chunk| chunk.maps().len() <= CHUNK));
            assert!(top.chunks.len() <= all.len() / 8 + 2, "{} chunks of {} maps", top.chunks.len(), all.len());
        }
    }

    #[test]
    fn maps_that_come_and_go_are_found_at_every_address() {
        let mut model = Model { maps: BTreeMap::new(), chunks: vec![Chunk::new(0, usize::MAX, &[])] };
        let mut random = Random::new(1);
        let mut next = |below| random.below(below) as usize;
        for round in 0..3000 {
            let start = 0x10000 + next(2000) * 0x1000;
            // First more are added than removed, later the other way round.
            let comes = next(10) < if round < 1500 { 9 } else { 3 };
            model.change(start, start + (1 + next(if comes { 3 } else { 40 })) * 0x1000, comes);
            if round % 50 == 0 {
                model.check();
            }
        }
        model.change(0x1000, usize::MAX - 0xfff, false);
        model.check();
        assert_eq!(model.chunks.len(), 1);
    }
}
