//! The journal of another process's session, for reading along, if blocks may lie there: many a process that opens a file
//! for a few reads needs none of them, and does without opening it.

use crate::error::{Error, Result};
use crate::file::Descriptors;
use crate::index::Control;
use crate::journal::control;
use crate::journal::inplace::View;
use crate::settings::Settings;
use crate::sys::internal::Undisturbed;
use crate::thread::Held;
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

/// The error of a copy that needs a block of the journal, if this process cannot open that; and if it may have just
/// gone.
pub(super) const NO_JOURNAL: i32 = libc::EBUSY;
pub(super) const OTHER_JOURNAL: i32 = libc::EAGAIN;

/// A journal of another process, which is mapped when a block of it is first needed.
pub(super) struct Journal {
    inode: u64,
    view: OnceLock<View>,
    /// The control file beside it.
    control: Weak<Control>,
    /// The pool of the settings.
    pool: Option<PathBuf>,
    /// It was not found.
    is_missed: AtomicBool,
}

impl Journal {
    /// `inode`: its inode number. `control`: the control file beside it.
    pub fn new(inode: u64, control: Option<&Arc<Control>>, settings: &Settings) -> Self {
        let control = control.map_or_else(Weak::new, Arc::downgrade);
        Self { inode, view: OnceLock::new(), control, pool: settings.pool.clone(), is_missed: AtomicBool::new(false) }
    }

    /// Its inode number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Its view.
    ///
    /// # Errors
    /// [`NO_JOURNAL`], [`OTHER_JOURNAL`].
    pub fn view(&self, fds: &Descriptors) -> Result<&View> {
        if let Some(view) = self.view.get() {
            return Ok(view);
        }
        let opened = self.open(fds).map_err(|e| match e.errno() {
            // Once; after that, a program in another root cannot find it.
            libc::ENOENT if !self.is_missed.swap(true, Ordering::Relaxed) => Error::new(OTHER_JOURNAL),
            _ => Error::new(NO_JOURNAL),
        })?;
        if opened.inode() != self.inode {
            return Err(Error::new(OTHER_JOURNAL));
        }
        let _held = Held::of_process(); // a signal handler could not wait for the cell
        Ok(self.view.get_or_init(|| opened))
    }

    fn open(&self, fds: &Descriptors) -> Result<View> {
        let _undisturbed = Undisturbed::begin();
        if let Some(journal) = self.control.upgrade().and_then(|control| control::journal_beside(&control, self.inode))
        {
            return View::of(journal.as_fd());
        }
        let journal = fds.with(false, |fd| control::find_journal(fd, self.pool.as_deref()))?;
        View::of(journal.ok_or(Error::new(libc::ENOENT))?.as_fd())
    }
}
