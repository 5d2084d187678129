//! Writes part of one block, by each policy.

use super::InPlace;
use super::state::State;
use crate::error::{Error, Result};
use crate::file::base::bits::{GRANULE, above, rest_of_granules, runs, touched};
use crate::file::engine::context::Context;
use crate::file::engine::home::copy_out;
use crate::file::engine::policy::Policy;
use crate::index::{BLOCK, Cell, Changing};
use crate::journal::inplace::Kind;
use crate::map::guard;
use crate::pmem::prefetch;
use crate::rule::{Rule, holds, in_order};
use core::sync::atomic::Ordering;

/// Writes of up to this many bytes, and further ones to the same block, go through the cache: a write-back shared with
/// later writes to the block is cheaper than one for each.
const SMALL: usize = 1024;

/// With more entries, the journal and what it protects do not stay in the processor's cache. Measured with 1 MiB of L2,
/// in ordinary memory: a write of 4 KiB at random and its SYNC take 310 ns past the cache and 380 to 460 through it over
/// 16 MiB, 320 to 350 and 530 to 580 over 64 MiB; over 1 MiB, 220 through it.
const CACHED: u32 = 1024;

/// A write to one block, with its lock held.
#[derive(Clone, Copy)]
struct Piece<'a> {
    cx: &'a Context<'a>,
    cell: &'a Cell,
    block: u64,
    /// Bytes `start..end` of the block.
    start: usize,
    end: usize,
    /// They lie at the same offset here; the rest of the block's worth is room.
    buf: *mut u8,
    /// The granules touched.
    bits: u64,
    /// Granules of the block that hold no committed byte.
    fresh: u64,
    /// The thread's last write was to this block, too.
    hot: bool,
    /// Flushed later: when the thread turns to another block, or by a SYNC.
    staged: bool,
    /// Stored past the cache, if it is not staged.
    past: bool,
}

impl InPlace {
    /// See [`Engine::write_block`](crate::file::engine::context::Engine::write_block).
    pub(super) fn write(&self, cx: &Context<'_>, block: u64, start: usize, end: usize, buf: *mut u8) -> Result<()> {
        let cell = cx.index().cell(block)?;
        let again = self.is_at(cx, block);
        let before = if again { None } else { self.turn_to(cx, block)? };
        let locked = cx.lock(cell);
        // Flushed now, fenced at the end: the write-back continues while this block is copied. Also if this write
        // fails: these lines are not recorded any more.
        let owed = before.is_some();
        let flushed = before.map_or(Ok(()), |dirty| self.flush_dirty(cx, &dirty));
        let written = locked.and_then(|_locked| {
            flushed?;
            self.write_locked(cx, cell, block, (start, end), buf, (again, owed))
        });
        if written.is_err() && owed {
            self.medium.fence();
        }
        written
    }

    /// The rest of `write`, with the block's lock held. `again`: the thread's last write was to this block, too;
    /// `owed`: it has flushed something that it has to fence.
    #[inline]
    fn write_locked(
        &self,
        cx: &Context<'_>,
        cell: &Cell,
        block: u64,
        (start, end): (usize, usize),
        buf: *mut u8,
        (again, owed): (bool, bool),
    ) -> Result<()> {
        let shared = cx.shared();
        let bits = touched(start, end);
        let fresh = above(block, shared.committed_size.load(Ordering::Relaxed));
        shared.raise_stale_end((block * BLOCK as u64) + end.next_multiple_of(GRANULE) as u64);

        let policy = Policy::from_number(shared.policy.load(Ordering::Relaxed));
        let mut state = State::of(cell, shared.committed());
        if let Some(s) = state {
            prefetch(self.log.entry_address(s.entry)); // a certain cache miss
            // The kind of an entry changes only by a checkpoint; an entry with a version of the open epoch cannot
            // have one.
            if s.kind != policy.kind() && s.open.is_none() && bits & !fresh != 0 {
                self.checkpoint_block(cx, cell, block, s)?;
                state = None;
            }
        }
        let (staged, past) = (again || end - start <= SMALL, self.log.entries() > CACHED);
        let piece = Piece { cx, cell, block, start, end, buf, bits, fresh, hot: again, staged, past };
        if bits & !fresh == 0 && state.is_none_or(|s| s.in_log() & bits == 0) {
            // Above C's size, in the file: recovery cuts it off, so no copy is needed.
            return self.store_in_file(&piece, state.map(|s| s.entry), owed);
        }
        let state = match state {
            Some(state) => state,
            None => self.give_entry(cx, cell, block, policy.kind())?,
        };
        match state.kind {
            Kind::Undo => self.write_undo(&piece, state, owed),
            Kind::Map => self.write_map(&piece, state, policy, owed),
        }
    }

