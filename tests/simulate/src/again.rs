//! Recovery itself, recorded, crashed at each of its moments, and repeated. It must give the same bytes; and what one
//! recovery has shown must stay.

use crate::explorer::Explorer;
use crate::machine::Machine;
use crate::oracle::Legal;
use crate::world::Recovery;
use famio::pmem::record::{Call, Image, Start};
use std::ops::ControlFlow;

/// A recovery in boot number `boot` of a machine, and what it may show.
#[derive(Clone, Copy)]
pub struct Again<'a> {
    pub machine: Machine,
    pub boot: u8,
    pub legal: &'a Legal<'a>,
    pub seed: u64,
}

impl Again<'_> {
    /// From what a crash left on the medium.
    pub fn crash_recovery_of(&self, explorer: &mut Explorer, image: &Image) -> Result<(), String> {
        let start = || Start::of_image(self.machine.behaviour(), image);
        explorer.world.restore(image)?;
        let recovery = self.recover(explorer, start(), None)?;
        self.all_moments(explorer, &recovery)?;
        self.kills(explorer, &recovery)?;
        // Also with one call that fails: recovery must report it, and the next recovery must recover what is left.
        for (call, count) in Call::ALL.into_iter().zip(recovery.calls) {
            if count > 0 {
                let nth = 1 + (self.seed as usize >> 3) % count;
                explorer.world.restore(image)?;
                let failed = self.recover(explorer, start(), Some((call, nth)));
                self.after_failure(explorer, failed).map_err(|e| format!("{call:?} {nth} fails: {e}"))?;
            }
        }
        Ok(())
    }

    /// From what a killed process left visible: less of it may be on the medium.
    pub fn cut_recovery_from(&self, explorer: &mut Explorer, image: &Image, start: Start) -> Result<(), String> {
        explorer.world.restore(image)?;
        let recovery = self.recover(explorer, start, None)?;
        self.all_moments(explorer, &recovery)?;
        self.kills(explorer, &recovery)
    }

    /// The recovering process is killed after each of its system calls, and another one recovers in the same boot.
    fn kills(&self, explorer: &mut Explorer, recovery: &Recovery) -> Result<(), String> {
        // On other machines a crash is a kill.
        if !self.machine.forgets() || explorer.world.has_between() {
            return Ok(());
        }
        let mut replay = recovery.trace.replay();
        while replay.step() {
            let has_ended = !replay.marks().is_empty();
            if !replay.was_call() || has_ended {
                continue;
            }
            let (image, _) = replay.killed();
            if explorer.is_new(&image, self.legal, self.boot).is_none() {
                continue;
            }
            explorer.counts.states += 1;
            explorer.counts.in_recovery += 1;
            explorer.world.restore(&image)?;
            let found = explorer.world.recover(self.machine, self.boot);
            found.and_then(|found| self.legal.check(&found)).map_err(|what| {
                let last = replay.describe(6).join("\n  ");
                format!("{what}\nkilled after its operation {}, the last of them:\n  {last}", replay.position())
            })?;
        }
        Ok(())
    }

    fn recover(&self, explorer: &mut Explorer, start: Start, fail: Option<(Call, usize)>) -> Result<Recovery, String> {
        let recovery = explorer.world.recover_recorded(self.machine, self.boot, start, fail)?;
        match &recovery.found {
            Ok(found) => self.legal.check(found)?,
            Err(e) if fail.is_none() => return Err(e.clone()),
            Err(_) => {}
        }
        Ok(recovery)
    }

    fn after_failure(&self, explorer: &mut Explorer, failed: Result<Recovery, String>) -> Result<(), String> {
        let failed = failed?;
        self.legal.check(&explorer.world.recover(self.machine, self.boot)?)?;
        self.all_moments(explorer, &failed)
    }

    fn all_moments(&self, explorer: &mut Explorer, recovery: &Recovery) -> Result<(), String> {
        let mut replay = recovery.trace.replay();
        let plan = explorer.effort.again_plan(self.seed);
        let boot = if self.machine.loses_power() { self.boot + 1 } else { self.boot };
        while replay.advance() {
            explorer.counts.moments += 1;
            // For a file of which nothing was promised, nothing need stay.
            let counts = !replay.marks().is_empty() && !self.legal.anything;
            let shown = counts.then_some(recovery.found.as_ref().ok()).flatten();
            let shown = shown.map(|found| Legal::only(found));
            let legal = shown.as_ref().unwrap_or(self.legal);
            let (images, broken) = replay.crashes(&plan, |image| {
                if explorer.is_new(image, legal, boot).is_none() {
                    return ControlFlow::Continue(());
                }
                explorer.counts.states += 1;
                explorer.counts.in_recovery += 1;
                let world = &explorer.world;
                let checked = self
                    .legal
                    .check_name(&image.names)
                    .and_then(|()| world.restore(image))
                    .and_then(|()| world.recover(self.machine, boot))
                    .and_then(|found| legal.check(&found));
                checked.map_or_else(ControlFlow::Break, ControlFlow::Continue)
            });
            explorer.counts.images += images as u64;
            if let Some(what) = broken {
                let last = replay.describe(6).join("\n  ");
                return Err(format!(
                    "{what}\ncrash after its operation {}, the last of them:\n  {last}",
                    replay.position()
                ));
            }
        }
        Ok(())
    }
}
