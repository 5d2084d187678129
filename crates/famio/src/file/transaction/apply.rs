//! Applies a transaction to the open epoch: as the only writer inside the gate, and after making room for all of it.

use super::pieces::Pieces;
use super::seen::Seen;
use super::write_set::{Step, WriteSet};
use crate::error::{Error, Result};
use crate::file::Descriptors;
use crate::file::base::bits::GRANULE;
use crate::file::base::refusal::Answer;
use crate::file::engine::context::{BlockBuf, Context, Needs, Piece};
use crate::file::engine::room::with_room;
use crate::file::session::Session;
use crate::file::session::write::SIZE_MAX;
use crate::index::{Arrival, BLOCK, Shared};
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};

/// A transaction is being copied to its blocks until this is dropped: a concurrent reader waits, or reads again.
struct Copying<'a> {
    shared: &'a Shared,
    /// The value of `Shared::transactions` afterwards.
    number: u64,
}

impl<'a> Copying<'a> {
    fn begin(shared: &'a Shared, number: u64) -> Self {
        shared.transactions.store(number - 1, Ordering::Relaxed);
        fence(Ordering::Release);
        Self { shared, number }
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.shared.transactions.store(self.number, Ordering::Release);
    }
}

/// Parts of the gaps before steps, by the numbers of the steps, in order: old bytes may lie there.
type Stale = Vec<(usize, Range<u64>)>;

impl Session {
    /// Makes the changes part of the open epoch, if what the transaction has seen still holds. If `committed` is
    /// given, the epoch may be made durable at once; then `committed` is called before any write of the next epoch,
    /// and true is returned.
    ///
    /// Refused if the journal was closed meanwhile.
    pub(super) fn apply(
        &self,
        fds: &Descriptors,
        set: &WriteSet,
        seen: Option<&Seen>,
        committed: Option<&dyn Fn()>,
    ) -> Answer<bool> {
        let mut cx = self.context(fds);
        let shared = self.arena.shared();
        // Others have to be able to share the flush of a disk; and a SYNC of its own waits for the end of a backup.
        let committed = committed.filter(|_| self.engine.commits_in_memory() && !shared.totals.is_frozen());
        if !set.changes_size() && shared.gate.is_exclusively_of(self.me) {
            let inside = self.enter_gate(&mut cx)?;
            if inside.exclusive && (committed.is_none() || self.may_commit_inside()) {
                // Other threads wait until this one is out: it is as if the gate were closed.
                self.apply_alone(cx, set, seen)?;
                return self.commit_at_once(fds, true, committed);
            }
        }
        let mut pieces = if committed.is_some() { self.pieces_for_pair(set) } else { None };
        let mut leads = None;
        self.show_before_close(fds)?; // before this thread leads, which is a lock that it holds
        if let Some(pieces) = &mut pieces {
            match self.pairs.arrive(|| self.prefetch_pieces(&self.context(fds), pieces)) {
                Arrival::Leads(leading) => leads = Some((leading, pieces)),
                Arrival::Joins(number)
                    if seen.is_none() && self.join_pair(self.context(fds), set, pieces, number)? =>
                {
                    return Ok(true);
                }
                _ => {}
            }
        }
        let _closed = self.close_shown(fds)?;
        shared.gate.note_closer(self.me);
        if let (Some((leading, pieces)), Some(committed)) = (&leads, committed)
            && pieces.is_within(shared.size())
            && shared.follow_up.load(Ordering::Relaxed) == 0
            && !self.saves_images()
        {
            self.lead_pair(fds, leading, (set, pieces), seen, committed)?;
            return Ok(true);
        }
        self.apply_alone(self.context(fds), set, seen)?;
        self.commit_at_once(fds, false, committed)
    }

    /// If `committed` is given: commits what was applied, and calls it. Returns whether it did.
    #[inline]
    pub(super) fn commit_at_once(&self, fds: &Descriptors, inside: bool, committed: Option<&dyn Fn()>) -> Answer<bool> {
        let Some(committed) = committed else { return Ok(false) };
        self.commit(fds, inside)?;
        committed();
        self.arena.shared().totals.wait_for_thaw();
        Ok(true)
    }

