//! `famio-simulate`: long campaigns, and repetitions of one history.

use clap::{Parser, Subcommand};
use famio::pmem::record::Call;
use famio_simulate::campaign::{Job, Scope, Which, every, jobs, longer, run, run_without};
use famio_simulate::case::Case;
use famio_simulate::explorer::{Counts, Effort, Explorer, Failure};
use famio_simulate::failure;
use famio_simulate::machine::Machine;
use famio_simulate::minimal::minimal;
use famio_simulate::mutants::{self, Mutant, run as run_mutants};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Parser)]
#[command(about = "Recovers every state that a crash of Famio can leave, and compares with what was promised")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Looks at histories until this many distinct states were recovered.
    Run {
        /// How many.
        #[arg(long, env = "FAMIO_STATES", default_value_t = 100_000)]
        states: u64,
        /// On this machine only: pmem, eadr, page-cache, ordered, tiered, process or emulated.
        #[arg(long)]
        machine: Option<Machine>,
        /// Of the choice of histories.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// One for each core by default.
        #[arg(long)]
        threads: Option<usize>,
        /// Looks at more of each moment.
        #[arg(long)]
        thorough: bool,
        /// Only long histories of a seed, none that are the same for every seed.
        #[arg(long)]
        random: bool,
        /// Without the check or order of this name, in a build for that (make mutants): how long it takes to be found.
        #[arg(long)]
        without: Option<String>,
    },
    /// Looks at every sequence of up to three operations, on every machine with every policy, each at a glance.
    Every {
        /// Every one of up to two around a change of hands, with and without a death, instead.
        #[arg(long)]
        turns: bool,
        /// Every one that stores in a map, instead; around a change of hands: in a map that stays, or has gone before.
        #[arg(long)]
        maps: bool,
        /// Every one of up to four around the passes of a write cache, instead.
        #[arg(long)]
        passes: bool,
        /// Those of up to this many operations, where the file keeps its hands.
        #[arg(long, default_value_t = 3)]
        length: usize,
        /// On this machine only: pmem, eadr, page-cache, ordered, tiered, process or emulated.
        #[arg(long)]
        machine: Option<Machine>,
        /// One for each core by default.
        #[arg(long)]
        threads: Option<usize>,
    },
    /// Leaves out each flush, fence and sync of the library in turn, and in a build for it each check and order: the
    /// histories have to find each, but for those that are listed with a reason.
    Mutants {
        /// A mutant that this many states did not find survives.
        #[arg(long, env = "FAMIO_MUTANT_STATES", default_value_t = 150_000)]
        states: u64,
        /// On this machine only: pmem, page-cache, ordered, tiered or eadr.
        #[arg(long)]
        machine: Option<Machine>,
        /// Those with this in their names.
        #[arg(long, default_value = "")]
        only: String,
        /// Of the choice of histories.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// One for each core by default.
        #[arg(long)]
        threads: Option<usize>,
    },
    /// Looks at one history, as a failure prints it.
    Replay {
        /// Such as 'pmem/u: w100+60 s t4000 s'.
        history: Case,
        /// A call that fails, such as Fdatasync:3.
        #[arg(long, value_parser = failure::parse)]
        fail: Option<(Call, usize)>,
        /// Without the barrier whose place, or the check or order whose name, has this in it.
        #[arg(long)]
        without: Option<String>,
        /// Shortens it while it fails.
        #[arg(long)]
        minimal: bool,
        /// Crashes the recovery of every state, not of a choice.
        #[arg(long)]
        whole: bool,
        /// Only prints what the medium was told, and counts.
        #[arg(long)]
        list: bool,
    },
}

/// Prints a line from time to time.
fn show(shown: &AtomicU64, counts: &Counts, time: Duration) {
    let minute = time.as_secs() / 30;
    if shown.fetch_max(minute, Ordering::Relaxed) < minute {
        println!("{:>5} s: {counts}", time.as_secs());
    }
}

