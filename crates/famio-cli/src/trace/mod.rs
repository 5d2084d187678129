//! `famio trace`: runs a program, lists the files that it writes, and says which of them should be atomic.

mod choose;
mod config;
mod judge;
mod judged;
// The library writes what this reads; each uses its half. A symbolic link to that library's file.
#[allow(dead_code)]
mod layout;
mod magic;
mod program;
mod report;
mod shared;

use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, REFUSED};
use crate::program::{self as runnable, preload, search};
use crate::run::filter;
use crate::settings::AsyncIoName;
use config::Config;
use judged::Judged;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// List the files that a program writes, and suggest which should be atomic
///
/// Runs the program without protection, and counts what it and the programs that it starts do to the files that they
/// open for writing. Then asks, on a terminal, which of them to name in famio.toml, for 'famio run'.
#[derive(clap::Args)]
#[command(after_help = HELP, override_usage = "famio trace [OPTIONS] -- <CMD>...")]
pub struct Args {
    /// Write the suggestions to famio.toml, without asking
    #[arg(long)]
    yes: bool,
    /// Write the suggestions to FILE, without asking [default with --yes: the famio.toml that 'famio run' would read
    /// here]
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report to FILE [default: stderr]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// List every file, not only the first that don't look like databases
    #[arg(long)]
    all: bool,
    /// As in 'famio run'; requests of io_uring and kernel AIO are not seen [default: refuse]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "refuse|allow")]
    async_io: Option<AsyncIoName>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const HELP: &str = "\
Existing settings and comments in famio.toml stay as they are. docs/trace.md has the rules for suggestions, and what \
the command cannot see. FAMIO_TRACER names the library to load, libfamio_trace.so, if it is neither beside the command \
nor in ../lib/famio.

Exit status: the program's own, 128 and the signal's number if one ended it; 125 if Famio refuses or fails; 126 if the \
program can't be executed; 127 if there is no such program.

Examples:
  famio trace -- ./server --port 80
  famio trace --yes -- sqlite3 app.db 'UPDATE t SET x = 1'
  famio trace --json --output files.json -- ./import";

/// Traces, reports, and asks or writes.
pub fn main(args: Args) -> Result<i32, Failure> {
    let library = preload::find_tracer().map_err(Failure::refused)?;
    let name = args.command.first().ok_or_else(|| Failure::refused("no program given"))?;
    let path = search::find(name)?;
    runnable::check(&path)?;
    // Before the program runs: a mistake in famio.toml would otherwise be found only afterwards.
    let config = Config::open(args.write.as_deref()).map_err(Failure::refused)?;
    let mut output = match &args.output {
        Some(path) => {
            let file = std::fs::File::create(path);
            Some(file.map_err(|error| Failure::refused(format!("{}: {error}", path.display())))?)
        }
        None => None,
    };
    let shared = shared::Shared::new().map_err(Failure::refused)?;
    let status = program::run(&path, &args.command, shared.path(), &library, || match args.async_io {
        Some(AsyncIoName::Allow) => Ok(()),
        _ => filter::install(),
    })?;

    let seen = shared.seen();
    if seen.programs == 0 {
        // If the program could not be executed, that was reported already.
        if ![REFUSED, NOT_EXECUTABLE, NOT_FOUND].contains(&status) {
            eprintln!("famio: the program was not traced: it, or this system, keeps preloaded libraries out");
        }
        return Ok(status);
    }
    let files = judge::all(&seen, &config);
    let text = match args.json {
        true => report::json(&args.command, status, &seen, &files),
        false => report::table(&seen, &files, args.all),
    };
    let written = match &mut output {
        Some(file) => file.write_all(text.as_bytes()),
        None => std::io::stderr().write_all(text.as_bytes()),
    };
    written.map_err(|error| Failure::refused(format!("the report can't be written: {error}")))?;
    let chosen = if args.yes || args.write.is_some() { judge::suggested(&files) } else { choose::ask(&files, &config) };
    checkpoint(config, &chosen, &files)?;
    Ok(status)
}

/// Writes the user's choice, or says how to use the result.
fn checkpoint(config: Config, chosen: &[&Judged], files: &[Judged]) -> Result<(), Failure> {
    if !chosen.is_empty() {
        let said = config.add(chosen).map_err(Failure::refused)?;
        eprintln!("famio: {said}");
    } else if judge::suggested(files).is_empty() {
        eprintln!("famio: no file looks as if it should be atomic; famio.toml is unchanged");
    } else {
        eprintln!("famio: famio.toml is unchanged; --yes writes the suggestions");
    }
    Ok(())
}
