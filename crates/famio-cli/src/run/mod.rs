//! `famio run`: checks that the program can be protected, sets the environment, and becomes the program.

mod checked;
mod dry_run;
pub mod execute;
pub mod filter;
mod protect;
pub mod record;
mod required;

pub use checked::check;
pub use protect::Protect;

use crate::failure::Failure;
use crate::settings::{APPLICATION, AsyncIoName};
use famio::journal::JournalId;
use famio::posix::run_record;
use std::ffi::OsString;
use std::path::Path;

/// Run a program with atomic files
///
/// The program is not changed. Files that match a glob become atomic files: everything written between two SYNCs
/// (fsync, fdatasync) is durable as a whole, or gone as a whole, whatever kills the program. The process id, signals
/// and the exit status are the program's own.
#[derive(clap::Args)]
#[command(after_help = HELP, override_usage = "famio run [OPTIONS] -- <CMD>...")]
pub struct Args {
    #[command(flatten)]
    protect: Protect,
    /// Run nothing: show what each glob means and matches now, and all settings with their sources. Exit status 1 if
    /// a glob matches no file
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: print a JSON object (docs/json.md)
    #[arg(long, requires = "dry_run")]
    json: bool,
    /// When the program has ended, report on stderr which files were selected by which glob, and all settings
    #[arg(long)]
    verbose: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "dry_run", value_name = "CMD")]
    command: Vec<OsString>,
}

const HELP: &str = "\
Settings also come from the environment (FAMIO_ATOMIC, one glob per line, FAMIO_POOL, FAMIO_SHM, FAMIO_DURABILITY, \
FAMIO_DOMAIN, FAMIO_POLICY, FAMIO_LOCKS, FAMIO_JOURNAL, FAMIO_ON_CLOSE, FAMIO_DEFER_CLOSE, FAMIO_JOURNAL_LIMIT, FAMIO_MAP_MEMORY, FAMIO_TIER, FAMIO_WRITE_BACK, FAMIO_APPLICATION, FAMIO_POOL_WEIGHT, FAMIO_ON_KILL, FAMIO_ATOMICITY, FAMIO_GROUPS, FAMIO_ASYNC_IO, FAMIO_REQUIRE, FAMIO_LOG, \
FAMIO_LOG_LEVEL) \
and from famio.toml in this folder or one above:

  atomic = [\"app.db\", \"data/**/*.db\"]     # paths from famio.toml's folder on
  pool = \"/mnt/pmem/pool\"
  shm = \"/dev/shm\"                         # containers that share a file need one folder
  durability = \"power\"
  # domain = \"emulated\"                 # memory as persistent memory, to measure and to test
  policy = \"auto\"
  locks = \"auto\"
  journal = \"auto\"                      # or \"always\"
  on-close = \"commit\"                  # or \"leave\": never-synced new files are the kernel's
  defer-close = \"never\"                # or \"auto\": files that are closed again and again stay open
  journal-limit = \"4GiB\"
  tier = \"auto\"                         # or \"off\": any pool as one on a disk
  write-back = \"30:10\"                  # percent of the limit
  application = \"web\"                  # in a pool with a size
  pool-weight = 100
  map-memory = \"6GiB\"                # larger files are mapped by private pages
  on-kill = \"rollback\"                  # or \"keep\", or globs of files that keep
  atomicity = \"epoch\"                 # or \"write\", or globs of files of which each call is atomic
  async-io = \"refuse\"
  require = true
  log = \"/var/log/famio.log\"             # or \"stderr\", \"syslog\", \"journald\"
  log-level = \"warning\"
  [[group]]                             # files that are committed together, after all other keys
  atomic = [\"db/*.ibd\", \"db/redo*\"]

FAMIO_PRELOAD names the library to load, libfamio_preload.so, if it is neither beside the command nor in ../lib/famio.

Reduced durability is always reported on stderr. A message that can't be delivered elsewhere goes to stderr.

The command line wins over the environment, the environment over famio.toml; globs of all three add up. --no-config \
ignores famio.toml; --dry-run and --verbose name the file that was read.

At the end of the run Famio reports on stderr which globs selected no written file, which files were written and \
synced though no glob selects them (if no selected file was synced), and which programs of the run started without Famio: \
statically linked, set-user-id, or with an environment without LD_PRELOAD. See --dry-run, --verbose, --require.

Exit status: the program's own; 125 if Famio refuses or fails (bad settings, a program that can't be protected); \
126 if the program can't be executed; 127 if there is no such program.

Examples:
  famio run --atomic app.db -- sqlite3 app.db
  famio run --atomic 'data/{app,log}.db' --dry-run
  famio run --atomic 'data/**/*.db' --pool /mnt/pmem/pool -- ./server --port 80
  famio run --atomic app.db --durability process -- ./import   # no power cuts";

/// A name for a run that has none: its program's, and a random number.
fn application(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let number = JournalId::random().map_or_else(|_| std::process::id().to_string(), |id| id.to_string());
    format!("{name}-{}", number.get(..8).unwrap_or(&number))
}

/// Runs the program; returns only on failure.
pub fn main(args: Args) -> Result<i32, Failure> {
    let checked = check(&args.protect, &args.command)?;
    let Some(path) = checked.path.as_deref().filter(|_| !args.dry_run) else {
        return dry_run::show(&checked, checked.path.as_deref(), args.json);
    };
    let require = checked.layer.require == Some(true);
    if require {
        required::check(&checked).map_err(Failure::refused)?;
    }
    if checked.layer.async_io != Some(AsyncIoName::Allow) {
        filter::install().map_err(Failure::refused)?;
    }
    let mut variables = checked.layer.variables();
    let unwatched = std::env::var_os(run_record::VARIABLE).is_some_and(|value| value == record::NONE);
    let record = if unwatched {
        None
    } else {
        match record::make(&checked.layer, &checked.origins, args.verbose) {
            Ok(path) => Some(path),
            Err(error) if require => {
                return Err(Failure::refused(format!("--require: the run can't be watched: {error}")));
            }
            Err(_) => None,
        }
    };
    let value = record.as_ref().map_or(record::NONE.into(), |path| path.clone().into_os_string());
    variables.push((run_record::VARIABLE, value));
    if checked.layer.application.is_none() && checked.layer.pool.is_some() {
        // All processes of the run are one application; a run within it finds the name in its environment.
        variables.push((APPLICATION, application(path).into()));
    }
    let failure = execute::become_program(path, &args.command, &variables, &checked.library);
    record.iter().for_each(|path| record::remove(path));
    Err(failure)
}
