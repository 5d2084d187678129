//! Recovery of what a user names, with what killed processes left to be committed.

use crate::error::Result;
use crate::file::{Access, commit_leftover};
use crate::recovery::{Options, Progress, Report, recover_all};
use crate::settings::Settings;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Recovers a file, the file of a journal, or everything below a folder: the files of its journals, whether in a pool or
/// in a `.famio/`, and the files with a mark. Returns one report for each, and one for everything that could not be
/// [examined](crate::recovery::Outcome::Unexamined). A file that needs nothing gets a report that says so.
///
/// # Errors
/// For `path` itself only, for example that it does not exist; and `EINVAL` if [`Settings::shm`] is not possible. What
/// goes wrong with one file is in its report.
pub fn recover_path(
    path: &Path,
    settings: &Settings,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<Report>> {
    // A commit takes a session.
    let commit =
        |file: BorrowedFd<'_>, path: &CStr, settings: &Settings| commit_leftover(file, Access::Write, path, settings);
    recover_all(path, settings, options, progress, &commit)
}
