//! Mutants: the library without one of its flushes, fences or syncs, without a check, or with two steps in reverse
//! order. The simulator must detect each.

use crate::away::{Away, Part};
use crate::campaign::{Job, Scope, jobs};
use crate::case::Case;
use crate::explorer::{Effort, Explorer, Failure};
use crate::machine::Machine;
use crate::{sites, survivors, targets};
use famio::pmem::record::{Barrier, Call};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The result for one mutant.
pub struct Mutant {
    pub machine: Machine,
    /// The call site, or the rule.
    pub name: String,
    /// The first history with a wrong result; `None`: the mutant survived.
    pub killed_by: Option<Box<Failure>>,
    /// Why it may survive.
    pub reason: Option<&'static str>,
    /// How many histories pass it, and how many states were examined.
    pub histories: usize,
    pub states: u64,
    pub time: Duration,
}

impl Mutant {
    /// Whether it survived without a reason.
    pub fn is_open(&self) -> bool {
        self.killed_by.is_none() && self.reason.is_none()
    }
}

/// Machines on which something can be left out; on `eadr` only system calls count.
pub const MACHINES: [Machine; 5] =
    [Machine::Pmem, Machine::PageCache, Machine::Ordered, Machine::Tiered, Machine::Eadr];

/// A history, and the parts that it passes.
struct Known {
    job: Job,
    passed: BTreeSet<Part>,
    states: u64,
    /// It is one of [`targets`].
    targeted: bool,
}

/// Runs histories of `listing` states to learn which parts each passes, then disables each part: in the histories
/// that pass it, the shortest first, until a result is wrong or `scope.states` were examined. Only parts with `only`
/// in their names.
pub fn run(
    scope: &Scope,
    listing: u64,
    only: &str,
    each: impl Fn(&Mutant) + Sync,
) -> Result<Vec<Mutant>, Box<Failure>> {
    ask();
    let mut all = Vec::new();
    for machine in MACHINES.into_iter().filter(|&machine| scope.machine.is_none_or(|only| only == machine)) {
        let scope = Scope { machine: Some(machine), ..*scope };
        let known = learn(&scope, listing)?;
        let parts: BTreeSet<Part> = known.iter().flat_map(|known| &known.passed).copied().collect();
        let names = sites::seen();
        let named = parts.into_iter().filter_map(|part| Some((part, name(machine, part, &names)?)));
        let parts: Vec<(Part, String)> = named.filter(|(_, name)| name.contains(only)).collect();
        let mutants = on_threads(scope.threads, parts.len(), |number| {
            let (part, name) = &parts[number];
            let mutant = without(&scope, *part, name, &known);
            each(&mutant);
            mutant
        });
        all.extend(mutants);
    }
    Ok(all)
}

/// A check or an order, by its name; from now on the library asks. `None`: this build does not.
#[cfg(famio_mutants)]
pub fn rule(name: &str) -> Option<Part> {
    ask();
    famio::rule::Rule::ALL.iter().find(|rule| format!("{rule:?}") == name).copied().map(Part::Rule)
}

#[cfg(not(famio_mutants))]
pub fn rule(_: &str) -> Option<Part> {
    None
}

/// From now on, the library asks.
fn ask() {
    #[cfg(famio_mutants)]
    famio::rule::ask(|rule| !Away::is_missing(Part::Rule(rule)));
}

/// One history, examined closely, without the part that has `text` in its name. Returns its name, and the result.
pub fn one(case: &Case, fail: Option<(Call, usize)>, text: &str) -> Result<(String, Option<Box<Failure>>), String> {
    ask();
    let away = Away::default();
    away.enter();
    // A glance passes nearly all that a close look does, in a fraction of the time.
    let mut found = None;
    for effort in [Effort::GLANCE, Effort::CLOSE] {
        Explorer::listing(effort).explore(case, fail).map_err(|failure| failure.to_string())?;
        let (names, parts) = (sites::seen(), away.take_passed());
        let mut named = parts.iter().filter_map(|&part| Some((part, name(case.machine, part, &names)?)));
        found = named.find(|(_, name)| name.contains(text));
        if found.is_some() {
            break;
        }
    }
    let (part, name) = found.ok_or("the history does not come by that")?;
    Away::without(Some(part)).enter();
    let failure = Explorer::listing(Effort::CLOSE).explore(case, fail).err();
    Away::default().enter();
    Ok((name, failure))
}

