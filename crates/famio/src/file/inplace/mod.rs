//! The engine for in-place journals: undo, redo and alternate over a mapped file and a mapped log.

mod checkpoint;
mod exclusive_write;
mod expose;
mod pending;
mod pieces;
mod prepare;
mod read;
mod state;
mod write;

pub(super) use read::{copy_block, readable};
pub(super) use state::State;

use crate::error::{Error, Result};
use crate::file::engine::context::{Context, Engine, Needs, Part, Piece, Sealed, Words, restore_times};
use crate::file::engine::journal_name::{Due, Named, is_found};
use crate::index::{BLOCK, Cell};
use crate::journal::inplace::{Commit, Log};
use crate::journal::live::Live;
use crate::pmem::Medium;
use crate::rule::{Rule, in_order};
use core::sync::atomic::{AtomicU32, Ordering};

/// An in-place journal and the file that it protects.
pub(crate) struct InPlace {
    log: Log,
    journal: Live,
    /// The medium of the file's mapping. The journal's has the same domain.
    medium: &'static dyn Medium,
    /// Where the background looks next for blocks to checkpoint.
    hand: AtomicU32,
    named: Named,
}

impl InPlace {
    pub fn new(log: Log, journal: Live, medium: &'static dyn Medium) -> Self {
        Self { log, journal, medium, hand: AtomicU32::new(0), named: Named::default() }
    }
}

impl Engine for InPlace {
    fn readable(&self, cx: Context<'_>) -> u64 {
        readable(&cx)
    }

    unsafe fn copy_block(&self, cx: Context<'_>, cell: &Cell, part: Part) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_from_homes(&cx, cell, part) }
    }

    fn write_block(&self, cx: &Context<'_>, block: u64, start: usize, end: usize, buf: *mut u8) -> Result<()> {
        self.write(cx, block, start, end, buf)
    }

    fn prepare_block(
        &self,
        cx: &Context<'_>,
        cell: &Cell,
        (block, start, end): (u64, usize, usize),
        _needs: &mut Needs,
    ) -> Result<()> {
        self.prepare(cx, cell, block, start, end)
    }

    fn is_prepared(&self, cx: &Context<'_>, block: u64) -> bool {
        self.has_all_for_block(cx, block)
    }

    fn write_pieces(&self, cx: &Context<'_>, pieces: &[Piece]) -> Result<usize> {
        self.write_prepared(cx, pieces)
    }

    fn make_room(&self, cx: Context<'_>) -> Result<bool> {
        self.checkpoint_all_but_open(&cx)
    }

    fn can_defer(&self, cx: &Context<'_>, block: u64, is_whole: bool) -> bool {
        (is_whole || !self.is_at(cx, block)) && self.write_cannot_fail(cx, block)
    }

    fn prefetch_for(&self, cx: &Context<'_>, block: u64, (start, end): (usize, usize)) {
        self.prefetch_homes(cx, block, start, end);
    }

    fn write_deferred(&self, cx: &Context<'_>, block: u64, (start, end): (usize, usize), buf: *mut u8) -> Result<()> {
        // Inlined twice: for whole blocks, the masks are constants.
        let done = match (start, end) {
            (0, BLOCK) => self.write_exclusive(cx, block, (0, BLOCK), buf),
            part => self.write_exclusive(cx, block, part, buf),
        };
        done.unwrap_or_else(|| self.write(cx, block, start, end, buf))
    }

    fn takes_callers_memory(&self, _is_whole: bool) -> bool {
        true
    }

    fn write_callers(&self, cx: &Context<'_>, block: u64, (start, end): (usize, usize), buf: *mut u8) -> Result<bool> {
        self.write_block(cx, block, start, end, buf).map(|()| true)
    }

    /// Nothing moves: bytes above the size are not read, and growing again writes zeros over them.
    fn cut(&self, _cx: Context<'_>, _size: u64) -> Result<()> {
        Ok(())
    }

    /// Two fences, one cache line, and the last block of each thread: no walk over what was written.
    fn commit(&self, cx: Context<'_>, sealed: Sealed) -> Result<()> {
        let slots = self.log.slots();
        let slot = slots.encode_sized(Commit { epoch: sealed.epoch, size: sealed.size });
        in_order(
            Rule::DataBeforeSlot,
            || {
                // Writers have fenced their non-temporal stores and flushes; lines that they left dirty are flushed
                // here.
                self.flush_pending(&cx)?;
                self.log.medium().fence();
                Ok(())
            },
            || {
                self.on_journal(&cx, || slots.put(&slot))?;
                self.log.medium().fence();
                Ok(())
            },
        )
    }

    fn epoch_of_journal(&self, cx: Context<'_>) -> u64 {
        cx.shared().committed()
    }

    fn recorded(&self, _cx: Context<'_>, sealed: Sealed) -> u64 {
        sealed.epoch - 1 // the first slot has the size that the file was found with
    }

    fn huge_pages(&self, cx: Context<'_>) -> u64 {
        self.log.huge_pages(cx.arena)
    }