    /// No other thread is inside the gate.
    #[inline]
    fn apply_alone(&self, cx: Context<'_>, set: &WriteSet, seen: Option<&Seen>) -> Answer<()> {
        self.check_still_holds(cx, seen)?;
        if set.is_empty() {
            return Ok(());
        }
        set.find_end(cx.shared().size());
        let stale = self.prepare(cx, set)?;
        Ok(self.copy_prepared(cx, set, &stale)?)
    }

    /// Checks that the file may be changed, and that what was seen still holds. No other thread is inside the gate.
    #[inline]
    pub(super) fn check_still_holds(&self, cx: Context<'_>, seen: Option<&Seen>) -> Answer<()> {
        self.check_change(cx)?;
        self.carry_out(&cx)?;
        Ok(seen.map_or(Ok(()), |seen| self.still_holds(cx, seen))?)
    }

    /// Everything that can fail, before the first byte is copied.
    #[inline]
    pub(super) fn prepare(&self, cx: Context<'_>, set: &WriteSet) -> Answer<Stale> {
        let is_shared = || self.engine.journal().limit().is_shared();
        let stale = with_room(is_shared, || self.engine.make_room(cx), || self.make_room_for(cx, set))?;
        cx.shared().make_dirty();
        if self.saves_images() {
            self.save_images_for(cx, set)?;
        }
        Ok(stale)
    }

    /// Copies what was [prepared](Self::prepare).
    #[inline]
    pub(super) fn copy_prepared(&self, cx: Context<'_>, set: &WriteSet, stale: &Stale) -> Result<()> {
        self.copying(cx, || self.copy_all(cx, set, stale))
    }

    /// Runs `copy`, which copies to blocks: readers see all or nothing of it.
    #[inline]
    pub(super) fn copying(&self, cx: Context<'_>, copy: impl FnOnce() -> Result<()>) -> Result<()> {
        let shared = cx.shared();
        let number = (shared.transactions.load(Ordering::Relaxed) | 1) + 1;
        let copied = {
            let _copying = Copying::begin(shared, number);
            // If the process is killed, a transaction that is copied in part is not kept.
            if self.keeps { self.moving(copy) } else { copy() }
        };
        self.touch(cx);
        copied.map_err(|e| {
            shared.poisoned.store(1, Ordering::Release);
            let what = "a transaction could not be copied to the end: no more writes are taken; reads go on";
            Error::with(libc::EIO, format!("{what} ({e})"))
        })
    }

    /// Makes room for all of it, in the file and the journal, so that the copy does not fail.
    fn make_room_for(&self, cx: Context<'_>, set: &WriteSet) -> Result<Stale> {
        let shared = cx.shared();
        let (mut size, mut stale_end) = (shared.size(), shared.stale_end.load(Ordering::Acquire));
        let (mut needs, mut stale) = (Needs::default(), Stale::new());
        for (number, step) in set.steps().iter().enumerate() {
            let (gap, range) = match *step {
                Step::Write { offset, len, .. } => {
                    let offset = set.place(offset);
                    if offset + len as u64 > SIZE_MAX {
                        return Err(Error::new(libc::EFBIG)); // it is written at the end
                    }
                    (offset, offset..offset + len as u64)
                }
                Step::SetSize(to) => {
                    self.room_for_size(cx, size, to)?;
                    (to, to..to)
                }
            };
            if gap > size && size < stale_end {
                self.each_stale(cx, size..gap.min(stale_end), |part| {
                    stale.push((number, part.clone()));
                    self.prepare_range(&cx, part, &mut needs)
                })?;
            }
            if let Step::SetSize(to) = *step {
                size = to;
                continue;
            }
            self.prepare_range(&cx, range.clone(), &mut needs)?;
            stale_end = stale_end.max(range.end.next_multiple_of(GRANULE as u64));
            size = size.max(range.end);
        }
        self.engine.prepare_rest(&cx, &needs)?;
        Ok(stale)
    }

