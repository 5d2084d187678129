//! `famio-posix`: whatever a program does to an atomic file, the results are those of a plain file, and after a kill,
//! the file is as its last SYNC left it.

mod calls;
mod campaign;
mod cases;
mod left;
mod setup;

use calls::together::{self, Plan};
use campaign::{Campaign, MODES, Mode};
use clap::{Args, Parser, Subcommand};
use famio_test_support::arguments::duration;
use famio_test_support::ending::exit_code;
use famio_test_support::random::Random;
use setup::Setup;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Compare what atomic files do with what plain ones do
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Random calls, by one process and by several, with kills; each mode once in each setup, or for a time
    Calls(Calls),
    /// A table of POSIX cases, on plain files without Famio and on atomic ones under it
    Cases {
        /// Only those whose names begin so
        #[arg(default_value = "")]
        begin: String,
    },
    /// One case: the program under test
    #[command(hide = true)]
    Case {
        /// Its name
        name: String,
    },
    /// Random calls: the program under test
    #[command(hide = true)]
    Worker(calls::worker::Worker),
}

#[derive(Args)]
struct Calls {
    /// So long (`90s`, `60m`), in random order
    #[arg(long = "for", value_parser = duration)]
    time: Option<Duration>,
    /// Only these [default: all]
    #[arg(long, value_delimiter = ',')]
    mode: Vec<Mode>,
    /// Only on these file systems [default: both]
    #[arg(long, value_delimiter = ',', value_parser = ["tmpfs", "disk"])]
    on: Vec<String>,
    /// Only with these options of famio run
    #[arg(long, allow_hyphen_values = true)]
    options: Option<String>,
    /// Seed [default: from the clock; printed]. With one mode and one setup, that of the run itself
    #[arg(long)]
    seed: Option<u64>,
    /// Steps of a run without kills
    #[arg(long, default_value_t = 1500)]
    steps: u64,
    /// Rounds of a run with kills
    #[arg(long, default_value_t = 12)]
    rounds: u64,
    /// Where the disk is [default: the folder of this program]
    #[arg(long)]
    disk: Option<PathBuf>,
    /// Only these steps of the run of this seed, as a failure names them
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().what {
        What::Calls(calls) => run(&calls),
        What::Cases { begin } => Setup::few().and_then(|setups| cases::run(&setups, &begin)),
        What::Case { name } => cases::script(&name),
        What::Worker(worker) => calls::worker::run(&worker),
    };
    exit_code("famio-posix", outcome)
}

fn run(calls: &Calls) -> Result<bool, String> {
    let mut setups = Setup::all(calls.disk.as_deref())?;
    setups.retain(|setup| calls.on.is_empty() || calls.on.iter().any(|on| on == setup.on));
    if let Some(options) = &calls.options {
        setups.retain(|setup| setup.options.join(" ") == *options);
    }
    if setups.is_empty() {
        return Err("no setup is left".into());
    }
    let seed = calls.seed.unwrap_or_else(Random::fresh_seed);
    let modes = if calls.mode.is_empty() { MODES.to_vec() } else { calls.mode.clone() };
    if !calls.only.is_empty() {
        return only(calls, &setups[0], modes[0], seed);
    }
    println!("seed {seed}");
    let campaign = Campaign { setups, modes, seed, time: calls.time, steps: calls.steps, rounds: calls.rounds };
    Ok(campaign.run())
}

/// Runs only the steps that a failure names.
fn only(calls: &Calls, setup: &Setup, mode: Mode, seed: u64) -> Result<bool, String> {
    let several = mode == Mode::Turns;
    let mut plan = Plan::new(seed, if several { 3 } else { 1 }, 0);
    for word in &calls.only {
        let (who, step) = word.split_once(':').ok_or_else(|| format!("{word}: not PROCESS:STEP"))?;
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{word}: {error}"));
        let (who, step) = (number(who)? as usize, number(step)?);
        println!("{who}:{step} {:?}", calls::step::step(seed, step, plan.kinds()).0);
        plan.steps.push((who, step));
    }
    match together::run(setup, &plan) {
        Ok(()) => println!("ok: {}", setup.name()),
        Err(why) => {
            println!("FOUND: {}: {why}", setup.name());
            return Ok(false);
        }
    }
    Ok(true)
}
