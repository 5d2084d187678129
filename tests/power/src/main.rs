//! `famio-power`: power cuts in a virtual machine with real ext4-DAX, xfs-DAX and an ordinary ext4 disk.

mod cache;
mod campaign;
mod guest;
mod names;
mod options;
mod stamped;
mod vm;
mod writer;

use clap::{Parser, Subcommand};
use famio_test_support::ending::exit_code;
use options::Options;
use std::process::ExitCode;

/// Cut the power of a virtual machine while SQLite and a writer of stamped epochs run, and count what is torn or lost
///
/// In each boot, what the last cut left is recovered and checked, and then everything writes on, until the next cut:
/// stamped files on the DAX file system (one per policy), on the disk, and on the disk with the journal on DAX, and an
/// SQLite database of each kind.
/// Needs dax-vm: FAMIO_DAX_VM, or PATH, or ../shared/dax-vm/dax-vm. Without it nothing is tested, which is said on
/// stderr.
///
/// Exit status: 0 if nothing is damaged (with --broken: if something is), 1 otherwise, 2 if it could not go on.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    inside: Option<Inside>,
    #[command(flatten)]
    options: Options,
}

/// What runs in the virtual machine.
#[derive(Subcommand)]
enum Inside {
    #[command(hide = true)]
    Guest(guest::Args),
    #[command(hide = true)]
    Write(writer::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.inside {
        Some(Inside::Guest(guest)) => guest::main(guest).map(|()| true),
        Some(Inside::Write(writer)) => writer::main(writer).map(|()| true),
        None => campaign::main(&args.options),
    };
    exit_code("famio-power", result)
}