    #[inline]
    fn prepare_range(&self, cx: &Context<'_>, range: Range<u64>, needs: &mut Needs) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let (block, start) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let end = (BLOCK as u64).min(range.end - block * BLOCK as u64) as usize;
            if !self.engine.is_prepared(cx, block) {
                self.engine.prepare_block(cx, cx.index().cell(block)?, (block, start, end), needs)?;
            }
            at = block * BLOCK as u64 + end as u64;
        }
        Ok(())
    }

    /// The transaction is one change of one process: saves all its images before any of it is made.
    #[cold]
    fn save_images_for(&self, cx: Context<'_>, set: &WriteSet) -> Answer<()> {
        set.steps().iter().try_for_each(|step| match *step {
            Step::Write { offset, len, .. } => self.save_images(cx, set.place(offset), len as u64),
            Step::SetSize(size) => self.save_images_of_size(cx, size),
        })
    }

    fn copy_all(&self, cx: Context<'_>, set: &WriteSet, stale: &Stale) -> Result<()> {
        let shared = cx.shared();
        let mut pieces = Pieces::new();
        let flush = |pieces: &mut Pieces| {
            let copied = self.copy_pieces(&cx, pieces.all());
            pieces.clear();
            copied
        };
        let (mut writes, mut bytes) = (0, 0);
        let mut stale = &stale[..];
        for (number, step) in set.steps().iter().enumerate() {
            while let [(step, part), rest @ ..] = stale
                && *step == number
            {
                flush(&mut pieces)?;
                self.write_zeros(cx, &mut part.start.clone(), part.end)?;
                stale = rest;
            }
            match *step {
                Step::Write { offset, from, len } => {
                    let offset = set.place(offset);
                    let (size, end) = (shared.size(), offset + len as u64);
                    pieces.add(offset, set.bytes(from, len), flush)?;
                    if end > size {
                        // Before others replace its granules, which are filled up to the end of the file.
                        flush(&mut pieces)?;
                        shared.size.store(end, Ordering::Release);
                    }
                    writes += 1;
                    bytes += len as u64;
                }
                Step::SetSize(to) => {
                    flush(&mut pieces)?;
                    let size = shared.size();
                    if to != size {
                        self.resize_zeroed(cx, size, to)?;
                    }
                }
            }
        }
        flush(&mut pieces)?;
        shared.counts.mine().wrote(writes, bytes);
        Ok(())
    }

    pub(super) fn copy_pieces(&self, cx: &Context<'_>, pieces: &[Piece]) -> Result<()> {
        let mut rest = pieces;
        while !rest.is_empty() {
            let written = self.engine.write_pieces(cx, rest)?;
            rest = &rest[written..];
            if let Some((piece, others)) = rest.split_first() {
                self.copy_piece(cx, piece)?;
                let number = cx.shared().transactions.load(Ordering::Relaxed) + 1;
                cx.index().cell(piece.block)?.transaction.store(number, Ordering::Relaxed);
                rest = others;
            }
        }
        Ok(())
    }

    fn copy_piece(&self, cx: &Context<'_>, piece: &Piece) -> Result<()> {
        let Piece { block, start, end, from } = *piece;
        if start.is_multiple_of(GRANULE) && end.is_multiple_of(GRANULE) {
            // No granule has to be filled up: only these bytes are touched, and only read.
            return self.engine.write_block(cx, block, start, end, from.cast_mut().wrapping_sub(start));
        }
        let mut buf = BlockBuf::new();
        let buf = buf.as_mut_ptr().cast::<u8>();
        // SAFETY: room for a block, which contains these bytes.
        unsafe { buf.add(start).copy_from_nonoverlapping(from, end - start) };
        self.engine.write_block(cx, block, start, end, buf)
    }
}
