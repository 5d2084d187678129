//! What a walk knows of a file that it came by, so that it is not looked for again: its path may be too long, or be another
//! file's by now.

use crate::error::Result;
use crate::journal::{Mark, Pool};
use crate::settings::Settings;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Where a file lies. All unknown: it is asked of the kernel.
#[derive(Clone, Copy, Default)]
pub(super) struct Given<'a> {
    /// Its path, for messages.
    pub path: Option<&'a Path>,
    /// The folder that it lies in.
    pub folder: Option<BorrowedFd<'a>>,
    /// A pool that is not a `.famio/`, in which its journal was found.
    pub pool: Option<&'a Pool>,
}

impl Given<'_> {
    /// The pool of `file`: the mark knows best where the journal is; without one, the settings. `None`: there is none.
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
            Some(pool) if mark.is_none() || pool.path() == wanted => pool.again(file).map(Some),
            // Whoever may write the file has written its mark.
            _ if mark.is_some() && settings.pool.as_deref() != Some(wanted) => Pool::of_mark(wanted, file).map(Some),
            _ => Pool::at(wanted, Some(file)).map(Some),
        }
    }
}

/// The path of the pool of a file; `None`: the `.famio/` beside it.
pub(super) fn pool_of<'a>(mark: Option<&'a Mark>, settings: &'a Settings) -> Option<&'a Path> {
    match mark {
        Some(mark) => mark.pool.as_deref(),
        None => settings.pool.as_deref(),
    }
}
