//! `famio run`: checks that the program can be protected, sets the environment, and becomes the program.

pub mod elf;
pub mod execute;
pub mod filter;
pub mod preload;
pub mod program;
pub mod search;

use crate::failure::Failure;
use crate::settings::{self, AsyncIoName, Layer, Options, PolicyName, Size};
use std::ffi::OsString;
use std::path::PathBuf;

/// Run a program with atomic files
///
/// The program is not changed. Files that match a glob become atomic files: everything written between two SYNCs
/// (fsync, fdatasync) is durable as a whole, or gone as a whole, whatever kills the program. The process id, signals and
/// the exit status are the program's own.
#[derive(clap::Args)]
#[command(after_help = HELP, override_usage = "famio run [OPTIONS] -- <CMD>...")]
pub struct Args {
    #[command(flatten)]
    protect: Protect,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What is protected and how: the options of every command that runs a program.
#[derive(clap::Args)]
pub struct Protect {
    /// Files to protect, may be given more than once: a name, which counts in every folder, or a path from the current
    /// folder on (./app.db: only here); with * ? [..] and, for any number of folders, **
    #[arg(long, value_name = "GLOB")]
    atomic: Vec<OsString>,
    #[command(flatten)]
    pub options: Options,
    /// Where a write goes, for files whose journal is in place [default: auto]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|undo|redo|alternate")]
    policy: Option<PolicyName>,
    /// How far the journal of one file may grow, for example 512MiB [default: 4GiB]
    #[arg(long, value_name = "SIZE")]
    journal_limit: Option<Size>,
    /// Whether the program may set up io_uring or kernel AIO (libaio), whose requests would go past Famio [default:
    /// refuse, so that it falls back to ordinary calls]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "refuse|allow")]
    async_io: Option<AsyncIoName>,
    /// A selected file that can't be protected, or a glob that selects nothing, is an error and not a notice
    #[arg(long)]
    require: bool,
}

const HELP: &str = "\
Settings also come from the environment (FAMIO_ATOMIC, one glob per line, FAMIO_POOL, FAMIO_DURABILITY,
FAMIO_DOMAIN, FAMIO_POLICY, FAMIO_JOURNAL_LIMIT, FAMIO_ASYNC_IO, FAMIO_REQUIRE) and from famio.toml in this folder
or one above:

  atomic = [\"app.db\", \"data/**/*.db\"]     # paths from famio.toml's folder on
  pool = \"/mnt/pmem/pool\"
  durability = \"power\"
  policy = \"auto\"
  journal-limit = \"4GiB\"
  async-io = \"refuse\"
  require = true

The command line wins over the environment, the environment over famio.toml; globs of all three add up.

Exit status: the program's own; 125 if Famio refuses or fails (bad settings, a program that can't be protected);
126 if the program can't be executed; 127 if there is no such program.

Examples:
  famio run --atomic app.db -- sqlite3 app.db
  famio run --atomic 'data/**/*.db' --pool /mnt/pmem/pool -- ./server --port 80
  famio run --atomic app.db --durability process -- ./import   # safe from kills, not from power cuts";

/// A program that may be run: every reason to refuse it was looked for.
pub struct Checked {
    /// The settings of all sources.
    pub layer: Layer,
    library: PathBuf,
    path: PathBuf,
}

/// Runs the program; comes back only on failure.
pub fn main(args: Args) -> Result<i32, Failure> {
    let checked = check(&args.protect, &args.command)?;
    if checked.layer.async_io != Some(AsyncIoName::Allow) {
        filter::install().map_err(Failure::refused)?;
    }
    let variables = checked.layer.variables();
    Err(execute::become_program(&checked.path, &args.command, &variables, &checked.library))
}

/// Gathers the settings, and refuses what would run without protection.
pub fn check(protect: &Protect, command: &[OsString]) -> Result<Checked, Failure> {
    let layer = gather(protect).map_err(Failure::refused)?;
    if layer.atomic.is_empty() {
        return Err(Failure::refused(
            "nothing to protect: give --atomic GLOB, or set FAMIO_ATOMIC, or 'atomic' in famio.toml",
        ));
    }
    if let Some(pool) = &layer.pool {
        crate::pool::check(pool).map_err(Failure::refused)?;
    }
    let library = preload::find().map_err(Failure::refused)?;
    let name = command.first().ok_or_else(|| Failure::refused("no program given"))?;
    let path = search::find(name)?;
    let main = program::check(&path)?;
    if std::fs::File::open(&main).is_ok_and(|file| elf::is_go(&file)) {
        eprintln!(
            "famio: {}: a Go program, which makes its system calls itself: only files that C libraries in it use are \
             protected; famio doctor says more",
            path.display()
        );
    }
    Ok(Checked { layer, library, path })
}

/// The settings of all sources.
fn gather(protect: &Protect) -> Result<Layer, String> {
    let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
    let mut top = protect.options.layer()?;
    for glob in &protect.atomic {
        top.atomic.push(settings::absolute(glob, &here).map_err(|error| format!("--atomic: {error}"))?);
    }
    top.policy = protect.policy;
    top.journal_limit = protect.journal_limit;
    top.async_io = protect.async_io;
    top.require = protect.require.then_some(true);
    settings::gather(top, protect.options.config.as_deref())
}
