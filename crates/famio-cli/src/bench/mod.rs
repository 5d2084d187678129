//! `famio bench`: the same work plain and under Famio, in turn.

mod calls;
mod io;
mod launch;
mod median;
mod plain;
mod size;
mod sqlite;
mod worker;

use crate::failure::{FAILED, Failure};
use clap::Subcommand;

/// Compare programs and plain file calls with those under Famio
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Io(io::Args),
    Plain(plain::Args),
    Sqlite(sqlite::Args),
    #[command(hide = true)]
    Calls(calls::Args),
    #[command(hide = true)]
    Worker(worker::Args),
}

/// Dispatches.
pub fn main(args: Args) -> Result<i32, Failure> {
    let done = match args.what {
        What::Io(args) => io::main(&args),
        What::Plain(args) => plain::main(&args),
        What::Calls(args) => calls::main(&args),
        What::Sqlite(args) => sqlite::main(&args),
        What::Worker(args) => worker::main(&args),
    };
    done.map(|()| 0).map_err(|error| Failure::new(FAILED, error))
}
