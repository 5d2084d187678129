//! The writes of a checkpoint: committed granules of a block, or of a run of blocks at once, from their buffers to the
//! file.

use super::checkpointing::Checkpointing;
use super::state::State;
use super::{Records, buffers};
use crate::error::Result;
use crate::file::base::bits::{GRANULE, runs, touched};
use crate::file::engine::context::Context;
use crate::index::{BLOCK, Cell, Locked};
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;

/// The most blocks that one call writes.
const MAX_BLOCKS: usize = 16;

/// A block that is locked.
struct Held<'c> {
    block: u64,
    cell: &'c Cell,
    state: State,
    /// The granules to write.
    moving: u64,
    buffer: u32,
    locked: Option<Locked<'c>>,
}

impl Held<'_> {
    /// Whether there is something to write, and nothing in its buffer that must not be written.
    fn is_all_committed(&self) -> bool {
        self.moving != 0 && self.state.open == 0
    }
}

/// What a block has for the file.
enum Next<'c> {
    Held(Held<'c>),
    /// A writer has locked it.
    Busy,
    Nothing,
}

impl Records {
    /// Writes the first of `blocks`, together with those of the next that follow it in the file, where nothing of them is
    /// uncommitted, and they do not make the file longer. `all`: waits for writers. Returns how many blocks are done.
    pub(super) fn checkpoint_run(
        &self,
        cx: Context<'_>,
        mut blocks: impl Iterator<Item = u64>,
        checkpointing: &mut Checkpointing,
        all: bool,
    ) -> Result<usize> {
        let Some(block) = blocks.next() else { return Ok(0) };
        let first = match self.hold(cx, block, all)? {
            Next::Held(held) => held,
            Next::Nothing => return Ok(1),
            Next::Busy => {
                checkpointing.waiting.push(block);
                checkpointing.skipped = true;
                return Ok(1);
            }
        };
        checkpointing.overwritten |= first.state.open != 0;
        checkpointing.left_some |= first.state.open != 0;
        let size = cx.shared().committed_size.load(Ordering::Acquire);
        // What makes the file longer is written block by block: a kill within a longer write leaves a size that looks
        // like an outsider's.
        let end = size.min(cx.shared().physical.load(Ordering::Acquire));
        let joins = |held: &Held<'_>| held.is_all_committed() && (held.block + 1) * BLOCK as u64 <= end;
        if !joins(&first) {
            self.copy_to_file(cx, &first, size)?;
            self.is_in_file(cx, [first]);
            return Ok(1);
        }
        let mut run = Vec::with_capacity(MAX_BLOCKS);
        run.push(first);
        while run.len() < MAX_BLOCKS
            && let Some(next) = blocks.next().filter(|&next| next == block + run.len() as u64)
            // Waits for none of these: other locks are held.
            && let Next::Held(held) = self.hold(cx, next, false)?
            && joins(&held)
        {
            run.push(held);
        }
        self.write_run(cx, &run, end)?;
        let done = run.len();
        self.is_in_file(cx, run);
        Ok(done)
    }

