//! `famio bench`: the same work plain and under Famio, in turn.

mod calls;
mod io;
mod launch;
mod map;
mod median;
mod plain;
mod processes;
mod region;
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
    Map(map::Args),
    Plain(plain::Args),
    Processes(processes::Args),
    Region(region::Args),
    Sqlite(sqlite::Args),
    #[command(hide = true)]
    Calls(calls::Args),
    #[command(hide = true)]
    Worker(worker::Args),
    #[command(hide = true)]
    MapWork(map::WorkArgs),
    #[command(hide = true)]
    ProcessWork(processes::WorkArgs),
}

/// Dispatches.
pub fn main(args: Args) -> Result<i32, Failure> {
    let done = match args.what {
        What::Io(args) => io::main(&args),
        What::Map(args) => map::main(&args),
        What::MapWork(args) => map::work_main(&args),
        What::Plain(args) => plain::main(&args),
        What::Processes(args) => processes::main(&args),
        What::ProcessWork(args) => processes::work_main(&args),
        What::Region(args) => region::main(&args),
        What::Calls(args) => calls::main(&args),
        What::Sqlite(args) => sqlite::main(&args),
        What::Worker(args) => worker::main(&args),
    };
    done.map(|()| 0).map_err(|error| Failure::new(FAILED, error))
}
