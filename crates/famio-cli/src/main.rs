//! The famio command: run a program with failure-atomic files, recover them, look at journals and at the machine.

#![cfg_attr(not(test), no_main)]

#[macro_use]
mod out;

mod backup;
mod bench;
mod check;
mod color;
mod doctor;
mod failure;
mod flush;
mod forget;
mod generate;
mod interrupt;
mod journals;
mod limit;
mod look;
mod pool;
mod program;
mod progress;
mod ps;
mod recover;
mod run;
mod settings;
mod stats;
mod status;
mod text;
mod torture;
mod trace;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;

/// Failure-atomic files for unmodified programs.
///
/// Everything that a program writes to an atomic file between two SYNCs (fsync, fdatasync) becomes durable as a whole,
/// or is gone as a whole, whatever kills the program.
#[derive(Parser)]
#[command(name = "famio", version, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    /// When to colour text: auto: on a terminal unless NO_COLOR is set; always; never
    #[arg(long, global = true, value_enum, hide_possible_values = true, value_name = "WHEN", default_value = "auto")]
    color: color::Color,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  famio run --atomic app.db -- sqlite3 app.db     make app.db atomic for this sqlite3
  famio trace -- ./server                         which files does ./server write, and which should be atomic?
  famio status .                                  journals that a crash left in this folder
  famio recover app.db                            bring app.db to its last SYNC
  famio top                                       SYNCs, writes and times of files in use, live
  famio check .                                   whether those journals are sound
  famio flush /mnt/pmem/pool                      write back what waits in a pool, while programs go on
  famio backup app.db /backup/                    a copy as of the last SYNC, while programs write
  famio doctor .                                  what this machine and this folder give
  famio torture --atomic app.db --check './check' -- ./server
                                                  kill ./server again and again, recover, and check";

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Recover(recover::Args),
    Flush(flush::Args),
    Backup(backup::Args),
    Restore(backup::RestoreArgs),
    Forget(forget::Args),
    Check(check::Args),
    Status(status::Args),
    Ps(ps::Args),
    Pool(pool::Args),
    Stats(stats::Args),
    Metrics(stats::metrics::Args),
    Top(stats::top::Args),
    Doctor(doctor::Args),
    Torture(torture::Args),
    Trace(trace::Args),
    Bench(bench::Args),
    Completions(generate::Completions),
    #[command(hide = true)]
    Man(generate::Pages),
}

/// The entry point is C's, not Rust's: the Rust runtime would ignore SIGPIPE and reopen closed descriptors before
/// `famio run` passes the process, with everything it has inherited, to the program.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "tests have a main of their own"))]
extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    // No panic crosses into C.
    std::panic::catch_unwind(|| out::end(start())).unwrap_or(101)
}

/// Parses, dispatches, and turns a failure into its message and exit status.
fn start() -> i32 {
    let command = match parse() {
        Ok(command) => command,
        Err(status) => return status,
    };
    let result = match command {
        Command::Run(args) => run::main(args),
        Command::Recover(args) => recover::main(args),
        Command::Flush(args) => flush::main(args),
        Command::Backup(args) => backup::main(args),
        Command::Restore(args) => backup::restore(args),
        Command::Forget(args) => forget::main(args),
        Command::Check(args) => check::main(args),
        Command::Status(args) => status::main(args),
        Command::Ps(args) => ps::main(args),
        Command::Pool(args) => pool::main(args),
        Command::Stats(args) => stats::main(args),
        Command::Metrics(args) => stats::metrics::main(args),
        Command::Top(args) => stats::top::main(args),
        Command::Doctor(args) => doctor::main(args),
        Command::Torture(args) => torture::main(args),
        Command::Trace(args) => trace::main(args),
        Command::Bench(args) => bench::main(args),
        Command::Completions(args) => generate::completions(args, Cli::command()),
        Command::Man(args) => generate::pages(args, Cli::command()),
    };
    match result {
        Ok(status) => status,
        Err(Failure { status, message }) => {
            eprintln!("famio: {message}");
            status
        }
    }
}

/// Parses the command line. A usage error of `run` and `trace` exits with 125 (their program may use 1 and 2), any
/// other with 2.
fn parse() -> Result<Command, i32> {
    let color = color::of_words(std::env::args_os());
    color::choose(color);
    let parsed =
        Cli::command().color(color.of_clap()).try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map(|cli| (color::choose(cli.color), cli.command).1).map_err(|error| {
        let is_option = |word: &std::ffi::OsString| word.to_string_lossy().starts_with("--color");
        let mut words = std::env::args_os().skip(1).skip_while(|word| is_option(word) || is_color(word));
        let is_run = words.next().is_some_and(|word| word == "run" || word == "trace");
        // A closed or full stdout must not turn help into a panic.
        let printed = error.print();
        match error.exit_code() {
            0 if printed.is_err() => failure::FAILED,
            0 => 0,
            _ if is_run => failure::REFUSED,
            status => status,
        }
    })
}

fn is_color(word: &std::ffi::OsStr) -> bool {
    ["auto", "always", "never"].iter().any(|color| word == *color)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
