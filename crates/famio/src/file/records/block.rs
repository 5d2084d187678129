//! Writes, reads and cuts one block, with its bytes in a buffer.

use super::early::is_past_cache;
use super::state::State;
use super::{Records, buffers, checkpointing};
use crate::error::{Error, Result};
use crate::file::base::background_wakeup;
use crate::file::base::bits::{GRANULE, below, rest_of_granules, runs, touched};
use crate::file::engine::context::{BlockBuf, Context, Engine, Part};
use crate::file::engine::home::zero_out;
use crate::file::engine::room::with_room;
use crate::index::{BLOCK, Cell};
use crate::pmem::{copy_past, prefetch};
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;

/// Words that are compared first, by their offsets in the block: if all differ, the whole block counts as new.
const SAMPLE: [usize; 8] = [64, 584, 1104, 1624, 2144, 2664, 3184, 4024];

/// Under pressure, this many new buffers wake the background once.
const WAKES: u64 = 64;

impl Records {
    pub(super) fn write(&self, cx: Context<'_>, block: u64, start: usize, end: usize, buf: *mut u8) -> Result<()> {
        // A full journal is full of committed records: once their bytes are durable in the file, it has room again.
        let is_shared = || self.live.limit().is_shared();
        with_room(is_shared, || self.make_room(cx), || self.write_once(cx, block, start, end, buf))
    }

    fn write_once(&self, cx: Context<'_>, block: u64, start: usize, end: usize, buf: *mut u8) -> Result<()> {
        let buffers = cx.shared().used.load(Ordering::Relaxed) * BLOCK as u64;
        if self.is_tight() && self.granules.load(Ordering::Relaxed) == 0 {
            // What the epoch overwrites keeps the journal in use until its commit: make room before.
            self.checkpoint_what_can_be(cx)?;
        }
        if self.tier.as_ref().map_or(buffers > checkpointing::WRITERS_HELP_FROM, |tier| tier.is_hard(buffers)) {
            // The background does not keep up: help it while that helps.
            self.checkpoint_round(cx)?;
        }
        let cell = cx.index().cell(block)?;
        let _locked = cx.lock(cell)?;
        // A checkpoint must not fail for want of room in the file, nor the commit for want of room in the journal.
        // Under the lock: a cut that reaches the file meanwhile frees reserved room, and reserves again for blocks
        // that it finds.
        cx.home.reserve(cx.fds, block * BLOCK as u64, block * BLOCK as u64 + end as u64)?;
        let committed = cx.shared().committed();
        let state = State::of(cell, committed);
        let bits = self.changed(cx, block, start, end, buf, &state)?;
        if bits == 0 {
            return Ok(());
        }
        let (is_first, granules) = (state.open == 0, (bits & !state.open).count_ones().into());
        self.reserve(cx, is_first, granules)?;
        let unreserve = |_: &Error| self.unreserve(is_first.into(), granules);
        let (number, is_taken_now) = match state.buffer {
            Some(number) => (number, false),
            None => (buffers::take(cx).inspect_err(unreserve)?, true),
        };
        let filled = buffers::address(cx, number).and_then(|to| {
            self.fill_edges(cx, block, start, end, to, &state)?;
            Ok(to)
        });
        let to = match filled {
            Ok(to) => to,
            Err(e) => {
                unreserve(&e);
                if is_taken_now {
                    buffers::give_back(cx, number);
                }
                return Err(e);
            }
        };
        let is_new_whole = end - start == BLOCK && bits == u64::MAX;
        let early = self.place_early(cx, block, is_new_whole);
        let _changing = cell.changing();
        if let Some(place) = early {
            // SAFETY: both are our buffers of a whole block, and do not overlap; all of it is written.
            unsafe { self.store_early(cx, place, to, buf) };
        } else if is_new_whole && cx.exclusive && self.area.is_none() && is_past_cache(cx) {
            // Other threads might see it too late; but they end exclusive mode first, which is a fence.
            // SAFETY: both are our buffers of a whole block, and do not overlap.
            unsafe { copy_past(to, buf, BLOCK) };
        } else {
            runs(bits, |first, count| {
                let (from, until) = ((first * GRANULE).max(start), ((first + count) * GRANULE).min(end));
                // SAFETY: both are our buffers of a whole block, and do not overlap.
                unsafe { to.add(from).copy_from_nonoverlapping(buf.wrapping_add(from), until - from) };
                Ok(())
            })?;
        }
        cell.entry.store(number + 1, Ordering::Relaxed);
        let (held, open) = (state.held | bits, state.open | bits);
        let is_new = state.held & !open == 0 || !holds(Rule::NeededSinceTheOldest);
        let since = if is_new { self.next_epoch() } else { state.since };
        State::set(cell, since, (held, open), committed);
        if state.open == 0 {
            self.open.push(cx, block);
        }
        if is_taken_now {
            self.count_memory(cx);
            // Not by each: what it can do for one more buffer is not worth a wake.
            if cx.shared().used.load(Ordering::Relaxed).is_multiple_of(WAKES) && self.is_pressed(cx) {
                background_wakeup::wake();
            }
        }
        Ok(())
    }

