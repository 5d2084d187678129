//! Buffers in the arena, of a block each. They lie in chunks of up to 64 buffers, so that memory that is not needed any
//! more can be given back to the system.
//!
//! Invariant, under `Shared::buffers_lock`: a chunk with a free buffer is in the list of its kind, one without in none.

use crate::error::{Error, Result};
use crate::file::engine::context::Context;
use crate::index::{BLOCK, Locked};
use core::sync::atomic::{AtomicU64, Ordering};

/// A buffer in the arena.
type Words = [AtomicU64; BLOCK / 8];

/// A buffer's number is the offset of its chunk's first buffer, divided by this, plus its place in the chunk. The first
/// one begins at a multiple of `BLOCK`, so that the number has room for as many places.
const UNIT: u64 = 64;
/// The most buffers of a chunk. The first chunks of a file are smaller.
const PLACES: u64 = BLOCK as u64 / UNIT;
/// Buffers that a file may keep without need.
const SLACK: u64 = 256;
/// Chunks whose memory is given back at once: less than a millisecond.
const AT_ONCE: usize = 16;

/// A chunk, in the cache line before its first buffer.
#[repr(C, align(64))]
struct Chunk {
    /// The free buffers, a bit each.
    free: AtomicU64,
    /// How many buffers it has.
    count: AtomicU64,
    /// The kind of the list that has it, plus one.
    list: AtomicU64,
    /// Its neighbours there.
    before: AtomicU64,
    after: AtomicU64,
    _rest: [AtomicU64; 3],
}

/// The lists of chunks, in the order in which they are used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Some buffers are free.
    Partly,
    /// All are.
    Whole,
    /// All are, and have no memory.
    Empty,
}

const KINDS: [Kind; 3] = [Kind::Partly, Kind::Whole, Kind::Empty];

impl Chunk {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed).clamp(1, PLACES)
    }

    fn all(&self) -> u64 {
        u64::MAX >> (PLACES - self.count())
    }
}

/// Where the buffer with this number lies in the arena.
pub(in crate::file) fn offset(number: u32) -> u64 {
    let (first, place) = parts(number);
    first + place * BLOCK as u64
}

/// The offset of the first buffer of its chunk, and its place there.
fn parts(number: u32) -> (u64, u64) {
    (u64::from(number) / PLACES * PLACES * UNIT, u64::from(number) % PLACES)
}

/// The address of buffer `number`.
pub(super) fn address(cx: Context<'_>, number: u32) -> Result<*mut u8> {
    let words = cx.arena.at::<Words>(offset(number)).ok_or_else(damaged)?;
    Ok(words.as_ptr().cast_mut().cast())
}

#[cold]
fn damaged() -> Error {
    Error::with(libc::EIO, "the shared index is damaged: no such buffer")
}

/// Takes a buffer with arbitrary contents. `ENOSPC`: memory is short.
pub(super) fn take(cx: Context<'_>) -> Result<u32> {
    let lists = Lists::lock(cx)?;
    let first = match lists.first(Kind::Partly).or(lists.first(Kind::Whole)) {
        Some(first) => first,
        None => lists.refill()?,
    };
    let chunk = lists.chunk(first)?;
    let free = chunk.free.load(Ordering::Relaxed) & chunk.all();
    if free == 0 {
        return Err(damaged());
    }
    lists.set_free(first, free & free.wrapping_sub(1))?;
    let used = cx.shared().used.fetch_add(1, Ordering::Relaxed) + 1;
    let peak = &cx.shared().buffers_peak;
    peak.store(peak.load(Ordering::Relaxed).max(used), Ordering::Relaxed);
    let place = u64::from(free.trailing_zeros());
    u32::try_from(first / UNIT + place).map_err(|_| Error::new(libc::ENOSPC))
}

/// Makes a buffer free. Only optimistic readers may still read it, and they will notice.
pub(super) fn give_back(cx: Context<'_>, number: u32) {
    let (first, place) = parts(number);
    let Ok(lists) = Lists::lock(cx) else { return };
    let Ok(chunk) = lists.chunk(first) else { return };
    cx.shared().used.fetch_sub(1, Ordering::Relaxed);
    // Fails only if another process has damaged the lists: the buffer's memory is lost then, and the next `take`
    // reports it.
    let _ = lists.set_free(first, chunk.free.load(Ordering::Relaxed) | 1 << place);
}

/// Buffers that are free and have memory, above what a file may keep.
pub(super) fn spare(cx: Context<'_>) -> u64 {
    let shared = cx.shared();
    let kept = shared.used.load(Ordering::Relaxed) + SLACK;
    shared.buffers_held.load(Ordering::Relaxed).saturating_sub(kept)
}

/// Begins a period: returns how many buffers were in use at once in the last one.
pub(super) fn begin_period(cx: Context<'_>) -> Result<u64> {
    let (_lists, shared) = (Lists::lock(cx)?, cx.shared());
    Ok(shared.buffers_peak.swap(shared.used.load(Ordering::Relaxed), Ordering::Relaxed))
}