fn main() -> ExitCode {
    match Arguments::parse().what {
        What::Run { states, machine, seed, threads, thorough, random, without } => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            let effort = if thorough { Effort::THOROUGH } else { Effort::QUICK };
            let scope = Scope { machine, effort, states, threads: threads.unwrap_or(cores), seed };
            let shown = AtomicU64::new(0);
            let all: Box<dyn Iterator<Item = Job> + Send> = if random {
                Box::new((0..).map(move |number| Job::Crashes(longer(machine, seed, number))))
            } else {
                Box::new(jobs(&scope))
            };
            let missing = match without.map(|name| mutants::rule(&name).ok_or(name)).transpose() {
                Ok(missing) => missing,
                Err(name) => {
                    println!("{name}: this build has no such check or order to leave out");
                    return ExitCode::FAILURE;
                }
            };
            let outcome = run_without(&scope, missing, all, |counts, time| show(&shown, counts, time));
            println!("{}; {:.1} s", outcome.counts, outcome.time.as_secs_f64());
            report(outcome.failure, missing.is_none(), effort)
        }
        What::Every { turns, maps, passes, length, machine, threads } => {
            let which = match (turns, maps) {
                (true, true) => Which::MapsAndTurns,
                (true, _) => Which::Turns,
                (_, true) => Which::Maps(length),
                _ if passes => Which::Passes(4),
                _ => Which::Plain(length),
            };
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            let threads = threads.unwrap_or(cores);
            let scope = Scope { machine, effort: Effort::GLANCE, states: u64::MAX, threads, seed: 1 };
            let (all, shown) = (every(machine, which), AtomicU64::new(0));
            println!("{} histories", all.len());
            let outcome = run(&scope, all, |counts, time| show(&shown, counts, time));
            println!("{}; {:.1} s", outcome.counts, outcome.time.as_secs_f64());
            report(outcome.failure, true, Effort::GLANCE)
        }
        What::Mutants { states, machine, only, seed, threads } => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            let scope = Scope { machine, effort: Effort::QUICK, states, threads: threads.unwrap_or(cores), seed };
            let mutants = run_mutants(&scope, 12_000, &only, print_mutant);
            let mutants = match mutants {
                Ok(mutants) => mutants,
                Err(failure) => return report(Some(failure), true, Effort::THOROUGH),
            };
            let count = |which: &dyn Fn(&Mutant) -> bool| mutants.iter().filter(|mutant| which(mutant)).count();
            let (found, open) = (count(&|mutant| mutant.killed_by.is_some()), count(&Mutant::is_open));
            let listed = mutants.len() - found - open;
            println!("{} mutants, {found} found, {listed} listed with a reason, {open} survived", mutants.len());
            let idle = if machine.is_none() && only.is_empty() { idle(&mutants) } else { 0 };
            if !cfg!(famio_mutants) {
                println!("barriers only: checks and orders take a build with --cfg famio_mutants (make mutants)");
            }
            if open + idle == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        What::Replay { history, fail, without: Some(part), .. } => match mutants::one(&history, fail, &part) {
            Ok((name, failure)) => {
                println!("without {name}");
                report(failure, false, Effort::CLOSE)
            }
            Err(e) => {
                println!("{e}");
                ExitCode::FAILURE
            }
        },
        What::Replay { history, fail, list: true, .. } => list(&history, fail),
        What::Replay { history, fail, minimal: shorten, whole, without: None, .. } => {
            let effort = if whole { Effort { again: 1, ..Effort::THOROUGH } } else { Effort::THOROUGH };
            let mut explorer = Explorer::new(effort);
            let failure = explorer.explore(&history, fail).err();
            println!("{}", explorer.counts);
            report(failure, shorten, Effort::THOROUGH)
        }
    }
}

/// Prints the operations of a history.
fn list(history: &Case, fail: Option<(Call, usize)>) -> ExitCode {
    let run = match Explorer::new(Effort::QUICK).world.run(history, fail) {
        Ok(run) => run,
        Err(e) => {
            println!("{e}");
            return ExitCode::FAILURE;
        }
    };
    let mut replay = run.trace.replay();
    while replay.step() {
        println!("{:>5} {}", replay.position(), replay.describe(1).concat());
    }
    println!("calls, by kind: {:?} {:?}; the first error: {:?}", Call::ALL, run.calls, run.error);
    ExitCode::SUCCESS
}

/// Prints the rules that no history passes on any machine. Returns how many have no reason.
#[cfg(famio_mutants)]
fn idle(mutants: &[Mutant]) -> usize {
    let name = |rule: &famio::rule::Rule| format!("{rule:?}");
    let idle = famio::rule::Rule::ALL.iter().map(name).filter(|rule| !mutants.iter().any(|m| m.name == *rule));
    let mut open = 0;
    for rule in idle {
        let reason = famio_simulate::survivors::reason("", &rule);
        open += usize::from(reason.is_none());
        println!("{:<10} {rule:<76}          no history comes by it; listed: {}", "", reason.unwrap_or("NOT LISTED"));
    }
    open
}

#[cfg(not(famio_mutants))]
fn idle(_: &[Mutant]) -> usize {
    0
}

fn print_mutant(mutant: &Mutant) {
    let fate = match (&mutant.killed_by, mutant.reason) {
        (Some(failure), None) => format!("found after {} states: {}", mutant.states, failure.short()),
        (Some(failure), Some(_)) => format!("found after {} states, though listed: {}", mutant.states, failure.short()),
        (None, Some(reason)) => format!("listed: {reason}"),
        (None, None) => format!("SURVIVED {} states of {} histories", mutant.states, mutant.histories),
    };
    println!("{:<10} {:<76} {:>5.1} s  {fate}", mutant.machine.name(), mutant.name, mutant.time.as_secs_f64());
}

fn report(failure: Option<Box<Failure>>, shorten: bool, effort: Effort) -> ExitCode {
    let Some(failure) = failure else { return ExitCode::SUCCESS };
    println!("FAILED: {failure}");
    if shorten {
        println!("making it shorter, for up to a minute…");
        println!("FAILED: {}", minimal(failure, effort, Duration::from_secs(60)));
    }
    ExitCode::FAILURE
}
