//! `famio-simulate`: long campaigns, and one history again.

use clap::{Parser, Subcommand};
use famio::pmem::record::Call;
use famio_simulate::campaign::{Scope, run};
use famio_simulate::case::Case;
use famio_simulate::explore::{Effort, Explorer, Failure};
use famio_simulate::failure;
use famio_simulate::machine::Machine;
use famio_simulate::minimal::minimal;
use famio_simulate::mutants::run as run_mutants;
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
    /// Looks at histories until so many distinct states were recovered.
    Run {
        /// How many.
        #[arg(long, env = "FAMIO_STATES", default_value_t = 100_000)]
        states: u64,
        /// On this machine only: pmem, eadr, page-cache, process or emulated.
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
    },
    /// Leaves out each flush, fence and sync of the library in turn: the histories have to find each.
    Mutants {
        /// A mutant that so many states did not find survives.
        #[arg(long, env = "FAMIO_MUTANT_STATES", default_value_t = 60_000)]
        states: u64,
        /// On this machine only: pmem or page-cache.
        #[arg(long)]
        machine: Option<Machine>,
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
        /// Shortens it while it fails.
        #[arg(long)]
        minimal: bool,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().what {
        What::Run { states, machine, seed, threads, thorough } => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            let effort = if thorough { Effort::THOROUGH } else { Effort::QUICK };
            let scope = Scope { machine, effort, states, threads: threads.unwrap_or(cores), seed };
            let shown = AtomicU64::new(0);
            let outcome = run(&scope, |counts, time| {
                let minute = time.as_secs() / 30;
                if shown.fetch_max(minute, Ordering::Relaxed) < minute {
                    println!("{:>5} s: {counts}", time.as_secs());
                }
            });
            println!("{}; {:.1} s", outcome.counts, outcome.time.as_secs_f64());
            report(outcome.failure, true, effort)
        }
        What::Mutants { states, machine, seed, threads } => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            let scope = Scope { machine, effort: Effort::QUICK, states, threads: threads.unwrap_or(cores), seed };
            let mutants = run_mutants(&scope, 4000, |mutant| {
                let fate = match &mutant.killed_by {
                    Some(failure) => format!("found after {} states: {}", mutant.states, failure.short()),
                    None => format!("SURVIVED {} states", mutant.states),
                };
                println!("{:<10} {:<90} {fate}", mutant.machine.name(), mutant.site);
            });
            let survived = mutants.iter().filter(|mutant| mutant.killed_by.is_none()).count();
            println!("{} mutants, {} found, {survived} survived", mutants.len(), mutants.len() - survived);
            if survived == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        What::Replay { history, fail, minimal: shorten } => {
            let mut explorer = Explorer::new(Effort::THOROUGH);
            let failure = explorer.explore(&history, fail).err();
            println!("{}", explorer.counts);
            report(failure, shorten, Effort::THOROUGH)
        }
    }
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
