//! The atomic file and its twin, a plain file: each step is done to both, and the results are compared.

use super::past::{Moment, Writer, difference};
use super::side::{Seen, Side};
use super::step::{Kinds, Look, MAPS, SLOTS, Step};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::Path;

/// The number of steps shown when something differs.
const SHOWN: usize = 40;

/// Whether a step is a SYNC.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    No,
    /// It may be one: its result may be there after a kill.
    May,
    /// If it succeeds, no older state may be there.
    Is,
}

/// Both files.
pub struct Pair {
    atomic: Side,
    twin: Side,
    log: Option<Writer>,
    kinds: Kinds,
    /// Only one process has the file, so its last close is a SYNC.
    alone: bool,
    trace: VecDeque<String>,
}

impl Pair {
    /// Both files in a folder; with `log`, possible states after a kill are recorded there.
    pub fn new(folder: &Path, log: Option<Writer>, kinds: Kinds, alone: bool) -> Self {
        let tmpfs = famio_test_support::place::file_system(folder) == "tmpfs";
        let side = |name, twin| Side::new(folder, name, twin, tmpfs, kinds.stays);
        let (atomic, twin) = (side("atomic", false), side("twin", true));
        Self { atomic, twin, log, kinds, alone, trace: VecDeque::new() }
    }

    /// Opens slot 0, which stays open.
    pub fn stay(&mut self) -> Result<(), String> {
        let open = Step::Open { slot: 0, flags: libc::O_RDWR };
        let outcome = self.both(0, &open);
        self.note(0, &open, outcome)
    }

    /// Does a step to both. `Err`: the difference, with the preceding steps.
    pub fn step(&mut self, number: u64, step: &Step, look: Look) -> Result<(), String> {
        let step = self.adjusted(step);
        if let Some(log) = &mut self.log {
            log.trace(&format!("{step:?}"));
        }
        let outcome = match &step {
            Step::Fork { steps } => self.fork(number, steps),
            _ => self.both(number, &step),
        };
        self.note(number, &step, outcome)?;
        match look {
            Look::No => Ok(()),
            Look::Positions => {
                let (atomic, twin) = (self.atomic.positions(), self.twin.positions());
                let same = atomic == twin;
                let differs = || format!("positions, then the size: atomic {atomic:?}, plain {twin:?}");
                if same { Ok(()) } else { Err(self.told(&differs())) }
            }
            Look::Bytes => match (self.atomic.bytes(), self.twin.bytes()) {
                (Some(atomic), Some(twin)) => self.same_bytes(&atomic?, &twin?),
                _ => Ok(()),
            },
        }
    }

    /// Compares all bytes, and all positions.
    pub fn compare(&mut self) -> Result<(), String> {
        let both = self.atomic.bytes_anyhow().and_then(|atomic| Ok((atomic, self.twin.bytes_anyhow()?)));
        let (atomic, twin) = both.map_err(|why| self.told(&why))?;
        self.same_bytes(&atomic, &twin)
    }

