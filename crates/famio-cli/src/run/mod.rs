//! `famio run`: checks that the program can be protected, sets the environment, and becomes the program.

mod dry_run;
pub mod elf;
pub mod execute;
pub mod filter;
pub mod matches;
pub mod preload;
pub mod program;
pub mod record;
mod required;
pub mod search;

use crate::failure::Failure;
use crate::settings::{
    self, AsyncIoName, ByGlob, JournalName, Layer, LocksName, LogLevelName, LogTarget, OnCloseName, Options, Origins,
    PolicyName, Size, WriteBack,
};
use famio::posix::run_record;
use famio::{Atomicity, OnKill};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

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

/// What is protected and how: the options of every command that runs a program.
#[derive(clap::Args)]
pub struct Protect {
    /// Files to protect; may be repeated: a name, which counts in every folder, or a path from the current folder on
    /// (./app.db: only here); with * ? [..] {a,b} and, for any number of folders, **. A folder means everything below
    /// it, ~ the home folder; a backslash quotes the next character
    #[arg(long, value_name = "GLOB")]
    atomic: Vec<OsString>,
    #[command(flatten)]
    pub options: Options,
    /// Where a write goes, for files with a journal in place [default: auto]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|undo|redo|alternate")]
    policy: Option<PolicyName>,
    /// Where the program's locks on a file (fcntl, flock) are kept: auto: in memory while no other process can have
    /// the file open, else in the kernel; kernel: always in the kernel [default: auto]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|kernel")]
    locks: Option<LocksName>,
    /// Which files have a journal: auto: files that need one, not those that are new or only grow; always: all that
    /// are changed [default: auto]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|always")]
    journal: Option<JournalName>,
    /// What the last close of a file does with writes that no SYNC covers: commit: make them durable; leave: leave a
    /// new file that was never synced to the kernel, as a plain close does; it is atomic from its first SYNC on
    /// [default: commit]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "commit|leave")]
    on_close: Option<OnCloseName>,
    /// Largest size of the journal of one file, for example 512MiB [default: 4GiB]
    #[arg(long, value_name = "SIZE")]
    journal_limit: Option<Size>,
    /// Part of the journal of a tiered file (pool in memory, file on a disk) that is a write cache: the percentage from
    /// which it is written back, and down to which [default: 30:10]
    #[arg(long, value_name = "FROM:TO")]
    write_back: Option<WriteBack>,
    /// Largest size of a file that is copied to memory when it is mapped, for example 1GiB. Maps of a larger file take
    /// memory only for pages with stores, but one process uses it [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE")]
    map_memory: Option<Size>,
    /// What happens to writes that no SYNC covers if the program is killed: rollback: they are gone; keep: they stay,
    /// as in a plain file; a glob, may be repeated: they stay in these files [default: rollback]
    #[arg(long, value_name = "rollback|keep|GLOB")]
    on_kill: Vec<ByGlob<OnKill>>,
    /// What is atomic by itself: epoch: all writes between two SYNCs; write: each call that changes a file, which is
    /// durable when it returns; a glob, may be repeated: each call on these files [default: epoch]
    #[arg(long, value_name = "epoch|write|GLOB")]
    atomicity: Vec<ByGlob<Atomicity>>,
    /// Whether the program may set up io_uring or kernel AIO (libaio), whose requests bypass Famio [default: refuse,
    /// so that it falls back to ordinary calls]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "refuse|allow")]
    async_io: Option<AsyncIoName>,
    /// Protect or fail: exit status 125 if a glob selects no file that is written, if no synced file is selected, if
    /// a program of the run starts without Famio, or if a selected file can't be protected
    #[arg(long)]
    require: bool,
    /// Where Famio's own messages go, instead of the program's stderr: syslog, journald, or a file to append to
    #[arg(long, value_name = "stderr|syslog|journald|FILE")]
    log: Option<OsString>,
    /// Which messages Famio writes [default: warning]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "off|error|warning|info")]
    log_level: Option<LogLevelName>,
    /// Only errors: as --log-level error
    #[arg(long, short, conflicts_with = "log_level")]
    quiet: bool,
}

