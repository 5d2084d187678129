//! `famio backup` and `famio restore`: a copy of a file as of its last SYNC, and back.

use crate::failure::{FAILED, Failure};
use crate::ps::command;
use crate::settings::Options;
use crate::text::{bytes, name, printable};
use famio::recovery::{self, Backup};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The file is in use.
const IN_USE: i32 = 4;

/// Copy an atomic file as of its last SYNC, while programs write to it
///
/// The copy holds what the last SYNC committed and nothing later. It is an ordinary file, durable when the command ends.
/// It gets its name when it is complete: an interrupted copy leaves nothing. On xfs and btrfs it shares the file's
/// blocks, which takes no time. A file that a crash left is copied as recovery would leave it, and is not changed.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The copy: a name, or a folder
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Replace a regular file that has the copy's name; not the file itself, nor a file that a process writes
    #[arg(long)]
    force: bool,
    /// Print a JSON object (docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

const HELP: &str = "\
Each file is copied by itself: copies of two files show two moments. On a disk, writers do not wait for the copy. With a \
journal in place (persistent memory or tmpfs), the next fsync waits for the copy, for two seconds at most, and writers \
wait behind it. If the program commits so often that no copy of a single SYNC succeeds within some seconds, the command \
fails with exit status 6 and leaves nothing.

Exit status: 0; 1 if the copy could not be made; 2 bad usage; 3 if file and journal contradict each other, or the journal \
can't be read; 4 if DEST is an atomic file, or a process writes it, or has opened it for writing just before it was \
replaced, as the message says then; 6 if the program committed too often.

Examples:
  famio backup app.db /backup/app.db
  famio backup --force app.db /backup/
  famio restore /backup/app.db app.db";