    /// Stores in place. The home's old bytes are unused, or logged.
    fn store_in_file(&self, piece: &Piece<'_>, entry: Option<u32>, owed: bool) -> Result<()> {
        let Piece { cx, block, start, end, buf, .. } = *piece;
        cx.room_for(block, end)?;
        let home = cx.home.ptr(block * BLOCK as u64, BLOCK)?;
        let _changing = self.changing(piece);
        self.put(piece, home.wrapping_add(start), buf.wrapping_add(start), end - start)?;
        cx.shared().counts.mine().stored(0, (end - start) as u64);
        // An earlier write may have left the block's entry dirty.
        self.conclude(piece, entry, owed)
    }

    /// Small pieces by ordinary stores, to be flushed later; large ones by non-temporal stores. The source may be the
    /// caller's memory, and bad: `EFAULT`.
    #[inline]
    fn put(&self, piece: &Piece<'_>, dst: *mut u8, src: *const u8, len: usize) -> Result<()> {
        let (medium, Piece { staged, hot, past, .. }) = (self.medium, *piece);
        // SAFETY: `dst` as in `store`; the guard returns a fault of any `src`. The closure owns nothing.
        let put = unsafe {
            guard::run(|| match (staged, past) {
                (true, _) => medium.stage(dst, src, len, hot),
                (false, true) => medium.copy_past(dst, src, len),
                (false, false) => medium.copy(dst, src, len),
            })
        };
        put.map_err(|fault| {
            // A part may be stored: it counts as dirty like a complete one.
            let _ = self.leave_dirty(piece.cx, piece.cell, piece.block, piece.bits);
            Error::new(if fault.is_in(src, len) { libc::EFAULT } else { libc::EIO })
        })
    }

    /// The piece is stored, and `entry` changed: records or flushes dirty lines, and fences this thread's flushes and
    /// non-temporal stores. In exclusive mode the SYNC fences.
    #[inline]
    fn conclude(&self, piece: &Piece<'_>, entry: Option<u32>, owed: bool) -> Result<()> {
        let flushed = if piece.staged {
            self.leave_dirty(piece.cx, piece.cell, piece.block, piece.bits)?
        } else {
            if let Some(entry) = entry {
                self.on_journal(piece.cx, || self.log.entry(entry).flush())?;
            }
            self.leave_clean(piece.cx, piece.cell, piece.block);
            true
        };
        if (owed || flushed) && !piece.cx.exclusive {
            if piece.past { self.medium.order_past() } else { self.medium.fence() }
        }
        Ok(())
    }

