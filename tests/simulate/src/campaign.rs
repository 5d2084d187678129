//! Many histories, on several threads, until enough states were examined.

use crate::away::{Away, Part};
use crate::case::{Cache, Case, Found};
use crate::explorer::{Counts, Effort, Explorer, Failure};
use crate::kinds::{Kind, Maker, around, around_passes, around_with_maps, sequences, with_maps};
use crate::machine::Machine;
use crate::workload::{Op, Step, grouped, random, write_back};
use crate::{damage, failure};
use famio::PolicyChoice;
use famio::pmem::record::Call;
use famio_test_support::random::Random;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What to do with a history.
#[derive(Clone, Debug)]
pub enum Job {
    /// Examine its crashes.
    Crashes(Case),
    /// The same, with each call failing in turn, up to this many of each kind.
    FailedCalls(Case, usize),
    /// The same, with this call failing.
    FailedCall(Case, (Call, usize)),
    /// Damage what it leaves in the end, one significant byte at a time.
    Damaged(Case),
}

impl Job {
    /// Whether the file is handed over in it.
    pub fn has_turns(&self) -> bool {
        let (Job::Crashes(case) | Job::FailedCalls(case, _) | Job::FailedCall(case, _) | Job::Damaged(case)) = self;
        case.steps.iter().any(|step| matches!(step.op, Op::HandOver | Op::Die))
    }

    /// Does it.
    pub fn run(&self, explorer: &mut Explorer) -> Result<(), Box<Failure>> {
        match self {
            Job::Crashes(case) => explorer.explore(case, None).map(drop),
            Job::FailedCalls(case, most) => failure::each_call(explorer, case, *most),
            Job::FailedCall(case, fail) => explorer.explore(case, Some(*fail)).map(drop),
            Job::Damaged(case) => damage::each_byte(explorer, case),
        }
    }
}

/// The scope of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Only on this machine.
    pub machine: Option<Machine>,
    /// How thoroughly.
    pub effort: Effort,
    /// Ends after this many states were recovered.
    pub states: u64,
    /// Threads.
    pub threads: usize,
    /// Seed of the choice of histories.
    pub seed: u64,
}

/// Machines with their policies.
pub fn places(only: Option<Machine>) -> Vec<(Machine, PolicyChoice)> {
    let all = [PolicyChoice::Undo, PolicyChoice::Redo, PolicyChoice::Alternate];
    let policies = |machine: Machine| if machine.has_policies() { &all[..] } else { &all[..1] };
    let machines = Machine::ALL.into_iter().filter(|&machine| only.is_none_or(|only| machine == only));
    machines.flat_map(|machine| policies(machine).iter().map(move |&policy| (machine, policy))).collect()
}

/// Every sequence of this many operations, on every machine with every policy: as it is, and after a commit of data
/// that lies in the journal. A SYNC and a close follow.
pub fn exhaustive(only: Option<Machine>, lengths: RangeInclusive<usize>) -> Vec<Case> {
    cases(only, &[], || sequences(lengths.clone()).map(|kinds| (kinds, Vec::new())))
}

/// The same for sequences that store in a map.
pub fn maps(only: Option<Machine>, lengths: RangeInclusive<usize>) -> Vec<Case> {
    cases(only, &[], || with_maps(lengths.clone()).map(|kinds| (kinds, Vec::new())))
}

/// A hand-over, with and without a death, with every sequence of `together` operations around it, for all places of
/// [`exhaustive`].
pub fn turns(only: Option<Machine>, together: RangeInclusive<usize>) -> Vec<Case> {
    cases(only, &HANDS, || together.clone().flat_map(around))
}

/// The same after a store in a map.
pub fn maps_and_turns(only: Option<Machine>) -> Vec<Case> {
    cases(only, &HANDS, around_with_maps)
}

const HANDS: [Op; 2] = [Op::HandOver, Op::Die];

