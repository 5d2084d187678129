//! A forced pass, for a tiered journal that has no room for the open epoch. The committed bytes that the open epoch has
//! overwritten, or cut off, lie in the journal alone. An ordinary pass leaves them there until the epoch's commit; a
//! forced pass copies them from the journal to the file, so that the epoch can have all of the journal. `famio flush`
//! does the same for journals of either kind.
//!
//! No reader sees these bytes in the file: reads take the granules from the buffers, and nothing above the end of an
//! open cut. After a crash the file has what is committed, as if recovery had copied it.

use super::Records;
use super::biased::BiasedGuard;
use super::checkpointing::Checkpointing;
use super::epochs::EpochLog;
use super::state::State;
use crate::error::{Error, Result};
use crate::file::base::bits::{GRANULE, above};
use crate::file::engine::context::Context;
use crate::journal::records::{self, Keeper};
use crate::journal::tiered::scan;
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};

impl Records {
    /// For the room that it makes: whether there was anything that was not in the file. See [`force_all`](Self::force_all).
    pub(super) fn force(&self, cx: Context<'_>) -> Result<bool> {
        match &*self.log.lock(cx) {
            EpochLog::Memory(log) if log.tail() < log.committed() => {}
            _ => return Ok(false),
        }
        self.force_all(cx).map(|_| true)
    }

    /// Returns the epoch that the file has now, durably. Inside the gate, or with it closed: no commit comes meanwhile. No
    /// lock of a block is held.
    ///
    /// # Errors
    /// `EIO`: the file or the journal has failed, and takes no more writes. `ENOSPC`: no room in the file.
    pub(super) fn force_all(&self, cx: Context<'_>) -> Result<u64> {
        // Held to the end: no pass begins or ends meanwhile.
        let mut checkpointing = self.checkpointing_without_syncs(cx);
        if cx.shared().poisoned.load(Ordering::Acquire) != 0 {
            return Err(Error::with(libc::EIO, "an earlier flush failed: there are no more checkpoints"));
        }
        // Until the flush below: after an error, what was written does not count as durable.
        let unflushed = core::mem::replace(&mut checkpointing.unflushed, true);
        self.apply_committed_cut(cx)?;
        let committed = self.live.file().run(|journal| self.write_unseen(cx, journal.as_fd()))?;
        if holds(Rule::ForcedMoves) {
            self.move_all_to_buffers(cx, committed)?; // the file has them, and buffers stay
        }
        if holds(Rule::ForcedFlushesBeforeTail) {
            self.flush_forced(cx)?;
            self.release(cx, committed);
        } else {
            self.release(cx, committed);
            self.flush_forced(cx)?;
        }
        checkpointing.unflushed = unflushed;
        (checkpointing.overwritten, checkpointing.finished) = (false, None);
        Ok(committed)
    }

    pub(super) fn flush_forced(&self, cx: Context<'_>) -> Result<()> {
        cx.fds.with_lasting(|fd| self.medium.fdatasync(fd)).map_err(|e| self.flush_failed(cx, &e))
    }

    /// Waits until no `fdatasync` of the file is in progress: the kernel reports a failure once, and might report it to
    /// that other call.
    pub(super) fn checkpointing_without_syncs(&self, cx: Context<'_>) -> BiasedGuard<'_, Checkpointing> {
        loop {
            let checkpointing = self.checkpointing.lock(cx);
            if !checkpointing.flushing {
                return checkpointing;
            }
            drop(checkpointing);
            self.wait_for_others_flush(cx);
        }
    }

    /// The file is cut as committed epochs have cut it; a cut of the open epoch waits for its commit.
    fn apply_committed_cut(&self, cx: Context<'_>) -> Result<()> {
        if !self.is_cut(cx) {
            return self.apply_cut(cx).map(drop);
        }
        let low = self.committed_cut.load(Ordering::Relaxed);
        if low == u64::MAX || !holds(Rule::ForcedCutsFirst) {
            return Ok(());
        }
        self.cut_file(cx, low)?;
        self.committed_cut.store(u64::MAX, Ordering::Relaxed);
        if holds(Rule::ForcedKeepsTheEnd) {
            // What comes to the file above the committed cut now stays when the open epoch is committed.
            cx.shared().file_end.store(self.cut.load(Ordering::Relaxed), Ordering::Release);
        }
        Ok(())
    }

    /// Writes what no reader takes from the file: granules held in buffers, and bytes above the end of an open cut. A
    /// granule that enters a buffer meanwhile was in the file already, or is written here. Returns the last committed
    /// epoch.
    fn write_unseen(&self, cx: Context<'_>, journal: BorrowedFd<'_>) -> Result<u64> {
        let log = self.log.lock(cx); // a writer that needs room may add a note
        let committed = log.committed();
        let is_tiered = matches!(*log, EpochLog::Memory(_));
        if !is_tiered {
            let scan = records::scan(journal, &self.live.header())?;
            drop(log);
            check_is_all(scan.plan().epoch, committed)?;
            self.write_runs(cx, &|wanted, give| records::each_run_of(journal, &scan, wanted, give))?;
            return Ok(committed);
        }
        let length = rustix::fs::fstat(journal)?.st_size as u64;
        let scan = scan(journal, length, &self.live.header(), self.medium)?;
        drop(log); // not earlier: the background gives segments back
        check_is_all(scan.epoch(), committed)?;
        self.write_runs(cx, &|wanted, give| scan.each_run(wanted, give))?;
        Ok(committed)
    }

    /// `each_run`: gives what a journal has.
    fn write_runs(&self, cx: Context<'_>, each_run: &EachRun<'_>) -> Result<()> {
        let shared = cx.shared();
        let held = |block| cx.index().lookup(block).map_or(0, |cell| State::of(cell, shared.committed()).held);
        let mut write = |offset: u64, bytes: &[u8]| {
            shared.totals.count_write_back(bytes.len() as u64);
            self.write_to_file(cx, offset, &[bytes])
        };
        each_run(&held, &mut write)?;
        let end = shared.file_end.load(Ordering::Acquire);
        if end == u64::MAX {
            return Ok(());
        }
        let cut_off = |block| above(block, end - end % GRANULE as u64);
        each_run(&cut_off, &mut |offset, bytes| {
            let seen = end.saturating_sub(offset).min(bytes.len() as u64) as usize;
            if seen < bytes.len() { write(offset + seen as u64, &bytes[seen..]) } else { Ok(()) }
        })
    }
}

/// What was found is written to the file, and then counts as everything up to the last commit.
fn check_is_all(found: u64, committed: u64) -> Result<()> {
    if found == committed {
        return Ok(());
    }
    Err(Error::with(libc::EIO, format!("the journal has epoch {found} as the last commit, and not {committed}")))
}

/// Calls its second argument with what a journal has of the granules that its first one wants of a block.
type EachRun<'a> = dyn Fn(&dyn Fn(u64) -> u64, &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> + 'a;
