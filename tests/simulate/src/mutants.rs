//! Mutants: the library without one of its flushes, fences or syncs, one at a time. The simulator has to find each.

use crate::campaign::{Job, Scope, jobs};
use crate::explore::{Explorer, Failure};
use crate::failure;
use crate::machine::Machine;
use crate::sites::{self, Site};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What became of one mutant.
pub struct Mutant {
    pub machine: Machine,
    pub site: Site,
    /// The first history that was not right; `None`: it survived.
    pub killed_by: Option<Box<Failure>>,
    /// How many states were looked at until then.
    pub states: u64,
    pub time: Duration,
}

/// Machines on which barriers mean something.
pub const MACHINES: [Machine; 2] = [Machine::Pmem, Machine::PageCache];

/// Lists the barriers that so many states call, then leaves each out until a state is not legal or `budget` states were
/// looked at.
pub fn run(scope: &Scope, listing: u64, each: impl Fn(&Mutant) + Sync) -> Vec<Mutant> {
    let mut all = Vec::new();
    for machine in MACHINES.into_iter().filter(|&machine| scope.machine.is_none_or(|only| only == machine)) {
        let scope = Scope { machine: Some(machine), ..*scope };
        let before: Vec<u64> = sites::seen().iter().map(|site| site.2).collect();
        let mut explorer = Explorer::listing(scope.effort);
        for job in jobs(&scope) {
            if explorer.counts.states > listing || look(&mut explorer, &job).is_err() {
                break;
            }
        }
        let called = |site: &&(Site, usize, u64)| site.2 > before.get(site.1).copied().unwrap_or(0);
        let sites: Vec<(Site, usize, u64)> = sites::seen().iter().filter(called).cloned().collect();
        let next = AtomicUsize::new(0);
        let done = Mutex::new(&mut all);
        std::thread::scope(|threads| {
            for _ in 0..scope.threads.max(1) {
                threads.spawn(|| {
                    while let Some((site, number, _)) = sites.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mutant = without(&scope, site, *number);
                        each(&mutant);
                        done.lock().unwrap_or_else(|poison| poison.into_inner()).push(mutant);
                    }
                });
            }
        });
    }
    all
}

fn look(explorer: &mut Explorer, job: &Job) -> Result<(), Box<Failure>> {
    match job {
        Job::Crashes(case) => explorer.explore(case, None).map(drop),
        Job::FailedCalls(case, most) => failure::each_call(explorer, case, *most),
    }
}

fn without(scope: &Scope, site: &Site, number: usize) -> Mutant {
    let begin = Instant::now();
    sites::leave_out(Some(number));
    let mut explorer = Explorer::listing(scope.effort);
    let mut killed_by = None;
    for job in jobs(scope) {
        killed_by = look(&mut explorer, &job).err();
        if killed_by.is_some() || explorer.counts.states > scope.states {
            break;
        }
    }
    sites::leave_out(None);
    let machine = scope.machine.unwrap_or(Machine::Pmem);
    Mutant { machine, site: site.clone(), killed_by, states: explorer.counts.states, time: begin.elapsed() }
}
