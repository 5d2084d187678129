//! Writes, reads and cuts one block, with its bytes in a buffer.

use super::early::is_past_cache;
use super::state::State;
use super::{Records, buffers, checkpointing};
use crate::error::Result;
use crate::file::base::background_wakeup;
use crate::file::base::bits::{GRANULE, below, rest_of_granules, runs};
use crate::file::engine::context::{Context, Engine, Part};
use crate::file::engine::home::zero_out;
use crate::file::engine::room::with_room;
use crate::index::{BLOCK, Cell};
use crate::pmem::copy_past;
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;

/// Under pressure, this many new buffers wake the background once.
const WAKES: u64 = 64;

impl Records {
    pub(super) fn write(&self, cx: Context<'_>, block: u64, part: (usize, usize), buf: *mut u8) -> Result<()> {
        self.with_room(cx, || self.write_once::<false>(cx, block, part, buf)).map(|_| ())
    }

    /// See [`Engine::write_callers`](crate::file::engine::context::Engine::write_callers), of a whole block.
    pub(super) fn write_callers_block(&self, cx: Context<'_>, block: u64, buf: *mut u8) -> Result<bool> {
        self.with_room(cx, || self.write_once::<true>(cx, block, (0, BLOCK), buf))
    }

    fn with_room<T>(&self, cx: Context<'_>, work: impl FnMut() -> Result<T>) -> Result<T> {
        // A full journal is full of committed records: once their bytes are durable in the file, it has room again.
        with_room(|| self.live.limit().is_shared(), || self.make_room(cx), work)
    }

    /// `CALLERS`: `buf` is the caller's memory. Then false: nothing was done, it needs a copy.
    fn write_once<const CALLERS: bool>(
        &self,
        cx: Context<'_>,
        block: u64,
        (start, end): (usize, usize),
        buf: *mut u8,
    ) -> Result<bool> {
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
        let bits = match CALLERS {
            true if state.held != 0 && state.held != u64::MAX => return Ok(false), // it has to be compared
            true => self.all_new(),
            false => self.changed(cx, block, start, end, buf, &state)?,
        };
        if bits == 0 {
            return Ok(true);
        }
        let (is_first, granules) = (state.open == 0, (bits & !state.open).count_ones().into());
        self.reserve(cx, is_first, granules)?;
        let unreserve = || self.unreserve(is_first.into(), granules);
        let (number, is_taken_now) = match state.buffer {
            Some(number) => (number, false),
            None => (buffers::take(cx).inspect_err(|_| unreserve())?, true),
        };
        let undo = || {
            unreserve();
            if is_taken_now {
                buffers::give_back(cx, number);
            }
        };
        let is_new_whole = end - start == BLOCK && bits == u64::MAX;
        let filled = buffers::address(cx, number).and_then(|to| {
            match state.in_journal.filter(|_| !is_new_whole) {
                Some(at) => self.copy_from_journal(cx, number, at)?,
                None => self.fill_edges(cx, block, start, end, to, &state)?,
            }
            Ok(to)
        });
        let to = filled.inspect_err(|_| undo())?;
        let _changing = cell.changing();
        let early = self.place_early(cx, block, is_new_whole);
        // SAFETY: a whole block, which is ours or the caller's; it is to be written.
        let in_journal = early.and_then(|place| unsafe { self.store_early(cx, block, place, buf) });
        if in_journal.is_some() {
            // The buffer is for a later write of a part.
        } else if CALLERS {
            undo();
            return Ok(false);
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
        if state.in_journal.is_some() && in_journal.is_none() {
            self.overwrite_early(cx, block);
        }
        State::set_in_journal(cell, in_journal);
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
        Ok(true)
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

    /// The offset up to which a write completes and compares its granules with the file. Unlike [`readable`], not above
    /// the size: a read ends there by itself, but the last granules of a write may reach beyond it.
    pub(super) fn valid_end(&self, cx: Context<'_>) -> u64 {
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
            if let Some(at) = state.in_journal
                && keep != 0
            {
                self.copy_from_journal(cx, number, at)?;
            }
            State::set_in_journal(cell, None);
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

/// The offset up to which bytes of the file are valid.
#[inline]
pub(in crate::file) fn readable(cx: &Context<'_>) -> u64 {
    cx.shared().physical.load(Ordering::Acquire).min(cx.shared().file_end.load(Ordering::Acquire))
}

/// See [`Engine::copy_block`](crate::file::engine::context::Engine::copy_block).
///
/// `block_in_journal`: the address of the block at a byte of the journal.
///
/// # Safety
/// The destination is the caller's buffer, which may be bad.
#[inline]
pub(in crate::file) unsafe fn copy_block(
    cx: &Context<'_>,
    cell: &Cell,
    part: Part,
    block_in_journal: impl FnOnce(u64) -> Result<*mut u8>,
) -> Result<()> {
    let state = State::of(cell, cx.shared().committed());
    let readable = readable(cx);
    let aside = match (state.buffer, state.in_journal) {
        (Some(_), Some(at)) => Some((state.held, block_in_journal(at)?)),
        (Some(number), None) => Some((state.held, buffers::address(*cx, number)?)),
        (None, _) => None,
    };
    // SAFETY: the caller's promise; our buffer is a whole block, as is one of the journal.
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
