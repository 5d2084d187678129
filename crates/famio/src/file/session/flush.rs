//! `famio flush`: what is committed goes to the file, durably, while programs go on. The open epoch stays open, and the
//! file gets nothing of it.

use super::Session;
use super::flush_tries::FlushTries;
use crate::error::Error;
use crate::file::Descriptors;
use crate::file::base::refusal::Answer;
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::engine::policy::Policy;
use crate::index::FlushWanted;
use core::sync::atomic::Ordering;

/// Passes: one may be under way, without the last commits, and one may leave blocks to writers.
const PASSES: u32 = 3;

/// How far a flush has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum FlushStep {
    Done,
    /// It is to be called again, by whichever process has the session then.
    More,
    /// The open epoch has bytes that are to survive a kill of this process, so that they must not be moved in the
    /// session: it has to end, with a hand-over image.
    ToEnd,
}

impl Session {
    /// Does what was asked for, or a part of it if `goes_on` becomes false. `tries`: as the last call left it. The last
    /// try does all in one stay inside the gate, in which no other process gets the session. Refused if the session is
    /// not this process's any more.
    pub(in crate::file) fn flush(
        &self,
        fds: &Descriptors,
        wanted: &FlushWanted<'_>,
        tries: &FlushTries,
        goes_on: &dyn Fn() -> bool,
    ) -> Answer<FlushStep> {
        if self.engine.inode_in_place() != 0 {
            return self.flush_in_place(fds, wanted, tries, goes_on);
        }
        let cx = self.context(fds);
        let mut first_size = None;
        loop {
            {
                let _inside = self.enter_gate(&mut { cx })?; // no commit meanwhile
                self.check(cx)?;
                let size = *first_size.get_or_insert(cx.shared().committed_size.load(Ordering::Acquire));
                let until = wanted.until(self.engine.epoch_of_journal(cx));
                tries.begin(wanted.number(), PASSES);
                if self.engine.has_flushed(cx, until, size) {
                    return Ok(FlushStep::Done);
                }
                if tries.is_last() {
                    let rest = self.counting(wanted, || keeping_bits(fds, || self.engine.flush_rest(cx)));
                    cx.shared().leave_now();
                    return Ok(rest.map(|()| FlushStep::Done)?);
                }
            }
            while self.flush_round(fds, wanted)? {
                if !goes_on() {
                    return Ok(FlushStep::More);
                }
            }
            keeping_bits(fds, || self.engine.finish_flush(cx))?;
            tries.count();
        }
    }

    fn flush_round(&self, fds: &Descriptors, wanted: &FlushWanted<'_>) -> Answer<bool> {
        let cx = self.context(fds);
        let mut alone = cx;
        let _inside = self.enter_gate(&mut alone)?;
        self.carry_out(&alone)?;
        self.check(cx)?;
        let moved = self.counting(wanted, || keeping_bits(fds, || self.engine.flush_round(cx)));
        cx.shared().leave_now();
        Ok(moved?)
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
        tries: &FlushTries,
        goes_on: &dyn Fn() -> bool,
    ) -> Answer<FlushStep> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let exposed = loop {
            {
                let _closed = self.close_gate(fds)?;
                self.check(cx)?;
                wanted.until(self.engine.epoch_of_journal(cx));
                tries.begin(wanted.number(), self.engine.flush_rounds(cx));
                if tries.is_last() {
                    if self.survives_this_process() {
                        return Ok(FlushStep::ToEnd);
                    }
                    let work = || keeping_bits(fds, || self.moving(|| self.engine.expose(cx)));
                    let exposed = self.counting(wanted, work);
                    if exposed.is_ok() {
                        // The committed copies lie in the file now, where only redo leaves them alone; until the next
                        // SYNC.
                        shared.policy.store(Policy::Redo as u32, Ordering::Relaxed);
                    }
                    break exposed;
                }
            }
            while !tries.is_last() && self.flush_round(fds, wanted)? {
                tries.count();
                if !goes_on() {
                    return Ok(FlushStep::More);
                }
            }
            tries.skip();
        };
        let is_hidden = exposed?;
        keeping_bits(fds, || self.engine.finish_flush(cx))?;
        if is_hidden { Ok(FlushStep::Done) } else { Err(Error::new(libc::EBUSY).into()) }
    }

    /// Whether a part of the open epoch stays if this process is killed: others have written it, or that is its
    /// setting. The gate is closed.
    fn survives_this_process(&self) -> bool {
        let is_open = self.arena.shared().dirty.load(Ordering::Acquire) != 0;
        is_open && (self.saves_images() || self.keeps) && !self.of_group.load(Ordering::Acquire)
    }
}