/// Replace an atomic file by a copy
///
/// One rename gives the file the copy's content: a crash leaves the old file with its journal, or the new file.
/// Nothing changes before the copy is whole. The old content is gone then, with what a crash left of it in its
/// journal. Owner, group and mode are those of the old file, as far as you may give them; a symbolic link stays, and
/// the file that it leads to is replaced. Stop programs that use the file first.
#[derive(clap::Args)]
#[command(after_help = RESTORE_HELP)]
pub struct RestoreArgs {
    /// The copy
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// The file to be replaced, or made
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print a JSON object (docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

const RESTORE_HELP: &str = "\
If a process has the file open, the command names it and does nothing. Programs that open the file at that moment wait; \
those under Famio then have the new file. If another program has got the old one, the command names it, and its exit \
status is 4, although the file was restored. If the kernel grants no lease on the file (to users \
other than its owner and root; on some file systems), the command sees only processes that /proc shows to you.

Exit status: 0; 1 if it failed; 2 bad usage; 3 if the copy contradicts its journal; 4 if a process has the file open, \
or has opened the old file just before it was replaced, as the message says then.

Examples:
  famio restore /backup/app.db app.db";

/// What was copied, as JSON shows it.
#[derive(Serialize)]
struct Entry {
    file: String,
    copy: String,
    epoch: u64,
    bytes: u64,
    /// What a killed process had written since that commit is in it, too.
    kept: bool,
    reflink: bool,
    error: Option<String>,
}

impl Entry {
    fn new(file: &Path, copy: &Path, done: Backup) -> Self {
        let (epoch, bytes, kept, reflink) = (done.epoch, done.bytes, done.is_kept, done.is_reflink);
        Self { file: shown(file), copy: shown(copy), epoch, bytes, kept, reflink, error: None }
    }

    /// Nothing was copied.
    fn failed(file: &Path, copy: &Path, error: &str) -> Self {
        let error = Some(error.into());
        Self { file: shown(file), copy: shown(copy), epoch: 0, bytes: 0, kept: false, reflink: false, error }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// With `--json`, a failure is a JSON value, too, beside the message on stderr.
fn say_failure(json: bool, file: &Path, copy: &Path, failure: Failure) -> Failure {
    if !json {
        return failure;
    }
    match crate::out::json(&Entry::failed(file, copy, &failure.message)) {
        Ok(()) => failure,
        Err(unsaid) => unsaid,
    }
}

/// Makes a copy.
pub fn main(args: Args) -> Result<i32, Failure> {
    let (json, file, dest) = (args.json, args.file.clone(), args.dest.clone());
    make(args).map_err(|failure| say_failure(json, &file, &dest, failure))
}

fn make(args: Args) -> Result<i32, Failure> {
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let dest = inside(&args.dest, &args.file)?;
    let done =
        recovery::backup(&args.file, &dest, args.force, &settings, &|holder| say_who_is_awaited(&args.file, holder))
            .map_err(|error| failure(&error, "; --force replaces it"))?;
    let entry = Entry::new(&args.file, &dest, done);
    let more = if done.epoch > 0 { format!(", as of epoch {}", done.epoch) } else { String::new() };
    say(&entry, args.json, &entry.copy, &more)
}

/// Replaces a file by a copy.
pub fn restore(args: RestoreArgs) -> Result<i32, Failure> {
    let (json, file, copy) = (args.json, args.file.clone(), args.backup.clone());
    replace(args).map_err(|failure| say_failure(json, &file, &copy, failure))
}

fn replace(args: RestoreArgs) -> Result<i32, Failure> {
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let file = inside(&args.file, &args.backup)?;
    let waits = |holder| say_who_is_awaited(&args.backup, holder);
    let done = recovery::restore(&args.backup, &file, &settings, &waits).map_err(|error| failure(&error, ""))?;
    if let Some(journal) = done.unread_journal {
        let journal = journal.display().to_string();
        eprintln!(
            "famio: {}: a journal of the old file, which could not be read; removed with it",
            printable(&journal)
        );
    }
    let entry = Entry::new(&done.file, &args.backup, done.backup);
    say(&entry, args.json, &entry.file, ", restored")
}

/// Reports the process that keeps its write lease; it may be stopped.
fn say_who_is_awaited(file: &Path, holder: Option<u32>) {
    let who = holder.map_or("another process".into(), |id| format!("process {id} ({})", printable(&command(id))));
    let most = std::fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap_or_default();
    let most =
        most.trim().parse::<u32>().map_or(String::new(), |seconds| format!("; the kernel ends that after {seconds} s"));
    eprintln!(
        "famio: {}: waiting for {who}, which has a write lease on the file and may be stopped{most}",
        printable(&file.display().to_string())
    );
}

fn failure(error: &famio::Error, hint: &str) -> Failure {
    let status = match error.errno() {
        libc::EAGAIN => 6,
        libc::EIO => 3,
        libc::EBUSY => IN_USE,
        _ => FAILED,
    };
    let hint = if error.errno() == libc::EEXIST { hint } else { "" };
    Failure::new(status, printable(&format!("{error}{hint}")))
}

/// If the destination is a folder, the copy gets the file's name in it.
fn inside(dest: &Path, file: &Path) -> Result<PathBuf, Failure> {
    match file.file_name() {
        Some(own) if dest.is_dir() => Ok(dest.join(own)),
        _ if dest.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            Err(Failure::new(FAILED, format!("{}: there is no such folder; make it first", name(dest))))
        }
        _ => Ok(dest.to_path_buf()),
    }
}

/// `made`: the file that was written. `more`: additional text about it.
fn say(entry: &Entry, json: bool, made: &str, more: &str) -> Result<i32, Failure> {
    if json {
        crate::out::json(entry)?;
    } else {
        let how = if entry.reflink { " (shared blocks)" } else { "" };
        let kept = if entry.kept { ", with what a killed process had written since (on-kill=keep)" } else { "" };
        println!("{}: {}{more}{kept}{how}", name(Path::new(made)), bytes(entry.bytes));
    }
    Ok(0)
}
