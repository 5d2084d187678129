//! The engine for files behind the page cache: bytes that are not in the file yet lie in buffers in the arena. A SYNC
//! appends the epoch's writes to the journal; a checkpoint writes committed granules to the file. The journal is one
//! of records, on a disk, or a tiered one, in memory that persists by itself, which is also a write cache
//! (`write_back.rs`).

mod attach;
mod biased;
mod block;
mod buffers;
mod changed;
mod checkpoint;
mod checkpointing;
mod commit;
mod early;
mod epochs;
mod flush;
mod forced;
mod hand_over;
mod in_journal;
mod memory;
mod open_blocks;
mod prepare;
mod pressure;
mod relog;
mod reserve;
mod state;
#[cfg(test)]
mod tiered_file;
mod to_file;
mod waiting;
mod write_back;
mod write_out;

pub(super) use attach::{attach, attach_tiered, join, join_tiered};
pub(super) use block::{copy_block, readable};
pub(super) use buffers::offset;
pub(super) use state::State;

use crate::error::{Error, Result};
use crate::file::engine::context::{Context, Engine, Needs, Part, Sealed, Words, restore_times};
use crate::file::engine::journal_name::{Due, Named, is_found};
use crate::file::engine::room::with_room;
use crate::index::{BLOCK, Cell};
use crate::journal::live::Live;
use crate::journal::tiered::Area;
use crate::pmem::{Medium, TestHooks};
use crate::settings::Durability;
use crate::thread::Mutex;
use biased::Biased;
use checkpointing::Checkpointing;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use epochs::{EpochLog, Segment};
use memory::{Held, Surplus};
use open_blocks::OpenBlocks;
use std::sync::Arc;
use write_back::WriteBack;
use write_out::WriteOut;

/// A journal of epochs and the file that it protects.
pub(crate) struct Records {
    log: Biased<EpochLog>,
    /// The write-back of a tiered journal; `None`: a journal of records.
    tier: Option<WriteBack>,
    live: Arc<Live>,
    medium: &'static dyn Medium,
    /// Bytes of journal reserved for the open epoch.
    reserved: AtomicU64,
    /// The open epoch's blocks and granules, for the estimate of its cost.
    blocks: AtomicU64,
    granules: AtomicU64,
    /// The lowest size of the open epoch so far.
    cut: AtomicU64,
    /// The size to which committed epochs have cut the file and no pass has yet; `u64::MAX`: there is no such cut.
    committed_cut: AtomicU64,
    open: OpenBlocks,
    checkpointing: Biased<Checkpointing>,
    /// Bytes appended to the journal, and their number when the last pass began.
    appended: AtomicU64,
    taken_up: AtomicU64,
    /// Where blocks are stored early; `None`: a journal of records.
    area: Option<Arc<Area>>,
    /// Some of the open epoch may be.
    has_early: AtomicBool,
    /// Epochs that store none early.
    early_pause: AtomicU32,
    /// Whole blocks in a row that were new all over.
    new_in_a_row: AtomicU32,
    /// Blocks are to be logged again by the next commits.
    relogs: AtomicBool,
    /// The latter of the last pass after which the journal could be released.
    released: AtomicU64,
    /// Up to this epoch of the journal the file has everything, durably: a pass has left nothing for later ones, nor a
    /// later commit for the journal.
    in_file: AtomicU64,
    /// When the background was last woken because others of the pool lack room.
    asked: AtomicU64,
    /// The journal's current segment is half full: the background prepares the next.
    wants_segment: AtomicBool,
    named: Named,
    /// Another process owns the session: no work outside the gate. Changed under `ended`.
    is_away: AtomicBool,
    held: Held,
    surplus: Surplus,
    write_out: WriteOut,
    /// Held by work outside the gate, and by the journal's end; true once it has ended.
    ended: Mutex<bool>,
}

/// A shorter journal is not worth shrinking: about its first two segments.
const RESTING: u64 = 2 << 20;