    /// Prefetches what [`changed`](Self::changed) compares first.
    #[inline]
    pub(super) fn prefetch_sample(&self, cx: &Context<'_>, block: u64) {
        if let Some(cell) = cx.index().lookup(block)
            && let Some(number) = cell.entry.load(Ordering::Relaxed).checked_sub(1)
            && let Ok(buffer) = buffers::address(*cx, number)
        {
            SAMPLE.into_iter().for_each(|offset| prefetch(buffer.wrapping_add(offset)));
        }
    }

    /// Reads granules that the write covers in part, and that are not in the buffer yet, from the file.
    fn fill_edges(
        &self,
        cx: Context<'_>,
        block: u64,
        start: usize,
        end: usize,
        to: *mut u8,
        state: &State,
    ) -> Result<()> {
        for edge in rest_of_granules(start, end).filter(|edge| state.held >> (edge.start / GRANULE) & 1 == 0) {
            let offset = block * BLOCK as u64 + edge.start as u64;
            // SAFETY: within our buffer.
            unsafe { cx.read_home(offset, to.add(edge.start), edge.len(), self.valid_end(cx)) }?;
        }
        Ok(())
    }

    /// The granules that the write changes. Programs write whole pages of which little is new; unchanged granules
    /// need no journal. Compares only what is in memory.
    fn changed(
        &self,
        cx: Context<'_>,
        block: u64,
        start: usize,
        end: usize,
        buf: *mut u8,
        state: &State,
    ) -> Result<u64> {
        let bits = touched(start, end);
        if self.tier.is_some() && state.held & bits == 0 {
            return Ok(bits); // comparing would need a read of the file; the next write finds the block in the buffer
        }
        // On the heap: the stack, which may be small, already has a block of the caller's bytes.
        let mut room = (bits & !state.held != 0).then(Box::<BlockBuf>::new_uninit);
        let live = room.as_mut().map_or(core::ptr::null_mut(), |room| room.as_mut_ptr().cast::<u8>());
        if !live.is_null() {
            // SAFETY: within our buffer.
            unsafe {
                cx.read_home(block * BLOCK as u64 + start as u64, live.add(start), end - start, self.valid_end(cx))?;
            }
        }
        let held = match state.buffer {
            Some(number) => buffers::address(cx, number)?,
            None => live,
        };
        let size = cx.shared().size();
        // If a whole block is new, that is found out without reading all of the old one.
        if bits & state.held == u64::MAX {
            let sample = |block: *mut u8| {
                // SAFETY: our buffer of a whole block; no thread writes to it while the block's lock is held.
                SAMPLE.map(|offset| unsafe { block.add(offset).cast::<u64>().read_unaligned() })
            };
            // All loads are under way at once.
            let (new, old) = (sample(buf), sample(held));
            if new.iter().zip(old).fold(true, |differ, (new, old)| differ & (*new != old)) {
                return Ok(u64::MAX);
            }
        }
        let mut changed = 0;
        for granule in start / GRANULE..=(end - 1) / GRANULE {
            let (from, until) = ((granule * GRANULE).max(start), ((granule + 1) * GRANULE).min(end));
            let source = if state.held >> granule & 1 == 1 { held } else { live };
            // SAFETY: both are our buffers of a whole block; no thread writes to them while the block's lock is held.
            let same = unsafe {
                if until - from == GRANULE {
                    is_same_granule(buf.wrapping_add(from), source.add(from))
                } else {
                    core::slice::from_raw_parts(buf.wrapping_add(from), until - from)
                        == core::slice::from_raw_parts(source.add(from), until - from)
                }
            };
            // Above the size nothing is unchanged: zeros written there belong to the file from now on.
            let above = block * BLOCK as u64 + until as u64 > size;
            changed |= u64::from(!same || above) << granule;
        }
        Ok(changed)
    }

    /// The offset up to which a write completes and compares its granules with the file. Unlike [`readable`], not above
    /// the size: a read ends there by itself, but the last granules of a write may reach beyond it.
    fn valid_end(&self, cx: Context<'_>) -> u64 {
        readable(&cx).min(cx.shared().size())
    }

