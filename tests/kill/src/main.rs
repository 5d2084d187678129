//! `famio-kill`: kills with several file systems, journal modes, durabilities and policies.

use clap::Parser;
use famio_kill::containers::{self, member};
use famio_kill::harness::{self, Plan, Tally};
use famio_test_support::ending::exit_code;
use famio_test_support::launch::{Famio, Launcher};
use famio_test_support::place::{self, Place};
use famio_test_support::random::Random;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Kill SQLite at random moments and count what is corrupt, torn or lost
///
/// Exit status: 0 if nothing is; without Famio, 0 if something is (a harness that finds nothing there proves nothing).
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    mode: Option<Mode>,
    /// SIGKILLs altogether, spread over the configurations
    #[arg(long, default_value_t = 42)]
    kills: u64,
    /// Seed [default: from the clock; printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Run SQLite without Famio; corruption is expected
    #[arg(long)]
    without_famio: bool,
    /// Only on these file systems [default: both]
    #[arg(long, value_delimiter = ',', value_parser = ["tmpfs", "disk"])]
    on: Vec<String>,
    /// Only in this folder, instead of the two file systems
    #[arg(long, conflicts_with = "on")]
    folder: Option<PathBuf>,
    /// SQLite's journal modes
    #[arg(long, value_delimiter = ',', default_value = "OFF,MEMORY")]
    journal_mode: Vec<String>,
    /// Policies, where the journal is in place
    #[arg(long, value_delimiter = ',', default_value = "undo,redo,alternate")]
    policy: Vec<String>,
    /// Durabilities on a disk
    #[arg(long, value_delimiter = ',', default_value = "power,process", value_parser = ["power", "process"])]
    durability: Vec<String>,
    /// Treat tmpfs as persistent memory, with write-backs and fences
    #[arg(long)]
    emulated: bool,
    /// More options for famio run
    #[arg(last = true)]
    options: Vec<String>,
}

#[derive(clap::Subcommand)]
enum Mode {
    Containers(containers::Args),
    /// A process that is killed
    #[command(hide = true)]
    Member(member::Args),
}

/// One combination.
struct Configuration {
    parent: PathBuf,
    journal_mode: String,
    options: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.mode {
        None => run(&args),
        Some(Mode::Member(args)) => member::run(args),
        Some(Mode::Containers(args)) => match containers::run(args) {
            Ok(None) => return ExitCode::from(containers::SKIPPED),
            Ok(Some(is_right)) => Ok(is_right),
            Err(error) => Err(error),
        },
    };
    exit_code("famio-kill", result)
}

fn run(args: &Args) -> Result<bool, String> {
    let seed = args.seed.unwrap_or_else(Random::fresh_seed);
    println!("seed {seed} (repeat with --seed {seed})");
    let all = configurations(args)?;
    let mut random = Random::new(seed);
    let mut total = Tally::default();
    let started = Instant::now();
    for (index, configuration) in all.iter().enumerate() {
        let count = all.len() as u64;
        // The first configurations take the remainder.
        let kills = args.kills / count + u64::from((index as u64) < args.kills % count);
        if kills == 0 {
            continue;
        }
        let tally = one(args, configuration, kills, random.next_u64())?;
        total.add(&tally);
    }
    let verdict = match (args.without_famio, total.is_clean()) {
        (false, true) => "ok",
        (false, false) => "NOT OK",
        (true, false) => "corruption found, as expected without Famio",
        (true, true) => "NOT OK: no corruption found without Famio, so that this harness proves nothing",
    };
    println!("total: {total} in {:.1} s: {verdict}", started.elapsed().as_secs_f64());
    Ok(total.is_clean() != args.without_famio)
}

/// Runs one combination and prints the result.
fn one(args: &Args, configuration: &Configuration, kills: u64, seed: u64) -> Result<Tally, String> {
    let options: Vec<&str> = configuration.options.iter().chain(&args.options).map(String::as_str).collect();
    let famio = if args.without_famio { None } else { Some(Famio::beside_me(&options)?) };
    let launcher = Launcher::new(famio)?;
    let mut place = Place::new(&configuration.parent, "famio-kill")?;
    let plan = Plan {
        journal_mode: configuration.journal_mode.clone(),
        kills,
        seed,
        longest: Duration::from_millis(120),
        stop_early: !args.without_famio,
    };
    let tally = harness::run(&launcher, place.path(), &plan)?;
    let kind = place::file_system(place.path());
    println!("{kind:6} journal_mode {:6} {:38} {tally}", configuration.journal_mode, options.join(" "));
    for finding in &tally.findings {
        println!("         {finding}");
    }
    if !args.without_famio && !tally.is_clean() {
        place.keep();
        println!("         left for a look: {}", place.path().display());
    }
    Ok(tally)
}

/// {tmpfs, disk} × journal modes × policies, if the journal is in place: on tmpfs, and on a disk where a SYNC must
/// only survive the process.
fn configurations(args: &Args) -> Result<Vec<Configuration>, String> {
    let mut all = Vec::new();
    let wanted = |name: &str| args.on.is_empty() || args.on.iter().any(|on| on == name);
    let mut add = |parent: &Path, fixed: &[&str], policies: &[String]| {
        for journal_mode in &args.journal_mode {
            let mut push = |more: &[&str]| {
                let options = fixed.iter().chain(more).map(|word| word.to_string()).collect();
                all.push(Configuration { parent: parent.into(), journal_mode: journal_mode.clone(), options });
            };
            if policies.is_empty() || args.without_famio {
                push(&[]);
            } else {
                policies.iter().for_each(|policy| push(&["--policy", policy]));
            }
        }
    };
    let in_memory: &[&str] = if args.emulated { &["--domain", "emulated"] } else { &[] };
    if let Some(folder) = &args.folder {
        add(folder, in_memory, &args.policy);
        return Ok(all);
    }
    if wanted("tmpfs") {
        add(place::memory(), in_memory, &args.policy);
    }
    if wanted("disk") {
        let disk = place::disk()?;
        for durability in &args.durability {
            let policies = if durability == "process" { args.policy.as_slice() } else { &[] };
            add(&disk, &["--durability", durability], policies);
        }
    }
    Ok(all)
}