impl Records {
    fn new(log: EpochLog, tier: Option<WriteBack>, live: Arc<Live>, size: u64, medium: &'static dyn Medium) -> Self {
        let area = log.area();
        Self {
            log: Biased::new(log),
            tier,
            live,
            medium,
            reserved: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            granules: AtomicU64::new(0),
            cut: AtomicU64::new(size),
            committed_cut: AtomicU64::new(u64::MAX),
            open: OpenBlocks::default(),
            checkpointing: Biased::new(Checkpointing::default()),
            appended: AtomicU64::new(0),
            taken_up: AtomicU64::new(0),
            area,
            has_early: AtomicBool::new(false),
            early_pause: AtomicU32::new(0),
            new_in_a_row: AtomicU32::new(0),
            relogs: AtomicBool::new(false),
            released: AtomicU64::new(0),
            in_file: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            wants_segment: AtomicBool::new(false),
            named: Named::default(),
            is_away: AtomicBool::new(false),
            held: Held::default(),
            surplus: Surplus::default(),
            write_out: WriteOut::new(),
            ended: Mutex::new(false),
        }
    }

    /// The file has `size` bytes, and nothing is written or reserved yet.
    fn begin_epoch(&self, size: u64) {
        self.cut.store(size, Ordering::Relaxed);
        for counter in [&self.reserved, &self.blocks, &self.granules] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Bytes of journal that the open epoch needs for its commit. The owner before may have reserved them.
    fn needed(&self) -> u64 {
        let cost = self.cost(self.blocks.load(Ordering::Relaxed), self.granules.load(Ordering::Relaxed));
        self.reserved.load(Ordering::Relaxed).max(cost)
    }

    /// The number that the open epoch will have in a tiered journal.
    fn next_epoch(&self) -> u64 {
        self.tier.as_ref().map_or(0, WriteBack::next_epoch)
    }

    /// Whether the open epoch has cut the file: there is no checkpoint until that is committed.
    fn is_cut(&self, cx: Context<'_>) -> bool {
        self.cut.load(Ordering::Relaxed) < cx.shared().committed_size.load(Ordering::Relaxed)
    }
}

impl Engine for Records {
    fn readable(&self, cx: Context<'_>) -> u64 {
        readable(&cx)
    }

    unsafe fn copy_block(&self, cx: Context<'_>, cell: &Cell, part: Part) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { copy_block(&cx, cell, part, |at| self.block_in_journal(at)) }
    }

    fn write_block(&self, cx: &Context<'_>, block: u64, start: usize, end: usize, buf: *mut u8) -> Result<()> {
        self.write(*cx, block, (start, end), buf)
    }

    fn prefetch_for(&self, cx: &Context<'_>, block: u64, (start, end): (usize, usize)) {
        if end - start == BLOCK {
            self.prefetch_sample(cx, block);
        }
    }

    fn prepare_block(
        &self,
        cx: &Context<'_>,
        cell: &Cell,
        (block, start, end): (u64, usize, usize),
        needs: &mut Needs,
    ) -> Result<()> {
        self.prepare_one(*cx, cell, block, start, end, needs)
    }

    fn prepare_rest(&self, cx: &Context<'_>, needs: &Needs) -> Result<()> {
        self.prepare_together(*cx, needs)
    }

    fn make_room(&self, cx: Context<'_>) -> Result<bool> {
        Records::make_room(self, cx)
    }

    fn takes_callers_memory(&self, is_whole: bool) -> bool {
        is_whole && self.stores_uncompared()
    }

    fn write_callers(&self, cx: &Context<'_>, block: u64, _whole: (usize, usize), buf: *mut u8) -> Result<bool> {
        self.write_callers_block(*cx, block, buf)
    }

    fn room_for_size(&self, cx: Context<'_>) -> Result<()> {
        with_room(|| self.live.limit().is_shared(), || self.make_room(cx), || self.reserve(cx, false, 0))
    }

    fn cut(&self, cx: Context<'_>, size: u64) -> Result<()> {
        self.cut.fetch_min(size, Ordering::Relaxed);
        cx.shared().file_end.fetch_min(size, Ordering::Release);
        self.settle_early(cx)?; // what is cut off is not committed
        self.drop_above(cx, size)
    }

    fn commits_in_memory(&self) -> bool {
        self.tier.is_some()
    }

    fn epoch_of_journal(&self, cx: Context<'_>) -> u64 {
        self.log.lock(cx).committed()
    }