    /// A cut: drops granules above `size` from the buffers, and clears the rest of the granule at `size`. The gate is
    /// closed.
    pub(super) fn drop_above(&self, cx: Context<'_>, size: u64) -> Result<()> {
        let committed = cx.shared().committed();
        let first = size / BLOCK as u64;
        let last = cx.shared().size().div_ceil(BLOCK as u64);
        cx.index().for_each(first, last, |block, cell| {
            let state = State::of(cell, committed);
            let Some(number) = state.buffer else { return Ok(()) };
            let _locked = cx.lock(cell)?;
            let changing = cell.changing();
            let keep = below(block, size);
            State::set(cell, state.since, (state.held & keep, state.open & keep), committed);
            self.granules.fetch_sub((state.open & !keep).count_ones().into(), Ordering::Relaxed);
            // It counts again when it is written again.
            self.blocks.fetch_sub(u64::from(state.open != 0 && state.open & keep == 0), Ordering::Relaxed);
            let inside = size.saturating_sub(block * BLOCK as u64).min(BLOCK as u64) as usize;
            let tail = inside.next_multiple_of(GRANULE) - inside;
            if tail > 0 {
                // SAFETY: within our buffer.
                unsafe { zero_out(buffers::address(cx, number)?.wrapping_add(inside), tail) }?;
            }
            let is_free = state.held & keep == 0;
            if is_free {
                cell.entry.store(0, Ordering::Relaxed);
            }
            drop(changing);
            if is_free {
                buffers::give_back(cx, number);
            }
            Ok(())
        })
    }
}

/// Compares by vectors: a comparison of slices or arrays of this length is a call of libc's.
///
/// # Safety
/// Both may be read for a granule, which nothing writes to meanwhile.
#[inline]
unsafe fn is_same_granule(a: *const u8, b: *const u8) -> bool {
    const WORDS: usize = GRANULE / size_of::<u64>();
    // SAFETY: the caller's promise.
    let (a, b) = unsafe { (a.cast::<[u64; WORDS]>().read_unaligned(), b.cast::<[u64; WORDS]>().read_unaligned()) };
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The offset up to which bytes of the file are valid.
#[inline]
pub(in crate::file) fn readable(cx: &Context<'_>) -> u64 {
    cx.shared().physical.load(Ordering::Acquire).min(cx.shared().file_end.load(Ordering::Acquire))
}

/// See [`Engine::copy_block`](crate::file::engine::context::Engine::copy_block).
///
/// # Safety
/// The destination is the caller's buffer, which may be bad.
#[inline]
pub(in crate::file) unsafe fn copy_block(cx: &Context<'_>, cell: &Cell, part: Part) -> Result<()> {
    let state = State::of(cell, cx.shared().committed());
    let readable = readable(cx);
    let aside = match state.buffer {
        Some(number) => Some((state.held, buffers::address(*cx, number)?)),
        None => None,
    };
    // SAFETY: the caller's promise; our buffer is a whole block.
    unsafe { cx.copy_merged(part, aside, readable) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::file::{Access, AtomicFile, UserBuf};
    use std::os::fd::{AsFd, AsRawFd};

    /// Twice as many as stay in the cache, by a thread that has the file to itself.
    #[test]
    fn blocks_that_go_past_the_cache_are_read_and_committed() {
        const SIZE: usize = 8 << 20;
        let path = format!("records-past-cache-{}", std::process::id());
        std::fs::write(&path, vec![1; SIZE]).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let name = std::ffi::CString::new(path.clone()).unwrap();
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
        let bytes = |pass: u8| -> Vec<u8> { (0..SIZE).map(|at| (at / 8) as u8 ^ (at >> 11) as u8 ^ pass).collect() };
        let check = |pass: u8| {
            let mut got = vec![0; SIZE];
            // SAFETY: the test's memory.
            let read = unsafe { atomic.read(0, &[UserBuf::of(&mut got)]) }.unwrap();
            assert!(read == SIZE && got == bytes(pass), "pass {pass}");
        };
        for pass in 2..5 {
            let mut bytes = bytes(pass);
            for (number, block) in bytes.chunks_mut(BLOCK).enumerate() {
                // SAFETY: the test's memory.
                unsafe { atomic.write((number * BLOCK) as u64, &[UserBuf::of(block)]) }.unwrap();
            }
            std::thread::scope(|scope| scope.spawn(|| check(pass)).join()).unwrap();
            check(pass);
        }
        atomic.sync().unwrap();
        check(4);
        atomic.remove_descriptor(file.as_raw_fd()).unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes(4));
        std::fs::remove_file(&path).unwrap();
    }
}