/// Gives the memory of some chunks back to the system, but leaves `keep` buffers, those that have been in use since the
/// period began (some may be promised: `prepare`), and some more. Returns of how many; 0: no chunk is free as a whole.
/// Outside the gate.
pub(super) fn trim(cx: Context<'_>, keep: u64) -> Result<u64> {
    let (mut taken, mut buffers) = ([0; AT_ONCE], 0);
    {
        let lists = Lists::lock(cx)?;
        let shared = cx.shared();
        let keep = keep.max(shared.buffers_peak.load(Ordering::Relaxed)) + SLACK;
        let most = shared.buffers_held.load(Ordering::Relaxed).saturating_sub(keep);
        for slot in &mut taken {
            let Some(first) = lists.first(Kind::Whole) else { break };
            let count = lists.chunk(first)?.count();
            if buffers + count > most {
                break;
            }
            lists.remove(first)?;
            buffers += count;
            *slot = first;
        }
        let held = &shared.buffers_held;
        held.store(held.load(Ordering::Relaxed).saturating_sub(buffers), Ordering::Relaxed);
    }
    // Without the lock: nobody can take them now.
    let given = taken.map(|first| first != 0 && cx.arena.give_back(first, length(cx, first)));
    let lists = Lists::lock(cx)?;
    let mut freed = 0;
    for (first, is_given) in taken.into_iter().zip(given).filter(|&(first, _)| first != 0) {
        if is_given {
            lists.add(first, Kind::Empty)?;
            freed += lists.chunk(first)?.count();
        } else {
            lists.add_with_memory(first)?;
        }
    }
    Ok(freed)
}

/// Bytes of a chunk's buffers.
fn length(cx: Context<'_>, first: u64) -> u64 {
    let chunk = cx.arena.at::<Chunk>(first.saturating_sub(UNIT));
    chunk.map_or(0, |chunk| chunk.count() * BLOCK as u64)
}

/// The lists, locked.
struct Lists<'a> {
    cx: Context<'a>,
    _locked: Locked<'a>,
}

impl<'a> Lists<'a> {
    fn lock(cx: Context<'a>) -> Result<Self> {
        Ok(Self { cx, _locked: cx.arena.shared().buffers_lock.lock(cx.me)? })
    }

    fn chunk(&self, first: u64) -> Result<&'a Chunk> {
        self.cx.arena.at(first.saturating_sub(UNIT)).ok_or_else(damaged)
    }

    fn head(&self, kind: Kind) -> &'a AtomicU64 {
        &self.cx.arena.shared().buffers[kind as usize]
    }

    /// The first chunk of a list.
    fn first(&self, kind: Kind) -> Option<u64> {
        Some(self.head(kind).load(Ordering::Relaxed)).filter(|&first| first != 0)
    }

    /// Puts a chunk that is in no list into this one.
    fn add(&self, first: u64, kind: Kind) -> Result<()> {
        let chunk = self.chunk(first)?;
        let after = self.head(kind).load(Ordering::Relaxed);
        if after != 0 {
            self.chunk(after)?.before.store(first, Ordering::Relaxed);
        }
        chunk.before.store(0, Ordering::Relaxed);
        chunk.after.store(after, Ordering::Relaxed);
        chunk.list.store(kind as u64 + 1, Ordering::Relaxed);
        self.head(kind).store(first, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a chunk out of its list.
    fn remove(&self, first: u64) -> Result<()> {
        let chunk = self.chunk(first)?;
        let Some(&kind) = KINDS.iter().find(|&&kind| kind as u64 + 1 == chunk.list.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        let (before, after) = (chunk.before.load(Ordering::Relaxed), chunk.after.load(Ordering::Relaxed));
        match before {
            0 => self.head(kind).store(after, Ordering::Relaxed),
            before => self.chunk(before)?.after.store(after, Ordering::Relaxed),
        }
        if after != 0 {
            self.chunk(after)?.before.store(before, Ordering::Relaxed);
        }
        chunk.list.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// The chunk's free buffers are now these.
    fn set_free(&self, first: u64, free: u64) -> Result<()> {
        let chunk = self.chunk(first)?;
        chunk.free.store(free, Ordering::Relaxed);
        let wanted = match free {
            0 => None,
            free if free == chunk.all() => Some(Kind::Whole),
            _ => Some(Kind::Partly),
        };
        if wanted.map_or(0, |kind| kind as u64 + 1) == chunk.list.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.remove(first)?;
        wanted.map_or(Ok(()), |kind| self.add(first, kind))
    }

    /// Puts a chunk that is in no list, free and with memory, among those that are.
    fn add_with_memory(&self, first: u64) -> Result<()> {
        self.add(first, Kind::Whole)?;
        self.cx.shared().buffers_held.fetch_add(self.chunk(first)?.count(), Ordering::Relaxed);
        Ok(())
    }

    /// An empty chunk has got memory again.
    fn fill(&self, first: u64) -> Result<u64> {
        self.remove(first)?;
        self.add_with_memory(first)?;
        Ok(first)
    }

    /// A chunk with memory, all of it free: one whose memory was given back, or a new one.
    #[cold]
    fn refill(&self) -> Result<u64> {
        let (arena, shared) = (self.cx.arena, self.cx.arena.shared());
        if let Some(first) = self.first(Kind::Empty)
            && arena.take_again(first, length(self.cx, first), false).is_ok()
        {
            return self.fill(first);
        }
        // A quarter more, so that small files stay small.
        let count = (shared.used.load(Ordering::Relaxed) / 4).next_power_of_two().clamp(1, PLACES);
        let allocate = |count: u64| Some((arena.allocate((count as usize + 1) * BLOCK).ok()?, count));
        let (start, count) = match allocate(count) {
            Some(got) => got,
            None => match (arena.allocate(2 * BLOCK), self.first(Kind::Empty)) {
                (Ok(start), _) => (start, 1),
                // There can be no spill either.
                (Err(_), Some(first)) => {
                    arena.take_again(first, length(self.cx, first), true)?;
                    return self.fill(first);
                }
                (Err(e), None) => return Err(e),
            },
        };
        let first = (start + UNIT).next_multiple_of(BLOCK as u64);
        let chunk = self.chunk(first)?;
        chunk.count.store(count, Ordering::Relaxed);
        chunk.free.store(chunk.all(), Ordering::Relaxed);
        self.add_with_memory(first)?;
        Ok(first)
    }
}

#[cfg(test)]
mod tests;
