//! `famio flush`: what is committed goes to the file, durably, while programs go on. The open epoch stays open, and the
//! file gets nothing of it.

use super::Session;
use crate::file::Descriptors;
use crate::file::base::refusal::Answer;
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::engine::policy::Policy;
use crate::index::FlushWanted;
use core::sync::atomic::Ordering;

/// Passes: one may be under way, without the last commits, and one may leave blocks to writers.
const PASSES: u32 = 3;

impl Session {
    /// Does what was asked for. False: a part of it, since `goes_on` became false; to be called again, by whichever process
    /// has the session then. Refused if it is not this one's any more.
    pub fn flush(&self, fds: &Descriptors, wanted: &FlushWanted<'_>, goes_on: &dyn Fn() -> bool) -> Answer<bool> {
        let cx = self.context(fds);
        let (until, size) = {
            let _inside = self.go_in(&mut { cx })?; // no commit meanwhile
            self.check(cx)?;
            let size = cx.shared().committed_size.load(Ordering::Acquire);
            (wanted.until(self.engine.epoch_of_journal(cx)), size)
        };
        if self.engine.inode_in_place() != 0 {
            return self.flush_in_place(fds, wanted, goes_on);
        }
        for _ in 0..PASSES {
            if self.engine.has_flushed(cx, until, size) {
                return Ok(true);
            }
            while self.flush_round(fds, wanted)? {
                if !goes_on() {
                    return Ok(false);
                }
            }
            keeping_bits(fds, || self.engine.finish_flush(cx))?;
        }
        if !self.engine.has_flushed(cx, until, size) {
            let _inside = self.go_in(&mut { cx })?;
            self.check(cx)?;
            self.counting(wanted, || keeping_bits(fds, || self.engine.flush_rest(cx)))?;
            cx.shared().leave_at(crate::sys::coarse_now());
        }
        Ok(true)
    }

    fn flush_round(&self, fds: &Descriptors, wanted: &FlushWanted<'_>) -> Answer<bool> {
        let cx = self.context(fds);
        let mut alone = cx;
        let _inside = self.go_in(&mut alone)?;
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
    fn flush_in_place(&self, fds: &Descriptors, wanted: &FlushWanted<'_>, goes_on: &dyn Fn() -> bool) -> Answer<bool> {
        let cx = self.context(fds);
        let shared = cx.shared();
        // As many rounds as there are blocks now suffice, whatever is committed meanwhile.
        let most = shared.used.load(Ordering::Relaxed);
        let mut rounds = 0;
        while rounds < most && self.flush_round(fds, wanted)? {
            rounds += 1;
            if !goes_on() {
                return Ok(false);
            }
        }
        {
            let _closed = self.close_gate(fds)?;
            self.check(cx)?;
            self.counting(wanted, || keeping_bits(fds, || self.moving(|| self.engine.expose(cx))))?;
            // The committed copies lie in the file now, where only redo leaves them alone; until the next SYNC.
            shared.policy.store(Policy::Redo as u32, Ordering::Relaxed);
            shared.leave_at(crate::sys::coarse_now());
        }
        keeping_bits(fds, || self.engine.finish_flush(cx))?;
        Ok(true)
    }
}
