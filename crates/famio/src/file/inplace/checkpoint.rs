//! The checkpoint: committed granules move from the log to the file, and their entry becomes free. The order: data
//! persistent in the file; then the cleared word persistent in the journal; then reuse.

use super::InPlace;
use super::state::State;
use crate::error::Result;
use crate::file::base::bits::{GRANULE, above, runs};
use crate::file::engine::context::Context;
use crate::index::{BLOCK, Cell, Version};
use crate::journal::inplace::Stored;
use crate::rule::{Rule, in_order};
use core::sync::atomic::Ordering;

/// Entries per round, so that a round stays short.
const ROUND: u32 = 256;

impl InPlace {
    /// Checkpoints a block without a version of the open epoch; its lock is held.
    pub(super) fn checkpoint_block(&self, cx: &Context<'_>, cell: &Cell, block: u64, state: State) -> Result<()> {
        debug_assert!(state.open.is_none());
        let size = cx.shared().committed_size.load(Ordering::Acquire);
        let moving = state.committed_in_log() & !above(block, size);
        let mut changing = None;
        in_order(
            Rule::CopyBeforeEntryIsFree,
            || -> Result<()> {
                if moving != 0 {
                    self.copy_to_file(cx, block, state.entry, moving)?;
                    // Before the entry is free: a process that copies file and journal sees that one of them changes.
                    cx.shared().totals.count_write_back(u64::from(moving.count_ones()) * GRANULE as u64);
                }
                Ok(())
            },
            || {
                changing = Some(cell.changing());
                self.on_journal(cx, || self.log.entry(state.entry).free())?;
                self.log.medium().fence();
                Ok(())
            },
        )?;
        cell.entry.store(0, Ordering::Relaxed);
        cx.index().set_has_entry(block, false);
        cell.set_version(0, Version::default());
        cell.set_version(1, Version::default());
        self.log.give_back(cx.arena, state.entry);
        Ok(())
    }

    /// Copies granules from the log to the file, persistently.
    fn copy_to_file(&self, cx: &Context<'_>, block: u64, entry: u32, granules: u64) -> Result<()> {
        let committed = cx.shared().committed_size.load(Ordering::Acquire);
        cx.room_for(block, committed.saturating_sub(block * BLOCK as u64).min(BLOCK as u64) as usize)?;
        let home = cx.home.ptr(block * BLOCK as u64, BLOCK)?;
        let log = self.log.block(entry);
        runs(granules, |first, count| {
            let at = first * GRANULE;
            self.store(home.wrapping_add(at), log.wrapping_add(at), count * GRANULE)
        })?;
        self.medium.fence();
        Ok(())
    }

    /// For redo over a granule whose committed copy is in the log: the file gets the copy, the committed version
    /// records that, and only then may the log be overwritten.
    pub(super) fn checkpoint_granules(
        &self,
        cx: &Context<'_>,
        cell: &Cell,
        block: u64,
        state: &mut State,
        granules: u64,
    ) -> Result<()> {
        let Some((which, version)) = state.committed else { return Ok(()) };
        let left = Version { granules: version.granules & !granules, ..version };
        let entry = self.log.entry(state.entry);
        in_order(
            Rule::CopyBeforeBitGoes,
            || -> Result<()> {
                self.copy_to_file(cx, block, state.entry, granules)?;
                cx.shared().totals.count_write_back(u64::from(granules.count_ones()) * GRANULE as u64);
                Ok(())
            },
            || {
                self.on_journal(cx, || {
                    entry.set_granules(which, left.granules);
                    entry.flush();
                })?;
                self.log.medium().fence();
                Ok(())
            },
        )?;
        let _changing = cell.changing();
        cell.set_version(which, left);
        state.committed = Some((which, left));
        Ok(())
    }

    /// One round: some entries, from where the last round stopped. Returns how many were checkpointed; less than
    /// [`ROUND`]: it has looked at all.
    pub(super) fn checkpoint_round(&self, cx: &Context<'_>) -> Result<u32> {
        let entries = self.log.entries();
        let mut checkpointed = 0;
        // Free entries cost little: a round ends after enough checkpoints, or when all entries were looked at.
        for _ in 0..entries {
            let number = self.hand.fetch_add(1, Ordering::Relaxed) % entries;
            checkpointed += u32::from(self.checkpoint_entry(cx, number, false)?);
            if checkpointed == ROUND {
                break;
            }
        }
        Ok(checkpointed)
    }

    /// A round of `famio flush`. One that has looked at all entries is the last: what it has left is for
    /// [`expose_all`](Self::expose_all).
    pub(super) fn full_round(&self, cx: &Context<'_>) -> Result<bool> {
        Ok(self.checkpoint_round(cx)? == ROUND)
    }

    /// So many rounds suffice for what is committed now; if more is committed meanwhile, the rest of it is for
    /// [`expose_all`](Self::expose_all), too.
    pub(super) fn full_rounds(&self, cx: &Context<'_>) -> u32 {
        cx.shared().used.load(Ordering::Relaxed) as u32 / ROUND + 1
    }

    /// Checkpoints everything without a version of the open epoch. Returns whether there was anything.
    pub(super) fn checkpoint_all_but_open(&self, cx: &Context<'_>) -> Result<bool> {
        let mut any = false;
        for number in 0..self.log.entries() {
            any |= self.checkpoint_entry(cx, number, false)?;
        }
        Ok(any)
    }

    /// Checkpoints the block of entry `number`. `wait`: for its lock, too. Returns whether the entry is free now.
    fn checkpoint_entry(&self, cx: &Context<'_>, number: u32, wait: bool) -> Result<bool> {
        let (entry, key) = (self.log.entry(number), self.log.key());
        let block = self.on_journal(cx, || match entry.read(key, number) {
            Stored::Used(used) => Some(used.constants.block),
            Stored::Free | Stored::Damaged(_) => None,
        })?;
        let Some(block) = block else { return Ok(false) };
        let Some(cell) = cx.index().lookup(block) else { return Ok(false) };
        let _locked = if wait {
            cx.lock(cell)?
        } else {
            match cx.try_lock(cell) {
                Some(locked) => locked,
                None => return Ok(false),
            }
        };
        match State::of(cell, cx.shared().committed()) {
            Some(state) if state.entry == number && state.open.is_none() => {
                self.checkpoint_block(cx, cell, block, state)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Checkpoints everything; the gate is closed and the epoch committed.
    pub(super) fn checkpoint_all(&self, cx: &Context<'_>) -> Result<()> {
        for number in 0..self.log.entries() {
            self.checkpoint_entry(cx, number, true)?;
        }
        debug_assert_eq!(cx.shared().used.load(Ordering::Relaxed), 0);
        Ok(())
    }
}
