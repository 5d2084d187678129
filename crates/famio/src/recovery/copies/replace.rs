//! The rename by which a copy replaces a file. A program that opens the file just before would go on with a file that
//! has no name any more, and what it commits there would be lost. So the file is kept from others until the rename is
//! durable:
//!
//! - By the owner lock, no other process can begin a session. Once it gets the lock, it finds a note on the old file
//!   (`journal::replaced_note`), and its write fails.
//! - By a lease, as far as this process may have one, other processes wait as they open the file. Famio's then see that
//!   the file has lost its name, and open the new one (`posix::paths::open`). Others go on with the old one, and are
//!   reported.

use crate::error::{Error, Result};
use crate::index::OwnerLock;
use crate::journal::replaced_note;
use crate::recovery::found_file::FoundFile;
use crate::recovery::open::await_others;
use crate::recovery::owning::owner_lock_given;
use crate::recovery::search::openers;
use crate::recovery::search::openers::{Who, keep_out};
use crate::recovery::unfinished::Unfinished;
use crate::settings::Settings;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// The owner lock of a file that is about to be replaced; left when this is dropped.
pub(in crate::recovery) struct Owned(Option<OwnerLock>);

impl Owned {
    /// `make`: also if no process has used it as an atomic file.
    ///
    /// # Errors
    /// `EBUSY`: another process owns the file. Others if there is no lock, and it cannot be made.
    pub fn take(file: BorrowedFd<'_>, settings: &Settings, make: bool) -> Result<Self> {
        owner_lock_given(file, FoundFile::default(), settings, true, make).map(Self)
    }

    /// As [`take`](Self::take), of an ordinary file: without a lock if none can be made.
    ///
    /// # Errors
    /// `EBUSY`.
    pub fn take_if_possible(file: BorrowedFd<'_>, settings: &Settings) -> Result<Self> {
        match Self::take(file, settings, true) {
            Err(e) if e.errno() != libc::EBUSY => Ok(Self(None)),
            taken => taken,
        }
    }

    pub fn lock(&self) -> Option<&OwnerLock> {
        self.0.as_ref()
    }

    /// The file is gone: with the lock goes what a dead process shared.
    pub fn end(mut self) {
        if let Some(owner_lock) = self.0.take() {
            let control = owner_lock.control().clone();
            if owner_lock.may_keep() {
                control.drop_epoch();
            }
            owner_lock.release();
            control.remove_if_unused();
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(owner_lock) = self.0.take() {
            let control = owner_lock.control().clone();
            owner_lock.leave();
            control.remove_if_unused();
        }
    }
}

/// Replaces `file`, of which the caller has the owner lock and no other descriptor; processes of `who` are refused.
///
/// # Errors
/// `EBUSY`: another process has it open, or another file has its name. Then nothing was replaced.
pub(in crate::recovery) fn replace(mut new: Unfinished, file: BorrowedFd<'_>, path: &Path, who: Who) -> Result<()> {
    new.hide(path)?;
    // A process that waits is let in. Then it either closes the file soon, or is the reason for an error.
    let attempt = || {
        let kept_out = keep_out(file, who).map_err(Some)?;
        if kept_out.is_awaited() {
            return Err(None);
        }
        replaced_note::set(file);
        let replaced = new.replace(file, path);
        replaced_note::remove_if_named(file);
        // Before others commit something to the new file.
        replaced.and_then(|()| new.sync_folder()).map_err(Some)
    };
    let replaced = await_others(attempt, Option::is_none);
    replaced.map_err(|e| e.unwrap_or_else(|| Error::with(libc::EBUSY, "it is opened all the time")))
}

/// An error if a process has looked the old file up before it was replaced, and opened it. `done`: what was done.
pub(in crate::recovery) fn refuse_late(file: BorrowedFd<'_>, who: Who, done: &str) -> Result<()> {
    // Famio's processes close it at once.
    await_others(|| openers::opener(file, who).map_or(Ok(()), Err), |_| true).map_err(|opener| {
        let what =
            format!("{done}, but {opener} has opened the old file just before, and its writes are lost; restart it");
        Error::with(libc::EBUSY, what)
    })
}