    fn recorded(&self, cx: Context<'_>, _sealed: Sealed) -> u64 {
        match &self.tier {
            // The first slot has the size that the file was found with.
            Some(tier) => tier.next_epoch() - 2,
            None => self.log.lock(cx).committed(),
        }
    }

    fn journal(&self) -> &Live {
        &self.live
    }

    fn finds_journal(&self, cx: Context<'_>) -> bool {
        let due = self.named.due();
        if due != Due::Nothing && self.live.limit().look() > 0 {
            self.ask_to_give_back();
        }
        if due == Due::Nothing && self.tier.is_some() {
            return true; // a system call at every SYNC would cost more than all the rest
        }
        // If there is nothing to commit, a missing journal does not matter yet.
        let needs_none = due == Due::Nothing && cx.shared().dirty.load(Ordering::Acquire) == 0;
        needs_none || is_found(&self.live, cx, due == Due::Place)
    }

    fn finds_journal_now(&self, cx: Context<'_>) -> bool {
        is_found(&self.live, cx, true)
    }

    fn make_journal_anew(&self, cx: Context<'_>) -> Result<()> {
        self.settle_early(cx)?;
        let mut log = self.log.lock(cx);
        cx.fds.with(true, |fd| log.move_by(|| self.live.make_anew(fd)))
    }

    fn open_blocks(&self, cx: Context<'_>) -> Option<Vec<u64>> {
        let mut open = self.open.with(cx, |open| open.clone());
        open.sort_unstable();
        open.dedup();
        Some(open)
    }

    fn commit(&self, cx: Context<'_>, sealed: Sealed) -> Result<()> {
        self.append_epoch(cx, sealed)
    }

    fn checkpoint_some(&self, cx: Context<'_>) -> Result<bool> {
        if self.live.limit().must_return() > 0 {
            self.settle_early(cx)?; // the segment that has it could not be given back
        }
        self.checkpoint_round(cx)
    }

    fn finish_checkpoint(&self, cx: Context<'_>) -> Result<bool> {
        let over = self.ended.lock();
        if *over || self.is_away.load(Ordering::Acquire) {
            return Ok(false); // the journal says clean, and may be gone
        }
        if self.live.durability() == Durability::Power {
            self.write_out.start(|range| cx.fds.with_lasting(|fd| self.medium.start_write_out(fd, range.clone())));
        }
        self.end_pass(cx)
    }

    fn flush_round(&self, cx: Context<'_>) -> Result<bool> {
        Records::flush_round(self, cx)
    }

    fn finish_flush(&self, cx: Context<'_>) -> Result<()> {
        if !self.finish_checkpoint(cx)? {
            self.wait_for_others_flush(cx);
        }
        Ok(())
    }

    fn flush_rest(&self, cx: Context<'_>) -> Result<()> {
        Records::flush_rest(self, cx)
    }

    fn has_flushed(&self, cx: Context<'_>, epoch: u64, size: u64) -> bool {
        // The size is in the last record or slot, which stays.
        let size = size.min(cx.shared().committed_size.load(Ordering::Acquire));
        self.in_file.load(Ordering::Acquire) >= epoch
            && cx.shared().physical.load(Ordering::Acquire) >= size
            && self.checkpointing.lock(cx).is_flushed() // it may have become so long since the last flush
    }

    /// Makes the next segments in advance.
    fn prepare(&self, cx: Context<'_>) -> Result<()> {
        let over = self.ended.lock();
        if *over || self.is_away.load(Ordering::Acquire) || !self.wants_segment.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        if self.live.limit().must_return() > 0 {
            return Ok(()); // not in advance while others lack room
        }
        loop {
            let next = self.log.lock(cx).next_segment();
            match next.map(Segment::run) {
                // Of memory, as many as are wanted meanwhile.
                Some(Ok(())) if self.area.is_some() => {}
                // A full disk is reported by the write that needs the room.
                Some(Err(e)) if !e.is_full() => return Err(e),
                _ => break,
            }
        }
        if let Some(area) = &self.area {
            area.touch(|| self.wants_segment.load(Ordering::Acquire));
        }
        Ok(())
    }

