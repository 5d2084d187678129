//! What a walk knows of a file that it has found, so that it need not be looked up again: its path may be too long,
//! or lead to another file by now.

use crate::error::Result;
use crate::journal::{Mark, Pool};
use crate::settings::Settings;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Where a file lies. If nothing is given, the kernel is asked.
#[derive(Clone, Copy, Default)]
pub(super) struct FoundFile<'a> {
    /// Its path, for messages.
    pub path: Option<&'a Path>,
    /// The folder that it lies in.
    pub folder: Option<BorrowedFd<'a>>,
    /// A pool that is not a `.famio/`, in which its journal was found.
    pub pool: Option<&'a Pool>,
}

impl FoundFile<'_> {
    /// The pool of `file`: according to the mark if there is one, otherwise to the settings. `None`: there is no
    /// pool.
    pub fn pool(
        &self,
        file: BorrowedFd<'_>,
        path: &Path,
        mark: Option<&Mark>,
        settings: &Settings,
    ) -> Result<Option<Pool>> {
        let Some(wanted) = pool_of(mark, settings) else {
            return match self.folder {
                Some(folder) => Pool::beside(crate::sys::high_duplicate(folder)?, path, file),
                None => Pool::find(file, None),
            };
        };
        match self.pool {
            Some(pool) if mark.is_none() || pool.path() == wanted => pool.reopen(file).map(Some),
            // Any process that may write the file may have written its mark.
            _ if mark.is_some() && settings.pool.as_deref() != Some(wanted) => Pool::of_mark(wanted, file).map(Some),
            _ => Pool::at(wanted, Some(file)).map(Some),
        }
    }
}

/// The path of a file's pool; `None`: the `.famio/` beside the file.
pub(super) fn pool_of<'a>(mark: Option<&'a Mark>, settings: &'a Settings) -> Option<&'a Path> {
    match mark {
        Some(mark) => mark.pool.as_deref(),
        None => settings.pool.as_deref(),
    }
}
