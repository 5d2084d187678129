//! For every moment of a history at which a crash can leave something new: the states that it can leave, recovered,
//! and compared with what was promised.

use crate::again::Again;
use crate::case::Case;
use crate::explorer::{Explorer, Failure};
use crate::machine::Machine;
use crate::oracle::Legal;
use crate::world::Run;
use famio::pmem::record::{CALLS, Call, Image, Replay};
use std::ops::ControlFlow;

impl Explorer {
    /// Runs a history and recovers what crashes of it can leave. `fail`: with a call that fails. Returns how often
    /// each kind of call was made.
    pub fn explore(&mut self, case: &Case, fail: Option<(Call, usize)>) -> Result<[usize; CALLS], Box<Failure>> {
        let failure = |what: String| Box::new(Failure { case: case.clone(), fail, what });
        let run = self.world.run(case, fail).map_err(failure)?;
        self.counts.histories += 1;
        let before = self.counts.states;
        self.all_moments(case, &run).map_err(|(what, replay)| {
            let last = replay.describe(6).join("\n  ");
            failure(format!("{what}\ncrash after operation {}, the last of them:\n  {last}", replay.position()))
        })?;
        if fail.is_some() {
            self.counts.failed_calls += self.counts.states - before;
        }
        Ok(run.calls)
    }

    fn all_moments(&mut self, case: &Case, run: &Run) -> Result<(), (String, Box<Replay>)> {
        let mut replay = run.trace.replay();
        let plan = self.effort.plan(case.seed());
        let boot = if case.machine.loses_power() { 2 } else { 1 };
        while replay.step() {
            if !replay.is_at_boundary() {
                // What a power cut leaves here, it may leave at the next boundary, too. A kill is different.
                if case.machine.forgets()
                    && replay.was_call()
                    && replay.position().is_multiple_of(self.effort.kills as usize)
                {
                    let legal = run.oracle.legal(replay.marks());
                    if let Err(what) = self.kill(case, &replay, &legal) {
                        return Err((what, Box::new(replay)));
                    }
                }
                continue;
            }
            self.counts.moments += 1;
            let legal = run.oracle.legal(replay.marks());
            let (images, broken) = replay.crashes(&plan, |image| match self.crash(case, image, &legal, boot) {
                Ok(()) => ControlFlow::Continue(()),
                Err(what) => ControlFlow::Break(what),
            });
            self.counts.images += images as u64;
            if let Some(what) = broken {
                return Err((what, Box::new(replay)));
            }
            if (case.machine.forgets_stores() || case.machine.forgets() && replay.was_call())
                && self.counts.moments.is_multiple_of(self.effort.kills)
                && let Err(what) = self.kill(case, &replay, &legal)
            {
                return Err((what, Box::new(replay)));
            }
        }
        Ok(())
    }

    /// A power cut or, on a machine that loses nothing with the power, the end of the process.
    fn crash(&mut self, case: &Case, image: &Image, legal: &Legal<'_>, boot: u8) -> Result<(), String> {
        // Where the order is kept, what was found was written to the disk before the mark was set.
        let as_found = Legal { anything: false, ..legal.clone() };
        let is_kept = case.machine == Machine::Ordered && image.names.mark.is_some();
        let legal = if is_kept { &as_found } else { legal };
        let Some(hash) = self.is_new(image, legal, boot) else { return Ok(()) };
        self.counts.states += 1;
        legal.check_name(&image.names)?;
        self.world.restore(image)?;
        let found = self.world.recover(case.machine, boot)?;
        legal.check(&found)?;
        if (hash as u64).is_multiple_of(self.effort.after) {
            self.counts.used += 1;
            self.world.is_usable(case.machine, boot, &found)?;
        }
        if ((hash >> 64) as u64).is_multiple_of(self.effort.again) {
            let legal = Legal { anything: legal.anything, ..Legal::only(&found) };
            let again = Again { machine: case.machine, boot, legal: &legal, seed: hash as u64 };
            again.crash_recovery_of(self, image).map_err(|e| format!("in the recovery: {e}"))?;
        }
        Ok(())
    }

    /// A kill, a recovery in the same boot, and power cuts in that.
    fn kill(&mut self, case: &Case, replay: &Replay, legal: &Legal<'_>) -> Result<(), String> {
        let within = [1, 3, usize::MAX].into_iter().filter_map(|pages| replay.killed_within(pages));
        for (image, start) in within.chain([replay.killed()]).collect::<Vec<_>>() {
            let Some(hash) = self.is_new_kill(&image, &start, legal) else { continue };
            self.counts.states += 1;
            self.counts.killed += 1;
            let again = Again { machine: case.machine, boot: 1, legal, seed: hash as u64 };
            again.cut_recovery_from(self, &image, start).map_err(|e| format!("killed, and in the recovery: {e}"))?;
        }
        Ok(())
    }
}