    /// Makes readers retry until the guard is dropped.
    #[inline]
    fn changing<'c>(&self, piece: &Piece<'c>) -> Changing<'c> {
        let changing = piece.cell.changing();
        if !piece.staged && !piece.cx.exclusive {
            // Non-temporal stores might be seen before earlier ordinary ones.
            if piece.past { self.medium.order_past() } else { self.medium.fence() }
        }
        changing
    }

    /// A guarded copy to a home; persistent after the next fence.
    #[inline]
    pub(super) fn store(&self, dst: *mut u8, src: *const u8, len: usize) -> Result<()> {
        let medium = self.medium;
        // SAFETY: `dst` lies in our mapping, below the size that the file had when room was made; `src` in our buffer
        // or mapping. If the file was cut meanwhile, the guard returns the fault. The closure owns nothing.
        unsafe { guard::run(|| medium.copy(dst, src, len)) }.map_err(|_| Error::new(libc::EIO))
    }

    /// Undo: pre-image, fence, version, fence, store in place; the first pre-image of an epoch stays.
    fn write_undo(&self, piece: &Piece<'_>, mut state: State, owed: bool) -> Result<()> {
        let Piece { cx, cell, block, start, end, buf, bits, fresh, .. } = *piece;
        cx.room_for(block, end)?;
        let home = cx.home.ptr(block * BLOCK as u64, BLOCK)?;
        let log = self.log.block(state.entry);
        let logged = state.open.map_or(0, |(_, version)| version.granules);
        let mut missing = bits & !fresh & !logged;
        if missing != 0 && logged != 0 {
            // A second small write to the block: more are likely, and the two fences serve all of its granules.
            missing = !fresh & !logged;
        }
        let entry = state.entry;
        let pre_image = || -> Result<()> {
            runs(missing, |first, count| {
                let at = first * GRANULE;
                self.store(log.wrapping_add(at), home.wrapping_add(at), count * GRANULE)
            })?;
            self.log.medium().fence();
            Ok(())
        };
        let mut bits = || -> Result<()> {
            let epoch = cx.shared().committed() + 1;
            self.set_open(cx, cell, &mut state, epoch, logged | missing)?;
            self.on_journal(cx, || self.log.entry(entry).flush())?;
            self.log.medium().fence();
            Ok(())
        };
        let late = !holds(Rule::BitBeforeData);
        if missing != 0 {
            in_order(Rule::PreImageBeforeBit, pre_image, || if late { Ok(()) } else { bits() })?;
        }
        let _changing = self.changing(piece);
        self.put(piece, home.wrapping_add(start), buf.wrapping_add(start), end - start)?;
        if missing != 0 && late {
            bits()?;
        }
        let logged = if missing == 0 { 0 } else { missing.count_ones() as usize * GRANULE };
        cx.shared().counts.mine().stored(logged as u64, (end - start) as u64);
        self.conclude(piece, Some(entry), owed && missing == 0)
    }

    /// Redo and alternate: to the log, or to the home without the committed copy.
    fn write_map(&self, piece: &Piece<'_>, mut state: State, policy: Policy, owed: bool) -> Result<()> {
        let Piece { cx, cell, block, start, end, buf, bits, fresh, .. } = *piece;
        let mut committed_in_log = state.committed_in_log() & !fresh;
        let to_file = match policy {
            Policy::Alternate => bits & (fresh | committed_in_log),
            Policy::Redo | Policy::Undo => bits & fresh,
        };
        let to_log = bits & !to_file;
        self.fill_edges(cx, block, start, end, buf, &state)?;
        if to_log & committed_in_log != 0 {
            // All of the block's: more small writes to it are likely, and the cost is two fences for any number.
            self.checkpoint_granules(cx, cell, block, &mut state, committed_in_log)?;
            committed_in_log = 0;
        }
        // For the file home now, or for a checkpoint, which must not fail for want of room.
        cx.room_for(block, end)?;
        let log = self.log.block(state.entry);
        let home = cx.home.ptr(block * BLOCK as u64, BLOCK)?;
        // A version that begins now starts from the committed one, without what a cut has left above C's size.
        let base = match state.open {
            Some((_, version)) => version.granules,
            None => committed_in_log,
        };
        let _changing = self.changing(piece);
        let put_all = |bits: u64, to: *mut u8| -> Result<u64> {
            let mut bytes = 0;
            runs(bits, |first, count| {
                let at = first * GRANULE;
                bytes += count * GRANULE;
                self.put(piece, to.wrapping_add(at), buf.wrapping_add(at), count * GRANULE)
            })?;
            Ok(bytes as u64)
        };
        let in_log = put_all(to_log, log)?;
        let in_file = put_all(to_file, home)?;
        cx.shared().counts.mine().stored(in_log, in_file);
        self.set_open(cx, cell, &mut state, cx.shared().committed() + 1, base & !to_file | to_log)?;
        self.conclude(piece, Some(state.entry), owed)
    }

    /// Fills the rest of partly covered granules from their live copy; above the size with zeros.
    fn fill_edges(
        &self,
        cx: &Context<'_>,
        block: u64,
        start: usize,
        end: usize,
        buf: *mut u8,
        state: &State,
    ) -> Result<()> {
        rest_of_granules(start, end).try_for_each(|edge| self.fill(cx, block, edge.start, edge.end, buf, state))
    }

    /// Fills bytes `from..to`, all of one granule.
    fn fill(&self, cx: &Context<'_>, block: u64, from: usize, to: usize, buf: *mut u8, state: &State) -> Result<()> {
        let (at, len) = (buf.wrapping_add(from), to - from);
        let offset = block * BLOCK as u64 + from as u64;
        let below = cx.shared().size().saturating_sub(offset).min(len as u64) as usize;
        if state.in_log() >> (from / GRANULE) & 1 == 1 {
            // SAFETY: log block and buffer are ours.
            unsafe { copy_out(at, self.log.block(state.entry).wrapping_add(from), below) }?;
        } else {
            let physical = cx.shared().physical.load(Ordering::Acquire);
            // SAFETY: the buffer is ours.
            unsafe { cx.read_home(offset, at, below, physical) }?;
        }
        // SAFETY: within the buffer, which is a whole block.
        unsafe { at.wrapping_add(below).write_bytes(0, len - below) };
        Ok(())
    }
}