    /// All bytes of the atomic file.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        self.atomic.bytes_anyhow()
    }

    /// Rewrites the atomic file with its own contents, and closes it.
    pub fn touch(&mut self) -> Result<(), String> {
        let bytes = self.atomic.bytes_anyhow()?;
        let done = self.atomic.write_again(bytes.first().copied().unwrap_or(0), bytes.is_empty());
        if done == 0 { Ok(()) } else { Err(format!("a write to it gives errno {}", -done)) }
    }

    /// Locks and unlocks the atomic file: a process that locks it sees nothing that will be rolled back for a dead
    /// one.
    pub fn lock(&self) -> Result<(), String> {
        let done = self.atomic.lock_all();
        if done == 0 { Ok(()) } else { Err(self.told(&format!("a lock of it gives errno {}", -done))) }
    }

    /// What is written from here on is rolled back if this process dies.
    pub fn base(&mut self) -> Result<(), String> {
        let bytes = self.twin.bytes_anyhow()?;
        let log = self.log.as_mut().ok_or("there is no log")?;
        let name = log.keep(&bytes)?;
        log.trace(&format!("base {name}"));
        log.say(Moment::Base, &name)
    }

    /// Closes all.
    pub fn end(&mut self) -> Result<(), String> {
        for side in [&mut self.twin, &mut self.atomic] {
            let unmapped: i64 = (0..MAPS).map(|map| side.unmap(map)).sum();
            let open: Vec<usize> = (0..SLOTS).filter(|&slot| side.is_open(slot)).collect();
            let closed: i64 = open.into_iter().map(|slot| side.close(slot)).sum();
            if (unmapped, closed) != (0, 0) {
                return Err(format!("at the end munmap gave {unmapped}, close {closed}"));
            }
        }
        Ok(())
    }

    fn same_bytes(&self, atomic: &[u8], twin: &[u8]) -> Result<(), String> {
        if atomic == twin {
            Ok(())
        } else {
            Err(self.told(&format!("the atomic file has {}", difference(atomic, twin))))
        }
    }

    fn note(&mut self, number: u64, step: &Step, outcome: Result<i64, String>) -> Result<(), String> {
        if self.trace.len() == SHOWN {
            self.trace.pop_front();
        }
        match outcome {
            Ok(gave) => {
                self.trace.push_back(format!("{number}: {step:?} = {gave}"));
                Ok(())
            }
            Err(why) => {
                self.trace.push_back(format!("{number}: {step:?}"));
                Err(self.told(&why))
            }
        }
    }

    fn told(&self, why: &str) -> String {
        let steps: Vec<_> = self.trace.iter().map(String::as_str).collect();
        format!("{why}\n  {}", steps.join("\n  "))
    }

    /// Slot 0 is left alone if this process must stay at the file.
    fn adjusted(&self, step: &Step) -> Step {
        let not_first = |slot: usize| if self.kinds.stays { slot.max(1) } else { slot };
        match *step {
            Step::Open { slot, flags } => Step::Open { slot: not_first(slot), flags },
            Step::Close(slot) => Step::Close(not_first(slot)),
            Step::Dup { from, to } => Step::Dup { from, to: not_first(to) },
            Step::Dup2 { from, to } => Step::Dup2 { from, to: not_first(to) },
            // The contents of a map cannot be passed to a child, whose error a plain file would not give.
            Step::Fork { .. } if self.atomic.maps() > 0 => Step::CloseAll,
            // Documented: the file is demoted at the next write if the only name opened for writing was removed.
            Step::Link { .. }
                if self.atomic.descriptors() > 0 && !(0..SLOTS).any(|slot| self.atomic.is_writable(slot)) =>
            {
                Step::Stat { slot: 0 }
            }
            ref other => other.clone(),
        }
    }

    fn both(&mut self, number: u64, step: &Step) -> Result<i64, String> {
        let sync = if self.log.is_some() { self.sync_of(step) } else { Sync::No };
        let linked = sync != Sync::No && matches!(step, Step::Link { .. });
        let before = if linked { Some(self.twin.bytes_anyhow()?) } else { None };
        let twin = self.twin.run(step, number);
        let mut name = None;
        if let Some(log) = self.log.as_mut().filter(|_| sync != Sync::No) {
            // The link commits what is there before the write, and its unlink what is there after it.
            if let Some(before) = &before {
                let kept = log.keep(before)?;
                log.say(Moment::May, &kept)?;
            }
            let kept = log.keep(&self.twin.bytes_anyhow()?)?;
            log.say(Moment::May, &kept)?;
            name = Some(kept);
        }
        let atomic = self.atomic.run(step, number);
        if let (Some(log), Some(name)) = (self.log.as_mut().filter(|_| sync == Sync::Is && atomic.0 >= 0), name) {
            log.trace(&format!("done {name}"));
            log.say(Moment::Done, &name)?;
        }
        if let Some(log) = &mut self.log {
            log.trace(&format!("  = {}", atomic.0));
        }
        if atomic == twin { Ok(atomic.0) } else { Err(seen_differently(&atomic, &twin)) }
    }

    fn references(&self) -> usize {
        self.atomic.descriptors() + self.atomic.maps()
    }

    fn sync_of(&self, step: &Step) -> Sync {
        let atomic = &self.atomic;
        let surely = |sure: bool| if sure { Sync::Is } else { Sync::May };
        let each = |slot: usize, sure: bool| if atomic.syncs_each(slot) { surely(sure) } else { Sync::No };
        let leaves = |left: bool| match (left, self.alone, atomic.maps()) {
            (false, ..) => Sync::No,
            (true, true, 0) => Sync::Is,
            (true, ..) => Sync::May,
        };
        match *step {
            Step::Sync { slot, .. } | Step::SyncRange { slot } => surely(atomic.is_writable(slot)),
            Step::Write { slot, len } | Step::Pwrite { slot, len, .. } => each(slot, len > 0),
            Step::Writev { slot, flags, .. } if flags & (libc::RWF_DSYNC | libc::RWF_SYNC) == 0 => each(slot, false),
            Step::Writev { .. } => Sync::May,
            Step::Truncate { slot, .. } | Step::Fallocate { slot, .. } => each(slot, false),
            Step::Copy { to, .. } | Step::Send { to, .. } => each(to, false),
            Step::Close(slot) => leaves(atomic.is_open(slot) && atomic.descriptors() == 1),
            Step::CloseAll => leaves(atomic.descriptors() > 0 && !self.kinds.stays),
            // What it replaces is removed first.
            Step::Unmap(map) | Step::Map { map, .. } if atomic.map(map).is_some() && atomic.descriptors() == 0 => {
                surely(self.alone && atomic.maps() == 1 && matches!(step, Step::Unmap(_)))
            }
            Step::Msync { map, flags: libc::MS_SYNC } => surely(atomic.map(map).is_some_and(|map| map.writable)),
            Step::TruncatePath { .. } => match self.references() {
                0 => surely(self.alone),
                _ => Sync::No,
            },
            Step::Stream { mode, sync, .. } => match (sync, self.references()) {
                (_, 0) => surely(self.alone),
                (true, _) => surely(mode > 0),
                _ => Sync::No,
            },
            Step::Link { .. } => surely(self.alone && self.references() == 0),
            Step::Rename => Sync::May,
            _ => Sync::No,
        }
    }

    /// A child makes these steps with its parent's descriptors, and exits.
    fn fork(&mut self, number: u64, steps: &[Step]) -> Result<i64, String> {
        let (mut reader, mut writer) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
        // SAFETY: there is one thread; the child ends by `_exit`.
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(format!("fork: {}", std::io::Error::last_os_error())),
            0 => {
                drop(reader);
                let outcome = (0u64..).zip(steps).try_for_each(|(index, step)| {
                    let step = self.adjusted(step);
                    let done = self.both(number.wrapping_mul(7) + index, &step);
                    done.map(|_| ()).map_err(|why| format!("in the child, step {index}, {step:?}: {why}"))
                });
                if let Err(why) = &outcome {
                    let _ = writer.write_all(why.as_bytes());
                }
                // SAFETY: ends the process.
                unsafe { libc::_exit(i32::from(outcome.is_err())) }
            }
            _ => {
                drop(writer);
                let (mut said, mut status) = (String::new(), 0);
                let _ = reader.read_to_string(&mut said);
                // SAFETY: the child is ours.
                unsafe { libc::waitpid(child, &mut status, 0) };
                match (said.is_empty(), status) {
                    (true, 0) => Ok(0),
                    (true, _) => Err(format!("the child ended with the wait status {status:#x}")),
                    _ => Err(said),
                }
            }
        }
    }
}

fn seen_differently(atomic: &Seen, twin: &Seen) -> String {
    let bytes = if atomic.1 == twin.1 { "the same bytes".into() } else { difference(&atomic.1, &twin.1) };
    format!("atomic {} {:?}, plain {} {:?}; read: {bytes}", atomic.0, atomic.2, twin.0, twin.2)
}
