//! Runs of all kinds, one after the other, until the time is over or each was done once.

use crate::calls::kills::{self, Kills};
use crate::calls::minimal::minimal;
use crate::calls::together::{self, Plan};
use crate::setup::Setup;
use famio_test_support::random::Random;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Mode {
    /// One process, compared with a plain file at each step
    Alone,
    /// Three processes, step by step
    Turns,
    /// One process at a time, killed
    Kills,
    /// Three processes, of which one or all are killed
    TurnKills,
}

/// All of them.
pub const MODES: [Mode; 4] = [Mode::Alone, Mode::Turns, Mode::Kills, Mode::TurnKills];

/// The parameters.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The setups.
    pub setups: Vec<Setup>,
    /// The modes.
    pub modes: Vec<Mode>,
    /// The seed of all random decisions.
    pub seed: u64,
    /// Duration; `None`: each mode once in each setup.
    pub time: Option<Duration>,
    /// Steps of a run without kills.
    pub steps: u64,
    /// Rounds of a run with kills.
    pub rounds: u64,
}

#[derive(Default)]
struct Tally {
    runs: u64,
    steps: u64,
    done: Kills,
    found: u64,
}

/// Time for reducing a failure's steps.
const MINIMISING: Duration = Duration::from_secs(90);
/// Time between lines of progress.
const PROGRESS: Duration = Duration::from_secs(60);

impl Campaign {
    /// Runs it. Returns whether everything was right.
    pub fn run(&self) -> bool {
        let started = Instant::now();
        let (mut tallies, mut last) = (BTreeMap::<Mode, Tally>::new(), started);
        let jobs: Vec<(Mode, &Setup)> =
            self.modes.iter().flat_map(|&mode| self.setups.iter().map(move |setup| (mode, setup))).collect();
        let mut random = Random::new(self.seed);
        let mut first = true;
        for number in 0.. {
            // First each one in order, then at random.
            let at = if first { number } else { random.below(jobs.len() as u64) as usize };
            let (mode, setup) = jobs[at];
            let seed = if first && number == 0 && self.time.is_none() && jobs.len() == 1 {
                self.seed
            } else {
                random.below(1 << 40)
            };
            let tally = tallies.entry(mode).or_default();
            tally.runs += 1;
            if let Err(why) = self.one(mode, setup, seed, tally) {
                tally.found += 1;
                println!("FOUND: {}\n  {}", self.again(mode, setup, seed), why.replace('\n', "\n  "));
            }
            first &= number + 1 < jobs.len();
            let over = self.time.is_none_or(|time| started.elapsed() >= time);
            if !first && over {
                break;
            }
            if last.elapsed() >= PROGRESS {
                last = Instant::now();
                let all: Vec<String> = tallies.iter().map(|(mode, tally)| tally.short(*mode)).collect();
                println!("{} min: {}", started.elapsed().as_secs() / 60, all.join(", "));
            }
            if tallies.values().map(|tally| tally.found).sum::<u64>() >= 20 {
                println!("20 found: no more");
                break;
            }
        }
        for (mode, tally) in &tallies {
            let Tally { runs, steps, done, found } = tally;
            let Kills { kills, recoveries } = done;
            println!("{mode:?}: {runs} runs, {steps} steps, {kills} kills, {recoveries} recoveries: {found} found");
        }
        let clean = tallies.values().all(|tally| tally.found == 0);
        println!("total: {:.0} s: {}", started.elapsed().as_secs_f64(), if clean { "ok" } else { "NOT OK" });
        clean
    }

    fn one(&self, mode: Mode, setup: &Setup, seed: u64, tally: &mut Tally) -> Result<(), String> {
        let processes = 3;
        let (done, outcome) = match mode {
            Mode::Alone | Mode::Turns => {
                tally.steps += self.steps;
                let several = mode == Mode::Turns;
                let plan = Plan::new(seed, if several { processes } else { 1 }, self.steps);
                let outcome = together::run(setup, &plan).map_err(|why| {
                    if why.contains("hung") {
                        return why;
                    }
                    println!("found with seed {seed}; leaving out steps");
                    let (less, why) = minimal(setup, &plan, why, MINIMISING);
                    let steps: Vec<_> = less.steps.iter().map(|(who, step)| format!("{who}:{step}")).collect();
                    format!("{why}\nsteps that are enough (--only): {}", steps.join(","))
                });
                return outcome;
            }
            Mode::Kills => kills::alone(setup, seed, true, self.rounds),
            Mode::TurnKills => kills::together(setup, seed, seed.is_multiple_of(2), processes, self.rounds),
        };
        tally.done.kills += done.kills;
        tally.done.recoveries += done.recoveries;
        outcome
    }

    fn again(&self, mode: Mode, setup: &Setup, seed: u64) -> String {
        use clap::ValueEnum;
        let mode = mode.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let options = setup.options.join(" ");
        let Self { steps, rounds, .. } = self;
        format!(
            "famio-posix calls --mode {mode} --on {} --options '{options}' --seed {seed} --steps {steps} --rounds {rounds}",
            setup.on
        )
    }
}

impl Tally {
    fn short(&self, mode: Mode) -> String {
        format!("{mode:?} {} runs, {} found", self.runs, self.found)
    }
}