/// The operations before and after each of `between`, or after nothing.
fn cases<All: Iterator<Item = (Vec<Kind>, Vec<Kind>)>>(
    only: Option<Machine>,
    between: &[Op],
    all: impl Fn() -> All,
) -> Vec<Case> {
    let between: Vec<Option<Op>> =
        if between.is_empty() { vec![None] } else { between.iter().copied().map(Some).collect() };
    let mut cases = Vec::new();
    for (machine, policy) in places(only) {
        for (before, after) in all() {
            if !machine.has_policies() && before.iter().chain(&after).any(|&kind| kind == Kind::Policy) {
                continue;
            }
            for (op, committed) in between.iter().flat_map(|&op| [(op, false), (op, true)]) {
                let mut maker = Maker::new(policy);
                if committed {
                    maker.steps.extend([Op::Write { at: 32, len: 4200 }, Op::Sync].map(Step::from));
                }
                before.iter().for_each(|&kind| maker.add(kind));
                maker.steps.extend(op.map(Step::from));
                after.iter().for_each(|&kind| maker.add(kind));
                maker.steps.extend([Op::Sync, Op::Close].map(Step::from));
                cases.push(Case { machine, policy, found: Found::default(), steps: maker.steps });
            }
        }
    }
    cases
}

/// Every sequence of so many operations around the passes of a write cache, after commits that fill it: so far that
/// passes are partial ones, so far with so little that it is logged again, and so far that an epoch may need the whole
/// journal. A SYNC and a close follow.
pub fn passes(only: Option<Machine>, lengths: RangeInclusive<usize>) -> Vec<Case> {
    if only.is_some_and(|only| only != Machine::Tiered) {
        return Vec::new();
    }
    let before = [
        (Cache::Small, "w0+16384 s w16384+16384 s w32768+8192 s"),
        (Cache::Small, "w0+8192 s w0+8192 s w0+8192 s w0+8192 s w8192+64 s"),
        (Cache::Tiny, "w0+24000 s"),
    ];
    let mut cases = Vec::new();
    for (cache, before) in before {
        let before: Vec<Step> = before.split_whitespace().filter_map(|step| step.parse().ok()).collect();
        for sequence in around_passes(lengths.clone()) {
            let steps = [&before[..], &sequence, &[Op::Sync, Op::Close].map(Step::from)].concat();
            let found = Found { cache, ..Found::default() };
            cases.push(Case { machine: Machine::Tiered, policy: PolicyChoice::Undo, found, steps });
        }
    }
    cases
}

/// Longer history number `number` of a seed.
pub fn longer(only: Option<Machine>, seed: u64, number: u64) -> Case {
    let mut choice = Random::new(seed ^ number.wrapping_mul(0x9e37_79b9));
    let places = places(only);
    let (machine, policy) = places[choice.below(places.len() as u64) as usize];
    let len = 6 + choice.below(14) as usize;
    let (unsynced, pool) = (choice.below(6) == 0, choice.below(6) == 0);
    let found = Found { unsynced, pool, ..Found::default() };
    if number.is_multiple_of(7) {
        let found = Found { pool: true, group: true, ..Found::default() };
        return Case { machine, policy, found, steps: grouped(choice.next_u64(), len) };
    }
    if machine == Machine::Tiered {
        let cache = [Cache::Large, Cache::Small, Cache::Small, Cache::Tiny][choice.below(4) as usize];
        if cache != Cache::Large {
            let len = 2 * len + choice.below(6) as usize;
            return Case {
                machine,
                policy,
                found: Found { cache, ..found },
                steps: write_back(choice.next_u64(), len),
            };
        }
    }
    Case { machine, policy, found, steps: random(choice.next_u64(), len) }
}