    fn gather_page(&self, cx: Context<'_>, page: u64) -> bool {
        self.log.gather(cx.arena, page)
    }

    fn journal(&self) -> &Live {
        &self.journal
    }

    fn commits_in_memory(&self) -> bool {
        true
    }

    fn inode_in_place(&self) -> u64 {
        self.journal.file().run(|file| Ok(rustix::fs::fstat(file)?)).map_or(0, |stat| stat.st_ino)
    }

    fn finds_journal(&self, cx: Context<'_>) -> bool {
        let due = self.named.due();
        if due != Due::Nothing {
            self.journal.limit().look();
        }
        match due {
            Due::Nothing => true,
            due => is_found(&self.journal, cx, due == Due::Place),
        }
    }

    fn finds_journal_now(&self, cx: Context<'_>) -> bool {
        is_found(&self.journal, cx, true)
    }

    fn make_journal_anew(&self, cx: Context<'_>) -> Result<()> {
        self.flush_pending(&cx)?;
        self.log.medium().fence();
        cx.fds.with(true, |fd| self.log.move_by(|| self.journal.make_anew(fd)))
    }

    fn may_alternate(&self) -> bool {
        true
    }

    fn expose(&self, cx: Context<'_>) -> Result<bool> {
        self.expose_all(&cx)
    }

    fn checkpoint_some(&self, cx: Context<'_>) -> Result<bool> {
        Ok(self.checkpoint_round(&cx)? > 0)
    }

    fn flush_round(&self, cx: Context<'_>) -> Result<bool> {
        self.full_round(&cx)
    }

    fn flush_rounds(&self, cx: Context<'_>) -> u32 {
        self.full_rounds(&cx)
    }

    fn finish_checkpoint(&self, _cx: Context<'_>) -> Result<bool> {
        Ok(false)
    }

    fn finish_flush(&self, cx: Context<'_>) -> Result<()> {
        // Data of a failed flush may be lost even if the next one succeeds.
        let flushed = cx.fds.with_lasting(|fd| self.medium.fdatasync(fd));
        flushed.inspect_err(|_| cx.shared().poisoned.store(1, Ordering::Release))
    }

    fn make_ready(&self, cx: Context<'_>) -> bool {
        self.log.make_ready(cx.arena)
    }

    fn can_shrink(&self, cx: Context<'_>) -> bool {
        cx.shared().used.load(Ordering::Relaxed) == 0 && self.log.can_shrink()
    }

    fn shrink(&self, cx: Context<'_>) -> Result<()> {
        if self.can_shrink(cx) { self.log.shrink(cx.arena) } else { Ok(()) }
    }

    fn give_back_at_sync(&self, cx: Context<'_>) -> Result<()> {
        if self.journal.limit().must_return() == 0 || !self.log.can_shrink() {
            return Ok(());
        }
        self.checkpoint_all(&cx)?;
        self.shrink(cx)
    }

    fn retire(&self, cx: Context<'_>) -> Result<()> {
        self.checkpoint_all(&cx)?;
        let size = cx.shared().committed_size.load(Ordering::Acquire);
        cx.fds.with(true, |fd| {
            in_order(
                Rule::FileBeforeClean,
                || {
                    if !cx.shared().is_still_exact() {
                        if rustix::fs::fstat(fd)?.st_size as u64 != size {
                            // A kill here leaves a file that was cut by us, not by an outsider.
                            cx.shared().physical_next.store(size, Ordering::Release);
                            self.medium.ftruncate(fd, size)?;
                            cx.home.preallocate_again(fd, size);
                        }
                        restore_times(cx.shared(), fd);
                    }
                    // Data of a failed flush may be lost even if the next one succeeds.
                    self.medium.fdatasync(fd).inspect_err(|_| cx.shared().poisoned.store(1, Ordering::Release))
                },
                // A journal that says clean is never replayed: if its end fails there, nothing may be committed to
                // it.
                || self.journal.retire(fd).inspect_err(|_| cx.shared().poisoned.store(1, Ordering::Release)),
            )
        })
    }

    fn leave_state(&self, cx: Context<'_>, words: &mut Vec<u64>) -> Result<bool> {
        // The next owner's commit does not know about stores that this process's threads have not fenced.
        self.flush_pending(&cx)?;
        self.log.medium().fence();
        words.push(self.log.segments().into());
        self.journal.limit().set(0); // the next owner accounts for it
        Ok(true)
    }

    fn take_state(&self, _cx: Context<'_>, words: &mut Words<'_>) -> Result<()> {
        let [segments] = words.next()?;
        self.log.set_segments(segments)
    }

    fn is_waiting(&self, cx: Context<'_>) -> bool {
        cx.shared().used.load(Ordering::Relaxed) > 0
    }

    fn is_pressed(&self, cx: Context<'_>) -> bool {
        cx.shared().used.load(Ordering::Relaxed) * BLOCK as u64 > self.journal.limit().now() / 2
    }
}

/// The error for an impossible offset or number from shared memory.
fn inconsistent(what: &str) -> Error {
    Error::with(libc::EIO, format!("the shared index is damaged: {what}"))
}