    /// Writes blocks that follow each other, from the first granule to the last by one call: what lies between the
    /// granules comes from the file, and does not change there. All of it lies below `end`.
    fn write_run(&self, cx: Context<'_>, run: &[Held<'_>], end: u64) -> Result<()> {
        let mut pieces: [&[u8]; MAX_BLOCKS] = [&[]; MAX_BLOCKS];
        let mut offset = 0;
        for (number, (piece, held)) in pieces.iter_mut().zip(run).enumerate() {
            let buffer = self.bytes(cx, held.buffer, &held.state)?;
            let first = if number == 0 { held.moving.trailing_zeros() as usize } else { 0 };
            let until = if number + 1 == run.len() { 64 - held.moving.leading_zeros() as usize } else { 64 };
            let start = held.block * BLOCK as u64;
            runs(touched(first * GRANULE, until * GRANULE) & !held.moving, |gap, count| {
                let at = gap * GRANULE;
                // SAFETY: within our buffer: a block in the journal has no gap. The block's lock keeps writers away, and
                // no reader takes these granules from the buffer.
                unsafe { cx.read_home(start + at as u64, buffer.wrapping_add(at), count * GRANULE, end) }
            })?;
            // SAFETY: our buffer, or a block of the journal; the block's lock keeps writers away until the run is
            // written, by a system call.
            *piece =
                unsafe { core::slice::from_raw_parts(buffer.wrapping_add(first * GRANULE), (until - first) * GRANULE) };
            if number == 0 {
                offset = start + (first * GRANULE) as u64;
            }
        }
        self.write_to_file(cx, offset, &pieces[..run.len()])
    }

    /// Locks a block that may have something for the file.
    fn hold<'c>(&self, cx: Context<'c>, block: u64, waits: bool) -> Result<Next<'c>> {
        let Some(cell) = cx.index().lookup(block) else { return Ok(Next::Nothing) };
        let locked = match waits {
            true => cx.lock(cell)?,
            false => match cx.try_lock(cell) {
                Some(locked) => locked,
                None => return Ok(Next::Busy),
            },
        };
        let state = State::of(cell, cx.shared().committed());
        let Some(buffer) = state.buffer else { return Ok(Next::Nothing) };
        let moving = if holds(Rule::OnlyCommittedIsCheckpointed) { state.held & !state.open } else { state.held };
        Ok(Next::Held(Held { block, cell, state, moving, buffer, locked }))
    }

    /// The file has what was to be written of these.
    fn is_in_file<'c>(&self, cx: Context<'c>, all: impl IntoIterator<Item = Held<'c>>) {
        let (shared, mut bytes) = (cx.shared(), 0);
        let (mut unused, mut count) = ([0; MAX_BLOCKS], 0);
        for Held { cell, state, moving, buffer, locked, .. } in all {
            bytes += u64::from(moving.count_ones()) * GRANULE as u64;
            let changing = cell.changing();
            State::set(cell, self.next_epoch(), (state.held & !moving, state.open), shared.committed());
            if state.open == 0 {
                cell.entry.store(0, Ordering::Relaxed);
                State::set_in_journal(cell, None);
                unused[count] = buffer;
                count += 1;
            }
            drop((changing, locked));
        }
        // May wait for memory that another thread takes: no block is locked any more.
        unused[..count].iter().for_each(|&buffer| buffers::give_back(cx, buffer));
        if bytes != 0 {
            shared.totals.count_write_back(bytes);
        }
    }

    /// Writes granules to the file, as far as they lie below its committed size.
    fn copy_to_file(&self, cx: Context<'_>, held: &Held<'_>, size: u64) -> Result<()> {
        let from = self.bytes(cx, held.buffer, &held.state)?;
        runs(held.moving, |first, count| {
            let offset = held.block * BLOCK as u64 + (first * GRANULE) as u64;
            let len = (count * GRANULE).min(size.saturating_sub(offset) as usize);
            if len == 0 {
                return Ok(());
            }
            // SAFETY: as in `write_run`.
            let bytes = unsafe { core::slice::from_raw_parts(from.add(first * GRANULE), len) };
            self.write_to_file(cx, offset, &[bytes])
        })
    }

    /// Writes committed bytes to the file, which may become longer by them. Not synced.
    pub(super) fn write_to_file(&self, cx: Context<'_>, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let shared = cx.shared();
        let end = offset + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let physical = shared.physical.load(Ordering::Acquire);
        if end > physical {
            shared.physical_next.store(end, Ordering::Release);
        }
        cx.fds.with_lasting(|fd| self.medium.pwritev(fd, pieces, offset)).inspect_err(|e| {
            if ![libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EPERM].contains(&e.errno()) {
                shared.poisoned.store(1, Ordering::Release); // the medium fails
            }
            // A part of it may be there, which a later cut must find.
            if let (true, Ok(stat)) = (end > physical, cx.fds.stat()) {
                shared.physical.fetch_max((stat.st_size as u64).min(end), Ordering::AcqRel);
            }
        })?;
        self.write_out.note(offset..end);
        if end > physical {
            cx.home.cover(cx.fds, end)?;
            shared.physical.fetch_max(end, Ordering::AcqRel);
        }
        Ok(())
    }
}