/// The histories of a scope, endlessly: the exhaustive ones, pairs before triples, interspersed with longer ones and
/// ones with failing calls.
pub fn jobs(scope: &Scope) -> impl Iterator<Item = Job> + Send + use<> {
    let (only, seed) = (scope.machine, scope.seed);
    let (mut pairs, mut triples) = (exhaustive(only, 1..=2), exhaustive(only, 3..=3));
    shuffle(&mut pairs, seed);
    shuffle(&mut triples, seed);
    let mut short = pairs.into_iter().chain(triples);
    let mut turns = turns(only, 0..=2);
    shuffle(&mut turns, seed);
    let mut turns = turns.into_iter();
    let (mut maps, mut triples) = ([maps(only, 1..=2), maps_and_turns(only)].concat(), maps(only, 3..=3));
    shuffle(&mut maps, seed);
    shuffle(&mut triples, seed);
    let mut maps = maps.into_iter().chain(triples);
    let mut passes = passes(only, 1..=4);
    shuffle(&mut passes, seed);
    let mut passes = passes.into_iter();
    (0u64..).map(move |number| match number % 16 {
        2 | 10 if let Some(case) = passes.next() => Job::Crashes(case),
        1 | 9 => Job::Crashes(longer(only, seed, number)),
        5 => Job::FailedCalls(longer(only, seed, number), 2),
        3 | 11 if let Some(case) = turns.next() => Job::Crashes(case),
        13 if let Some(case) = turns.next() => Job::FailedCalls(case, 2),
        7 if let Some(case) = maps.next() => Job::Crashes(case),
        15 if let Some(case) = maps.next() => Job::FailedCalls(case, 2),
        _ => short.next().map_or_else(|| Job::Crashes(longer(only, seed, number)), Job::Crashes),
    })
}

fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut random = Random::new(seed);
    for i in (1..list.len()).rev() {
        list.swap(i, random.below(i as u64 + 1) as usize);
    }
}

/// The result.
pub struct Outcome {
    pub counts: Counts,
    pub time: Duration,
    pub failure: Option<Box<Failure>>,
}

/// Which sequences [`every`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Up to this many operations, without a map.
    Plain(usize),
    /// Up to two operations around a hand-over.
    Turns,
    /// Up to this many operations, one of which stores in a map.
    Maps(usize),
    /// Operations around a hand-over, after a store in a map.
    MapsAndTurns,
    /// Up to this many around the passes of a write cache.
    Passes(usize),
}

/// Every sequence of a kind, once.
pub fn every(only: Option<Machine>, which: Which) -> impl ExactSizeIterator<Item = Job> + Send {
    let cases = match which {
        Which::Plain(most) => exhaustive(only, 1..=most),
        Which::Turns => turns(only, 0..=2),
        Which::Maps(most) => maps(only, 1..=most),
        Which::MapsAndTurns => maps_and_turns(only),
        Which::Passes(most) => passes(only, 1..=most),
    };
    cases.into_iter().map(Job::Crashes)
}

/// Examines histories until enough states were seen, one is not legal, or there are no more.
pub fn run(
    scope: &Scope,
    jobs: impl Iterator<Item = Job> + Send,
    progress: impl Fn(&Counts, Duration) + Sync,
) -> Outcome {
    run_without(scope, None, jobs, progress)
}

/// The same, by a library without a part.
pub fn run_without(
    scope: &Scope,
    missing: Option<Part>,
    jobs: impl Iterator<Item = Job> + Send,
    progress: impl Fn(&Counts, Duration) + Sync,
) -> Outcome {
    let begin = Instant::now();
    let all = Mutex::new(jobs);
    let (stop, states) = (AtomicBool::new(false), AtomicU64::new(0));
    let total = Mutex::new((Counts::default(), None::<Box<Failure>>));
    let lock = || total.lock().unwrap_or_else(|poison| poison.into_inner());
    let work = || {
        Away::without(missing).enter();
        let mut explorer = Explorer::new(scope.effort);
        while !stop.load(Ordering::Relaxed) && states.load(Ordering::Relaxed) < scope.states {
            let Some(job) = all.lock().unwrap_or_else(|poison| poison.into_inner()).next() else { break };
            let before = explorer.counts.states;
            let done = job.run(&mut explorer);
            states.fetch_add(explorer.counts.states - before, Ordering::Relaxed);
            let mut total = lock();
            total.0 += std::mem::take(&mut explorer.counts);
            if let Err(failure) = done {
                stop.store(true, Ordering::Relaxed);
                total.1.get_or_insert(failure);
            }
            progress(&total.0, begin.elapsed());
        }
    };
    std::thread::scope(|scope_| {
        for _ in 0..scope.threads.max(1) {
            scope_.spawn(work);
        }
    });
    let time = begin.elapsed();
    let (counts, failure) = total.into_inner().unwrap_or_else(|poison| poison.into_inner());
    Outcome { counts, time, failure }
}
