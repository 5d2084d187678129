//! `famio-hostile`: Famio in hostile programs and beside hostile users.
//!
//! `neighbour`: another user who attacks a victim's files and root's commands in every way open to users. `program`:
//! a program that closes, moves and uses up descriptors, changes its user, root and limits, forks, and cancels
//! threads, compared with a plain twin.

mod classes;
mod findings;
mod neighbour;
mod options;
mod people;
mod program;
mod space;
mod watch;

use clap::{Parser, Subcommand};
use classes::Classes;
use famio_test_support::ending::exit_code;
use famio_test_support::random::Random;
use findings::Findings;
use options::Options;
use space::Space;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Put Famio beside a hostile neighbour, and into a hostile program
///
/// Needs root, and mount and process namespaces: all is done in its own, with a /dev/shm of its own. Exit status: 0 if
/// nothing was found.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Another user, who tries to damage a victim's files and root's recovery
    Neighbour(Options),
    /// A program that misuses its descriptors, rights and limits, beside a plain twin
    Program(Options),
    /// Both, one after the other, each for half the time
    All(Options),
    /// The same, once in namespaces of its own
    #[command(hide = true)]
    Inside {
        /// A folder that nothing else uses
        #[arg(long)]
        base: PathBuf,
        /// The command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        what: Vec<String>,
    },
    /// The neighbour himself
    #[command(hide = true)]
    Agent(neighbour::agent::Agent),
    /// The victim's program
    #[command(hide = true)]
    Victim(neighbour::victim::Victim),
    /// Makes what a crash leaves
    #[command(hide = true)]
    Crash {
        /// The file
        file: PathBuf,
    },
    /// Has a file open, and reads it
    #[command(hide = true)]
    Hold {
        /// The file
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.what {
        What::Inside { base, what } => {
            inside(base, &Arguments::parse_from(std::iter::once("famio-hostile".to_owned()).chain(what)).what)
        }
        What::Agent(agent) => neighbour::agent::run(&agent),
        What::Victim(victim) => neighbour::victim::run(&victim),
        What::Crash { file } => neighbour::victim::crash(&file),
        What::Hold { file } => neighbour::victim::hold(&file),
        What::Neighbour(options) | What::Program(options) | What::All(options) => outside(&options),
    };
    exit_code("famio-hostile", outcome)
}

/// Checks the options, and enters new namespaces.
fn outside(options: &Options) -> Result<bool, String> {
    if options.without.iter().any(|word| word == "list") {
        Classes::list();
        return Ok(true);
    }
    Classes::chosen(options)?;
    space::go_in()
}

fn inside(base: PathBuf, what: &What) -> Result<bool, String> {
    let (options, program, neighbour) = match what {
        What::Program(options) => (options, true, false),
        What::Neighbour(options) => (options, false, true),
        What::All(options) => (options, true, true),
        _ => return Err("nothing to be done inside".into()),
    };
    let classes = Classes::chosen(options)?;
    let space = Space::new(base, options)?;
    let seed = options.seed.unwrap_or_else(Random::fresh_seed);
    println!("seed {seed}");
    let started = Instant::now();
    let time = options.time / if program && neighbour { 2 } else { 1 };
    let mut findings = Findings::new(&space, options.most);
    if program {
        program::campaign(&space, options, classes, seed, time, &mut findings)?;
    }
    if neighbour {
        neighbour::campaign(&space, options, classes, seed, time, &mut findings)?;
    }
    Ok(findings.close(started.elapsed()))
}