const HELP: &str = "\
Settings follow_up come from the environment (FAMIO_ATOMIC, one glob per line, FAMIO_POOL, FAMIO_SHM, FAMIO_DURABILITY, \
FAMIO_DOMAIN, FAMIO_POLICY, FAMIO_LOCKS, FAMIO_JOURNAL, FAMIO_ON_CLOSE, FAMIO_JOURNAL_LIMIT, FAMIO_MAP_MEMORY, FAMIO_TIER, FAMIO_WRITE_BACK, FAMIO_ON_KILL, FAMIO_ATOMICITY, FAMIO_ASYNC_IO, FAMIO_REQUIRE, FAMIO_LOG, \
FAMIO_LOG_LEVEL) \
and from famio.toml in this folder or one above:

  atomic = [\"app.db\", \"data/**/*.db\"]     # paths from famio.toml's folder on
  pool = \"/mnt/pmem/pool\"
  shm = \"/dev/shm\"                         # containers that share a file need one folder
  durability = \"power\"
  policy = \"auto\"
  locks = \"auto\"
  journal = \"auto\"                      # or \"always\"
  on-close = \"commit\"                  # or \"leave\": never-synced new files are the kernel's
  journal-limit = \"4GiB\"
  tier = \"auto\"                         # or \"off\": a pool in memory as one on a disk
  write-back = \"30:10\"                  # percent of the limit
  map-memory = \"6GiB\"                # larger files are mapped by private pages
  on-kill = \"rollback\"                  # or \"keep\", or globs of files that keep
  atomicity = \"epoch\"                 # or \"write\", or globs of files of which each call is atomic
  async-io = \"refuse\"
  require = true
  log = \"/var/log/famio.log\"             # or \"stderr\", \"syslog\", \"journald\"
  log-level = \"warning\"

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

/// A program that may be run: no reason to refuse it was found.
pub struct Checked {
    /// The settings of all sources.
    pub layer: Layer,
    /// The sources of the settings.
    pub origins: Origins,
    library: PathBuf,
    path: Option<PathBuf>,
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
    let failure = execute::become_program(path, &args.command, &variables, &checked.library);
    record.iter().for_each(|path| record::remove(path));
    Err(failure)
}

/// Gathers the settings, and refuses a program that would run without protection. Without a command, checks only the
/// settings.
pub fn check(protect: &Protect, command: &[OsString]) -> Result<Checked, Failure> {
    let layers = gather(protect).map_err(Failure::refused)?;
    let (layer, origins) = (settings::merge(&layers), Origins::of(&layers));
    if layer.atomic.is_empty() {
        return Err(Failure::refused(
            "nothing to protect: give --atomic GLOB, or set FAMIO_ATOMIC, or 'atomic' in famio.toml",
        ));
    }
    if let Some(pool) = &layer.pool {
        crate::pool::check(pool).map_err(Failure::refused)?;
    }
    if let Some(shm) = &layer.shm {
        famio::sys::shm::check(shm).map_err(|error| Failure::refused(error.to_string()))?;
    }
    if let Some(log) = &layer.log {
        log.check().map_err(Failure::refused)?;
    }
    let library = preload::find().map_err(Failure::refused)?;
    let Some(name) = command.first() else { return Ok(Checked { layer, origins, library, path: None }) };
    let path = search::find(name).map_err(|failure| expanded(protect, name, failure))?;
    let main = program::check(&path)?;
    if crate::look::open(&main).is_ok_and(|file| elf::is_go(&file)) {
        eprintln!(
            "famio: {}: a Go program, which makes its system calls itself: only files that C libraries in it use are \
             protected; famio doctor says more",
            path.display()
        );
    }
    Ok(Checked { layer, origins, library, path: Some(path) })
}

/// Adds a hint to the failure if the shell has expanded a glob without quotes: the second file is then taken for the
/// program.
fn expanded(protect: &Protect, name: &OsStr, failure: Failure) -> Failure {
    let Some(last) = protect.atomic.last().map(Path::new) else { return failure };
    let name = Path::new(name);
    if !last.is_file() || !name.is_file() || last.parent() != name.parent() || last == name {
        return failure;
    }
    let message = format!(
        "{}; it looks as if the shell had expanded a glob: {} went to --atomic, and the next file was taken for the program: \
         put the glob in quotes, and -- before the program",
        failure.message,
        last.display()
    );
    Failure::new(failure.status, message)
}

/// The settings of all sources, the strongest first.
fn gather(protect: &Protect) -> Result<Vec<(settings::Source, Layer)>, String> {
    let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
    let mut top = protect.options.layer()?;
    for glob in &protect.atomic {
        top.atomic.push(settings::absolute(glob, &here).map_err(|error| format!("--atomic: {error}"))?);
        top.given.push(glob.to_string_lossy().into_owned());
    }
    top.policy = protect.policy;
    top.locks = protect.locks;
    top.journal = protect.journal;
    top.on_close = protect.on_close;
    top.journal_limit = protect.journal_limit;
    top.map_memory = protect.map_memory;
    top.write_back = protect.write_back;
    top.on_kill = ByGlob::all(&protect.on_kill)?;
    top.atomicity = ByGlob::all(&protect.atomicity)?;
    top.async_io = protect.async_io;
    top.require = protect.require.then_some(true);
    let log = protect.log.as_ref().map(|log| LogTarget::of(log, &here));
    top.log = log.transpose().map_err(|error| format!("--log: {error}"))?;
    top.log_level = protect.log_level.or(protect.quiet.then_some(LogLevelName::Error));
    settings::layers(top, protect.options.config())
}
