//! The commit: one append to the log.

use super::Records;
use super::relog::RelogPart;
use super::reserve::add;
use crate::error::Result;
use crate::file::base::background_wakeup;
use crate::file::engine::context::{Context, Sealed};
use crate::index::BLOCK;
use crate::journal::pools::shares::promised;
use crate::journal::records::{Batch, Block};
use crate::pmem::TestHooks;
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;

/// Blocks of an epoch for which no memory is allocated.
const FEW: usize = 8;
const NO_BLOCK: Block<'_> = Block { number: 0, mask: 0, data: &[0; BLOCK] };

impl Records {
    /// One append: to pages, with one `fdatasync` of the journal; or to memory, with two fences.
    pub(super) fn append_epoch(&self, cx: Context<'_>, sealed: Sealed) -> Result<()> {
        self.count_memory(cx);
        let cut = self.cut.load(Ordering::Relaxed).min(sealed.size);
        let mut open = self.open.with(cx, core::mem::take);
        open.sort_unstable();
        open.dedup(); // a block that a cut removed may have come again
        let again = self.take_part(cx);
        let is_again = |number: u64| again.as_ref().is_some_and(|part| part.has(number));
        let merged = again.as_ref().map(|part| part.with(&open));
        let all = merged.as_ref().unwrap_or(&open);
        let index = cx.index();
        let mut found =
            all.iter().filter_map(|&number| self.open_block(cx, index.lookup(number)?, number, is_again(number)));
        let (one, mut few, mut many);
        let blocks = match all.len() {
            1 => {
                one = found.next();
                one.as_slice()
            }
            ..=FEW => {
                few = [NO_BLOCK; FEW];
                let count = few.iter_mut().zip(&mut found).map(|(place, block)| *place = block).count();
                &few[..count]
            }
            _ => {
                many = Vec::with_capacity(all.len());
                many.extend(found);
                &many[..]
            }
        };
        if blocks.is_empty() && !self.is_cut(cx) && sealed.size == cx.shared().committed_size.load(Ordering::Relaxed) {
            // A write that found no room: nothing to append, and perhaps no room for that either.
            self.settle_early(cx)?;
            self.begin_epoch(sealed.size);
            return Ok(());
        }
        let mut log = self.log.lock(cx);
        let epoch = log.committed() + 1;
        let batch = Batch { epoch, size: sealed.size, cut, commit: true, blocks };
        let before = log.written();
        if let Some(target) = again.as_ref().and_then(RelogPart::target).filter(|_| !holds(Rule::LoggedAgainBeforeTail))
        {
            log.release(target);
        }
        let promised = promised(); // the writes have asked for it
        let appended = match self.live.awaits_mark() {
            true => cx.fds.with_lasting(|file| log.append(&batch, Some(file))),
            false => log.append(&batch, None),
        };
        drop(promised);
        if let Err(e) = appended {
            drop(log);
            if holds(Rule::FailedFlushIsForGood) {
                self.live.suspect();
            }
            return Err(e);
        }
        self.appended.store(log.written(), Ordering::Relaxed);
        add(cx, &cx.shared().totals.journal, log.written().saturating_sub(before));
        // With the small segments of tests, none in advance: they are to be reused.
        let wants_segment = log.wants_segment() && TestHooks::current().segments.is_none();
        if let Some(tier) = &self.tier {
            tier.note(&log);
        }
        drop(log); // a checkpoint takes the two locks in the other order
        self.committed_cut.store(cx.shared().file_end.load(Ordering::Acquire), Ordering::Relaxed);
        if let Some(part) = &again {
            self.logged_again(cx, part, epoch);
        }
        if let Some(epoch) = self.note_commit(cx, &mut open) {
            self.release(cx, epoch);
        }
        self.open.with(cx, |list| *list = open); // empty; its memory is reused
        self.end_early();
        self.begin_epoch(sealed.size);
        if wants_segment {
            self.wants_segment.store(true, Ordering::Release);
        }
        if wants_segment || self.is_long(cx) {
            background_wakeup::wake();
        }
        Ok(())
    }
}
