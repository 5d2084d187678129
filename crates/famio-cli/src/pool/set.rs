//! `famio pool`: the size of a pool.

use crate::failure::{FAILED, Failure};
use crate::settings::Size;
use crate::text::{bytes, name, whole};
use famio::journal::set_pool_size;
use std::path::PathBuf;

/// Give a pool a size, which the applications that use it share
///
/// The size applies to all users of the pool. It is stored in the pool, in the file famio.pool.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Set(Set),
}

/// Set the size of a pool, or take it away
#[derive(clap::Args)]
struct Set {
    /// The pool's folder
    #[arg(value_name = "POOL")]
    pool: PathBuf,
    /// What all journals in it may take together, for example 4GiB; at least 16MiB
    #[arg(long, value_name = "SIZE", required_unless_present = "no_size", conflicts_with = "no_size")]
    size: Option<Size>,
    /// Take the size away: each journal has only its own limit (--journal-limit)
    #[arg(long)]
    no_size: bool,
}

const HELP: &str = "\
Each application that has journals in the pool has a share of its size, by its weight (famio run --pool-weight). It may \
use what others leave free, and gives that back when they need it. famio status POOL shows who has what.

Journals that are in use when a pool gets its first size count as left behind until their files are closed.

Examples:
  famio pool set /mnt/pmem/pool --size 4GiB
  famio status /mnt/pmem/pool
  famio pool set /mnt/pmem/pool --no-size";

/// Does it.
pub fn main(args: Args) -> Result<i32, Failure> {
    let Action::Set(Set { pool, size, .. }) = args.action;
    let size = size.map(|Size(bytes)| bytes);
    set_pool_size(&whole(&pool), size).map_err(|error| Failure::new(FAILED, error))?;
    match size {
        Some(size) => println!("{}: {}", name(&pool), bytes(size)),
        None => println!("{}: no size", name(&pool)),
    }
    Ok(0)
}
