//! `famio-counts`: counts the instructions of hot paths with callgrind, and compares them with the checked-in counts.
//!
//! Times on a shared machine differ by a tenth from run to run. The number of instructions of a call hardly differs
//! at all, so that a small change shows. It says nothing about the kernel, the caches or the medium; `famio bench` is
//! for these.

mod checked;
mod machine;
mod measure;
mod paths;
mod table;

use checked::{Checked, Verdict};
use clap::{Parser, Subcommand};
use famio_test_support::ending::exit_code;
use machine::Machine;
use measure::{Measured, Places};
use paths::HotPath;
use std::path::PathBuf;
use std::process::ExitCode;

/// libfamio's: the work of libc's allocator depends on what happened before.
#[global_allocator]
static HEAP: famio::heap::Heap = famio::heap::Heap::new();

/// Count the instructions of hot paths and compare them with those that are checked in
///
/// Exit status: 0 if no path has grown by more than 5 %, or if the counts cannot be compared here (it says so); 1 if
/// one has.
#[derive(Parser)]
struct Args {
    /// The counts that are checked in
    #[arg(long, value_name = "FILE", default_value = "tests/counts/counts.txt")]
    file: PathBuf,
    /// Write the file instead of comparing with it
    #[arg(long)]
    bless: bool,
    /// Only these paths
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Count this many times, take the median, and show how far the counts lie apart
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(subcommand)]
    program: Option<Program>,
}

#[derive(Subcommand)]
enum Program {
    /// The program that is counted: one hot path
    #[command(hide = true)]
    Run { name: String, folder: PathBuf },
    /// The program that says what counts depend on
    #[command(hide = true)]
    Machine,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.program {
        Some(Program::Run { name, folder }) => paths::find(name).and_then(|path| paths::run(path, folder)),
        Some(Program::Machine) => {
            print!("{}", machine::Machine::here().text());
            Ok(true)
        }
        None => guard(&args),
    };
    exit_code("famio-counts", result)
}

fn guard(args: &Args) -> Result<bool, String> {
    if !measure::is_valgrind_there() {
        println!("counts: SKIPPED: valgrind is not installed");
        return Ok(!args.bless);
    }
    let chosen = choose(&args.only)?;
    let checked = if args.bless { None } else { Some(Checked::read(&args.file)?) };
    famio_test_support::place::clean_up_on_interrupt();
    let machine = measure::machine()?;
    if let Some(difference) = checked.as_ref().and_then(|checked| checked.machine.differs_from(&machine)) {
        println!(
            "counts: SKIPPED: {}: {difference}. Such counts cannot be compared. make counts makes the right build; make counts-bless counts anew",
            args.file.display()
        );
        return Ok(true);
    }
    let places = Places::new()?;
    let mut all = Vec::new();
    for path in chosen {
        match places.of(path) {
            Some(parent) => all.push(measure::median(path, parent, args.rounds)?),
            None => println!("counts: SKIPPED: {}: the build folder is not on a disk", path.name),
        }
    }
    match checked {
        None => bless(args, machine, &all),
        Some(checked) => compare(args, &checked, &all),
    }
}

fn choose(only: &[String]) -> Result<Vec<&'static HotPath>, String> {
    if only.is_empty() {
        return Ok(paths::ALL.iter().collect());
    }
    only.iter().map(|name| paths::find(name)).collect()
}

/// Paths that were not counted now stay in the file, if they can be compared with the rest.
fn bless(args: &Args, machine: Machine, all: &[Measured]) -> Result<bool, String> {
    let before = Checked::read(&args.file).ok().filter(|before| before.machine.differs_from(&machine).is_none());
    let now = |name| all.iter().find(|one| one.name == name).map(|one| one.per_operation);
    let count = |name| now(name).or_else(|| before.as_ref()?.count(name));
    let counts = paths::ALL.iter().filter_map(|path| Some((path.name.to_string(), count(path.name)?))).collect();
    let rows =
        all.iter().map(|one| (one, before.as_ref().and_then(|before| before.count(one.name)))).collect::<Vec<_>>();
    print!("{}", table::text(&rows));
    let checked = Checked { machine, counts };
    checked.write(&args.file)?;
    println!("counts: {} has the counts of {} paths", args.file.display(), checked.counts.len());
    Ok(true)
}

fn compare(args: &Args, checked: &Checked, all: &[Measured]) -> Result<bool, String> {
    let rows: Vec<_> = all.iter().map(|one| (one, checked.count(one.name))).collect();
    print!("{}", table::text(&rows));
    let with = |wanted: Verdict| -> Vec<&str> {
        let found = rows.iter().filter(|(one, before)| Verdict::of(*before, one.per_operation) == wanted);
        found.map(|(one, _)| one.name).collect()
    };
    let (grown, new, shrunk) = (with(Verdict::Grown), with(Verdict::New), with(Verdict::Shrunk));
    let say = |names: &[&str], what: &str| {
        if !names.is_empty() {
            println!("counts: {}: {what}", names.join(", "));
        }
    };
    say(&grown, "more than 5 % more instructions. If that is meant, run make counts-bless and say why in the commit");
    say(&new, &format!("not in {}: run make counts-bless", args.file.display()));
    say(&shrunk, "more than 5 % fewer instructions: run make counts-bless, so that the guard keeps this");
    let gone = checked.unknown();
    say(&gone, &format!("in {}, but there is no such path: run make counts-bless", args.file.display()));
    let is_good = grown.is_empty() && new.is_empty() && gone.is_empty();
    println!("counts: {} paths, {}", all.len(), if is_good { "none has grown" } else { "NOT OK" });
    Ok(is_good)
}
