//! `famio backup` and `famio restore`: a copy of a file as of its last SYNC, and back.

use crate::failure::{FAILED, Failure};
use crate::ps::command;
use crate::settings::Options;
use crate::text::{bytes, printable};
use famio::recovery::{self, Backup, Outcome, Use};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The file is in use.
const IN_USE: i32 = 4;

/// Copy an atomic file as of its last SYNC, while programs write to it
///
/// What no SYNC covers yet is not in the copy. The copy is an ordinary file, durable when the command ends, and has its name only when it
/// is whole. Where the file system can (xfs, btrfs) it shares the file's blocks and takes no time. A file that a crash left is copied as
/// it would be after its recovery, and stays as it is.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The copy: a name, or a folder
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Replace a file that has the copy's name
    #[arg(long)]
    force: bool,
    /// For programs: an object (docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

const HELP: &str = "\
One file at a time is copied: of two files that belong together the copies are of two moments. Writers do not wait for the copy of a file \
on a disk. Where the journal is one in place (files on persistent memory or tmpfs), the next fsync waits for the copy, and the writers with \
it, for two seconds at most. If no copy as of one SYNC could be made in some seconds, the command fails with exit status 6, and leaves \
nothing.

Exit status: 0; 1 if the copy could not be made; 2 bad usage; 3 if file and journal contradict each other; 6 if too much was written.

Examples:
  famio backup app.db /backup/app.db
  famio backup --force app.db /backup/
  famio restore /backup/app.db app.db";

/// Put a copy back in the place of an atomic file
///
/// The file gets the copy's content, by one rename: a crash leaves the old file or the new one. What was in the old file, and what a crash
/// left of it in its journal, is gone. Programs that use the file have to be stopped before.
#[derive(clap::Args)]
#[command(after_help = RESTORE_HELP)]
pub struct RestoreArgs {
    /// The copy
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// The file to be replaced, or made
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// For programs: an object (docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

const RESTORE_HELP: &str = "\
Exit status: 0; 1 if it failed; 2 bad usage; 4 if a process uses the file.

Examples:
  famio restore /backup/app.db app.db";

/// What was copied, as JSON shows it.
#[derive(Serialize)]
struct Entry {
    file: String,
    copy: String,
    epoch: u64,
    bytes: u64,
    reflink: bool,
}

impl Entry {
    fn new(file: &Path, copy: &Path, done: Backup) -> Self {
        let name = |path: &Path| path.display().to_string();
        Self { file: name(file), copy: name(copy), epoch: done.epoch, bytes: done.bytes, reflink: done.is_reflink }
    }
}

/// Makes a copy.
pub fn main(args: Args) -> Result<i32, Failure> {
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let dest = inside(&args.dest, &args.file);
    let done =
        recovery::backup(&args.file, &dest, args.force, &settings, &|holder| say_who_is_awaited(&args.file, holder))
            .map_err(|error| failure(&error, "; --force replaces it"))?;
    let entry = Entry::new(&args.file, &dest, done);
    let more = if done.epoch > 0 { format!(", as of epoch {}", done.epoch) } else { String::new() };
    say(&entry, args.json, &entry.copy, &more)
}

/// Puts one back.
pub fn restore(args: RestoreArgs) -> Result<i32, Failure> {
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let file = inside(&args.file, &args.backup);
    if std::fs::symlink_metadata(&file).is_ok() {
        drop_journal(&file, &settings)?;
    }
    let waits = |holder| say_who_is_awaited(&args.backup, holder);
    let done = recovery::backup(&args.backup, &file, true, &settings, &waits).map_err(|error| failure(&error, ""))?;
    let entry = Entry::new(&file, &args.backup, done);
    say(&entry, args.json, &entry.file, ", restored")
}

/// What a crash left of the old file goes with it: a journal without its file would be an orphan.
fn drop_journal(file: &Path, settings: &famio::Settings) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(FAILED, error);
    let in_use = |file: &Path| Failure::new(IN_USE, format!("{}: a process uses it; stop that first", file.display()));
    let found = recovery::survey(file, settings).map_err(|error| failed(&error))?;
    if found.iter().any(|found| found.in_use) {
        return Err(in_use(file));
    }
    let options = recovery::Options { on_conflict: Use::File, ..recovery::Options::default() };
    for report in recovery::recover_path(file, settings, &options, &recovery::Silent).map_err(|error| failed(&error))? {
        match report.outcome {
            Outcome::InUse(_) => return Err(in_use(file)),
            Outcome::Failed(error) | Outcome::Unexamined(error) => return Err(failed(&error)),
            Outcome::Conflict(why) => return Err(failed(&why)),
            _ => {}
        }
    }
    Ok(())
}

/// A process that does not give up its write lease may be stopped.
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
        _ => FAILED,
    };
    Failure::new(status, format!("{error}{}", if error.errno() == libc::EEXIST { hint } else { "" }))
}

/// In a folder the copy has the file's name.
fn inside(dest: &Path, file: &Path) -> PathBuf {
    match file.file_name() {
        Some(name) if dest.is_dir() => dest.join(name),
        _ => dest.to_path_buf(),
    }
}

/// `made`: the file that there is now. `more`: what is said of it.
fn say(entry: &Entry, json: bool, made: &str, more: &str) -> Result<i32, Failure> {
    if json {
        crate::out::json(entry)?;
    } else {
        let how = if entry.reflink { " (shared blocks)" } else { "" };
        println!("{}: {}{more}{how}", printable(made), bytes(entry.bytes));
    }
    Ok(0)
}
