//! `famio flush`: what is committed goes to the file, durably, while programs go on. The open epoch stays open, and the
//! file gets nothing of it.

use super::Session;
use crate::error::Error;
use crate::file::Descriptors;
use crate::file::base::refusal::Answer;
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::engine::policy::Policy;
use crate::index::FlushWanted;
use core::sync::atomic::{AtomicU32, Ordering};

/// Passes: one may be under way, without the last commits, and one may leave blocks to writers.
const PASSES: u32 = 3;

impl Session {
    /// Does what was asked for. False: a part of it, since `goes_on` became false; to be called again, by whichever process
    /// has the session then. `left`: 0 at the first call for a request, then as the last call left it, so that it ends
    /// however often it is interrupted. Refused if the session is not this process's any more.
    pub fn flush(
        &self,
        fds: &Descriptors,
        wanted: &FlushWanted<'_>,
        left: &AtomicU32,
        goes_on: &dyn Fn() -> bool,
    ) -> Answer<bool> {
        let cx = self.context(fds);
        let (until, size) = {
            let _inside = self.enter_gate(&mut { cx })?; // no commit meanwhile
            self.check(cx)?;
            let size = cx.shared().committed_size.load(Ordering::Acquire);
            (wanted.until(self.engine.epoch_of_journal(cx)), size)
        };
        if self.engine.inode_in_place() != 0 {
            return self.flush_in_place(fds, wanted, left, goes_on);
        }
        begin(left, PASSES);
        while left.load(Ordering::Relaxed) > 1 {
            if self.engine.has_flushed(cx, until, size) {
                return Ok(true);
            }
            while self.flush_round(fds, wanted)? {
                if !goes_on() {
                    return Ok(false);
                }
            }
            keeping_bits(fds, || self.engine.finish_flush(cx))?;
            left.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.engine.has_flushed(cx, until, size) {
            let _inside = self.enter_gate(&mut { cx })?;
            self.check(cx)?;
            self.counting(wanted, || keeping_bits(fds, || self.engine.flush_rest(cx)))?;
            cx.shared().leave_at(crate::sys::coarse_now());
        }
        Ok(true)
    }

    fn flush_round(&self, fds: &Descriptors, wanted: &FlushWanted<'_>) -> Answer<bool> {
        let cx = self.context(fds);
        let mut alone = cx;
        let _inside = self.enter_gate(&mut alone)?;
        self.carry_out(&alone)?;
        self.check(cx)?;
        let moved = self.counting(wanted, || keeping_bits(fds, || self.engine.flush_round(cx)))?;
        cx.shared().leave_at(crate::sys::coarse_now());
        Ok(moved)
    }

    /// Does `work`, and adds what is written back meanwhile to what was.
    fn counting<T>(&self, wanted: &FlushWanted<'_>, work: impl FnOnce() -> T) -> T {
        let written_back = &self.arena.shared().totals.written_back;
        let before = written_back.load(Ordering::Relaxed);
        let done = work();
        wanted.moved(written_back.load(Ordering::Relaxed).saturating_sub(before));
        done
    }

    /// The file gets exactly what is committed, as before an outsider's `open`. Most of it beside writers.
    ///
    /// # Errors
    /// `EBUSY`: all that is committed is there, but also something that the open epoch has appended.
    fn flush_in_place(
        &self,
        fds: &Descriptors,
        wanted: &FlushWanted<'_>,
        left: &AtomicU32,
        goes_on: &dyn Fn() -> bool,
    ) -> Answer<bool> {
        let cx = self.context(fds);
        let shared = cx.shared();
        begin(left, self.engine.flush_rounds(cx));
        while left.load(Ordering::Relaxed) > 1 && self.flush_round(fds, wanted)? {
            left.fetch_sub(1, Ordering::Relaxed);
            if !goes_on() {
                return Ok(false);
            }
        }
        let is_hidden = {
            let _closed = self.close_gate(fds)?;
            self.check(cx)?;
            let is_hidden = self.counting(wanted, || keeping_bits(fds, || self.moving(|| self.engine.expose(cx))))?;
            // The committed copies lie in the file now, where only redo leaves them alone; until the next SYNC.
            shared.policy.store(Policy::Redo as u32, Ordering::Relaxed);
            shared.leave_at(crate::sys::coarse_now());
            is_hidden
        };
        keeping_bits(fds, || self.engine.finish_flush(cx))?;
        if is_hidden { Ok(true) } else { Err(Error::new(libc::EBUSY).into()) }
    }
}

/// At the first call for a request: `most` tries are left.
fn begin(left: &AtomicU32, most: u32) {
    if left.load(Ordering::Relaxed) == 0 {
        left.store(most + 1, Ordering::Relaxed);
    }
}
