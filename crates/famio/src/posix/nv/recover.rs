//! `nvrecover`: brings files to their last SYNC, for programs that read them without this library.

use crate::error::{Error, Result};
use crate::posix::life::process;
use crate::recovery::{Options, Outcome, Report, Silent, Use, recover_path};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Reports only; changes nothing.
pub const DRY_RUN: i32 = 1;
/// If both the file and its journal have changed, believe the journal.
pub const USE_JOURNAL: i32 = 2;
/// If both the file and its journal have changed, believe the file.
pub const USE_FILE: i32 = 4;

/// Recovers a file, a pool, or everything below a folder. Returns how many files were recovered, or would be.
///
/// # Errors
/// `EINVAL`: unknown or contradictory flags. `EBUSY`: a file is in use. `EIO`: file and journal contradict each
/// other, or the journal cannot be read. Others: the system's. An error of one file does not keep the others from
/// being recovered.
pub(super) fn recover(path: &CStr, flags: i32) -> Result<usize> {
    let on_conflict = match flags & (USE_JOURNAL | USE_FILE) {
        0 => Use::Refuse,
        USE_JOURNAL => Use::Journal,
        USE_FILE => Use::File,
        _ => return Err(Error::new(libc::EINVAL)),
    };
    if flags & !(DRY_RUN | USE_JOURNAL | USE_FILE) != 0 {
        return Err(Error::new(libc::EINVAL));
    }
    let Some(config) = process::config() else { return Err(Error::new(libc::ESHUTDOWN)) };
    let options = Options { dry_run: flags & DRY_RUN != 0, on_conflict, threads: 0 };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let mut recovered = 0;
    let mut result = Ok(());
    for report in recover_path(path, &config.settings, &options, &Silent)? {
        match one(report) {
            Ok(was) => recovered += usize::from(was),
            Err(error) if result.is_ok() => result = Err(error),
            Err(_) => {}
        }
    }
    result.map(|()| recovered)
}

fn one(report: Report) -> Result<bool> {
    let Report { journal, file, outcome, .. } = report;
    let what = file.unwrap_or(journal);
    match outcome {
        Outcome::NothingToDo | Outcome::Clean => Ok(false),
        Outcome::Recovered | Outcome::Kept | Outcome::Discarded => Ok(true),
        Outcome::Conflict(what) => Err(Error::with(libc::EIO, what)),
        Outcome::InUse(by) => {
            let by = by.map_or(String::new(), |owner| format!(" by {owner}"));
            Err(Error::with(libc::EBUSY, format!("{}: in use{by}", what.display())))
        }
        Outcome::Unexamined(error) => Err(error.context(format_args!("{}: could not be examined", what.display()))),
        Outcome::Failed(error) if error.detail().is_some() => Err(error),
        Outcome::Failed(error) => Err(error.context(what.display())),
    }
}