    fn make_ready(&self, cx: Context<'_>) -> bool {
        let over = self.ended.lock();
        let is_trimmed = !*over && !self.is_away.load(Ordering::Acquire) && self.surplus.trim(cx);
        if is_trimmed {
            self.count_memory(cx);
        }
        is_trimmed
    }

    fn has_surplus(&self, cx: Context<'_>) -> bool {
        // A journal that could not end: its session goes on, without any such work.
        self.ended.try_lock().is_none_or(|over| !*over) && self.surplus.is_any(cx)
    }

    fn can_shrink(&self, cx: Context<'_>) -> bool {
        // Segments of tests are small.
        let resting = TestHooks::current().segments.map_or(RESTING, |[first, next, _]| 4096 + first + next);
        !self.is_waiting(cx) && self.log.lock(cx).len() > resting
    }

    fn shrink(&self, cx: Context<'_>) -> Result<()> {
        if !self.can_shrink(cx) {
            return Ok(());
        }
        let mut log = self.log.lock(cx);
        log.shrink()?;
        if let Some(tier) = &self.tier {
            tier.note(&log);
        }
        Ok(())
    }

    fn give_back(&self, cx: Context<'_>, all: bool) -> Result<()> {
        let over = self.ended.lock();
        let must_return = if all { u64::MAX } else { self.live.limit().look() };
        if *over
            || must_return == 0
            || self.is_away.load(Ordering::Acquire)
            || cx.shared().poisoned.load(Ordering::Acquire) != 0
        {
            return Ok(());
        }
        let mut log = self.log.lock(cx);
        let length = log.len().saturating_sub(must_return);
        log.give_back(length, self.needed())?;
        if let Some(tier) = &self.tier {
            tier.note(&log);
        }
        Ok(())
    }

    fn retire(&self, cx: Context<'_>) -> Result<()> {
        // The background may be flushing the file outside the gate. If that fails, only the background gets the
        // error.
        let mut ended = self.ended.lock();
        if cx.shared().poisoned.load(Ordering::Acquire) != 0 {
            return Err(Error::new(libc::EIO));
        }
        self.checkpoint_all(cx)?;
        let size = cx.shared().committed_size.load(Ordering::Acquire);
        cx.fds.with(true, |fd| {
            if !cx.shared().is_still_exact() {
                // Cut even if the size is right, to free reserved room. A kill here leaves a size that we set.
                cx.shared().physical_next.store(size, Ordering::Release);
                self.medium.ftruncate(fd, size)?;
                if size > cx.shared().physical.load(Ordering::Acquire) {
                    self.medium.ftruncate(fd, size)?; // a file that grows keeps the room behind it
                }
                cx.home.preallocate_again(fd, size);
                restore_times(cx.shared(), fd);
            }
            // As in a pass: data of a failed flush may be lost even if the next one succeeds.
            self.live.persist_before_end(fd).inspect_err(|_| cx.shared().poisoned.store(1, Ordering::Release))?;
            *ended = true;
            // A journal that says clean is never replayed: if its end fails there, nothing may be committed to it.
            self.live.retire(fd).inspect_err(|_| cx.shared().poisoned.store(1, Ordering::Release))
        })
    }

    fn abandon(&self) {
        *self.ended.lock() = true;
    }

    fn leave_state(&self, cx: Context<'_>, words: &mut Vec<u64>) -> Result<bool> {
        self.leave(cx, words)
    }

    fn take_state(&self, cx: Context<'_>, words: &mut Words<'_>) -> Result<()> {
        self.take(cx, words)
    }

    fn is_waiting(&self, cx: Context<'_>) -> bool {
        cx.shared().used.load(Ordering::Relaxed) > 0 || self.checkpointing.lock(cx).is_waiting()
    }

    fn is_pressed(&self, cx: Context<'_>) -> bool {
        let used = cx.shared().used.load(Ordering::Relaxed) * BLOCK as u64;
        let is_full = self.tier.as_ref().map_or(used > checkpointing::PRESSED_FROM, |tier| tier.is_full(used));
        is_full || self.is_long(cx)
    }
}

/// The error for a full log: the journal is added to its text once, here.
fn full(e: Error) -> Error {
    if e.errno() == libc::ENOSPC { e.context("the journal") } else { e }
}
