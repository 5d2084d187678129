//! `famio bench`: the same work alternately plain and under Famio.

mod apps;
mod arguments;
mod calls;
mod checked;
mod clock;
mod compare;
mod container;
mod cost;
mod crew;
mod document;
mod figures;
mod io;
mod launch;
mod loaded;
mod map;
mod median;
mod member;
mod output;
mod plain;
mod processes;
mod region;
mod report;
mod results;
mod run;
mod session;
mod size;
mod small;
mod sqlite;
mod sqlite3;
mod times;
mod tx;
mod window;

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
    All(figures::AllArgs),
    Compare(compare::Args),
    Cost(cost::Args),
    Fig(figures::FigArgs),
    Io(io::Args),
    List(figures::ListArgs),
    Map(map::Args),
    Paper(figures::PaperArgs),
    Plain(plain::Args),
    Processes(processes::Args),
    Region(region::Args),
    Run(run::Args),
    Small(small::Args),
    Sqlite(sqlite::Args),
    Tx(tx::Args),
    #[command(hide = true)]
    AppWork(apps::WorkArgs),
    #[command(hide = true)]
    Calls(calls::Args),
    #[command(hide = true)]
    CostWork(cost::WorkArgs),
    #[command(hide = true)]
    IoWork(io::WorkArgs),
    #[command(hide = true)]
    MapWork(map::WorkArgs),
    #[command(hide = true)]
    ProcessWork(processes::WorkArgs),
    #[command(hide = true)]
    SmallWork(small::WorkArgs),
}

/// Dispatches to the subcommand.
pub fn main(args: Args) -> Result<i32, Failure> {
    let done = match args.what {
        What::AppWork(args) => apps::work_main(&args),
        What::All(args) => return figures::all(&args),
        What::Compare(args) => return compare::main(&args),
        What::Cost(args) => cost::main(&args),
        What::CostWork(args) => cost::work_main(&args),
        What::Fig(args) => return figures::fig(&args),
        What::Io(args) => return io::main(&args),
        What::List(args) => figures::list(&args),
        What::Paper(args) => return figures::paper(&args),
        What::IoWork(args) => io::work_main(&args),
        What::Map(args) => map::main(&args),
        What::MapWork(args) => map::work_main(&args),
        What::Plain(args) => plain::main(&args),
        What::Processes(args) => processes::main(&args),
        What::ProcessWork(args) => processes::work_main(&args),
        What::Run(args) => return run::main(&args),
        What::Region(args) => region::main(&args),
        What::Calls(args) => calls::main(&args),
        What::Small(args) => small::main(&args),
        What::SmallWork(args) => small::work_main(&args),
        What::Sqlite(args) => sqlite::main(&args),
        What::Tx(args) => tx::main(&args),
    };
    done.map(|()| 0).map_err(|error| Failure::new(FAILED, error))
}