/// The name of a part; `None`: it does not count on this machine.
fn name(machine: Machine, part: Part, names: &BTreeMap<usize, String>) -> Option<String> {
    match part {
        Part::Rule(rule) => Some(format!("{rule:?}")),
        Part::Site(number) => {
            let name = names.get(&number)?;
            let by_kernel =
                [Barrier::Fdatasync, Barrier::Fsync, Barrier::WriteOut].map(|barrier| format!("{barrier:?}:"));
            let counts = matches!(machine, Machine::Pmem | Machine::Tiered)
                || by_kernel.iter().any(|kind| name.starts_with(kind));
            counts.then(|| name.clone())
        }
    }
}

/// Runs the targeted histories and others.
fn learn(scope: &Scope, listing: u64) -> Result<Vec<Known>, Box<Failure>> {
    let machine = scope.machine.unwrap_or(Machine::Pmem);
    let mut chosen = targets::all(machine);
    let targeted = chosen.len();
    chosen.extend(jobs(scope).filter(|job| !job.has_turns()).take(400));
    let budget = Mutex::new(listing);
    let done = on_threads(scope.threads, chosen.len(), |number| {
        let job = &chosen[number];
        let left = |used: u64| {
            let mut left = budget.lock().unwrap_or_else(PoisonError::into_inner);
            *left = left.saturating_sub(used);
            *left
        };
        if number >= targeted && left(0) == 0 {
            return Ok(None);
        }
        let away = Away::default();
        away.enter();
        let mut explorer = Explorer::listing(scope.effort);
        job.run(&mut explorer)?;
        let states = explorer.counts.states;
        left(states);
        Ok(Some(Known { job: job.clone(), passed: away.take_passed(), states, targeted: number < targeted }))
    });
    done.into_iter().filter_map(Result::transpose).collect()
}

/// Calls `work` with each number below `count`, on that many threads.
fn on_threads<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let result = work(number);
                    done.lock().unwrap_or_else(PoisonError::into_inner).insert(number, result);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Which histories come first. Damage only tests checks.
fn rank(job: &Job, targeted: bool, part: Part) -> u32 {
    match (job, part) {
        (Job::Damaged(_), Part::Rule(rule)) if rule.is_check() => 0,
        (Job::Damaged(_), _) => 4,
        (Job::FailedCall(..), Part::Rule(rule)) if rule.is_of_failures() => 0,
        (Job::Crashes(_), _) if targeted => 1,
        _ if targeted => 2,
        _ => 3,
    }
}

fn without(scope: &Scope, part: Part, name: &str, known: &[Known]) -> Mutant {
    let begin = Instant::now();
    let machine = scope.machine.unwrap_or(Machine::Pmem);
    let reason = survivors::reason(machine.name(), name);
    let mut likely: Vec<&Known> = known.iter().filter(|known| known.passed.contains(&part)).collect();
    let tells = |known: &Known| targets::tells(&known.job, name);
    likely.sort_by_key(|known| (tells(known).is_none(), rank(&known.job, known.targeted, part), known.states));
    let (mut killed_by, mut states) = (None, 0);
    Away::without(Some(part)).enter();
    // Then again, closely. If there is a reason, the search is shorter.
    let budget = if reason.is_some() { scope.states / 8 } else { scope.states };
    // A part missing from recovery shows when recovery is examined.
    let is_told = likely.first().is_some_and(|known| tells(known).is_some());
    let closely = is_told || name.contains("recovery/") || matches!(part, Part::Rule(rule) if rule.is_of_failures());
    let first = if closely { Effort::CLOSE } else { Effort::GLANCE };
    let passes = [(first, budget / 2), (scope.effort, budget / 4 * 3), (Effort::CLOSE, budget)];
    'found: for (effort, most) in passes {
        for known in &likely {
            if states > most {
                break;
            }
            let mut explorer = Explorer::listing(tells(known).unwrap_or(effort));
            killed_by = known.job.run(&mut explorer).err();
            states += explorer.counts.states;
            if killed_by.is_some() {
                break 'found;
            }
        }
    }
    Away::default().enter();
    Mutant { machine, name: name.into(), killed_by, reason, histories: likely.len(), states, time: begin.elapsed() }
}
