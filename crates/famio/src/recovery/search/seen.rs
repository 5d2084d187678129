//! What a walk has seen, and how long it waits for other processes that have a file.

use crate::error::{Error, Result};
use crate::index::Control;
use crate::journal::{Marked, control, mark};
use crate::recovery::Owner;
use crate::recovery::open::await_others;
use crate::settings::Settings;
use crate::sys::InternalFd;
use rustix::time::Timespec;
use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// How long a walk waits for the recoveries of others in all: a minute.
const PAUSES: u32 = 6000;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// The files that a walk has handled, by device and inode, with their journals: the walk finds a file twice if it has
/// a mark and its journal lies in a pool.
#[derive(Default)]
pub(in crate::recovery) struct Seen {
    files: HashMap<(u64, u64), PathBuf>,
    /// A lease was not given up in time. A walk waits in vain only once: a stranger may have leases on many files.
    a_lease_stayed: Cell<bool>,
    /// Pauses made for recoveries by other processes.
    pauses: Cell<u32>,
}

impl Seen {
    pub fn file(&self, key: (u64, u64)) -> bool {
        self.files.contains_key(&key)
    }

    pub fn journal(&self, key: (u64, u64), journal: &Path) -> bool {
        self.files.get(&key).is_some_and(|seen| seen == journal)
    }

    /// A file is in use: if another process recovers it, makes a pause, after which it may not be any more.
    pub fn awaits_recovery(&self, looked: BorrowedFd<'_>, settings: &Settings) -> bool {
        let may_end = || match control::find(looked, settings.pool.as_deref()) {
            Ok(Some(found)) => Control::new(found).is_being_recovered(),
            // It has ended, unless the file grows without a control file.
            Ok(None) => !matches!(mark::of_looked_at(looked), Ok(Some(Marked::Growing(_)))),
            Err(_) => false,
        };
        let awaits = self.pauses.get() < PAUSES && may_end();
        if awaits {
            self.pauses.set(self.pauses.get() + 1);
            let _ = rustix::thread::nanosleep(&PAUSE);
            crate::sys::internal::undisturbed::renew();
        }
        awaits
    }

    pub fn add(&mut self, key: (u64, u64), journal: &Path) {
        self.files.insert(key, journal.to_path_buf());
    }
}

/// Whether a process has the file open in spite of its lease: it is attached to the file's control page, or the file
/// grows without a journal.
fn is_held(looked: BorrowedFd<'_>, settings: &Settings) -> bool {
    owner(looked, settings).is_some() || matches!(mark::of_looked_at(looked), Ok(Some(Marked::Growing(_))))
}

/// The result of `open` for a file known by an `O_PATH` descriptor. `None`: a process that has it open as an atomic
/// file holds a lease on it.
///
/// # Errors
/// Those of `open`; `EAGAIN`, after a second: another process holds a lease on it.
pub(in crate::recovery) fn open_unless_held(
    looked: BorrowedFd<'_>,
    settings: &Settings,
    seen: &Seen,
    open: impl Fn() -> Result<InternalFd>,
) -> Result<Option<InternalFd>> {
    let is_leased = |e: &Error| e.errno() == libc::EAGAIN;
    // Not held: the process was asked to give the lease up, and is about to. There is no mark any more, and no
    // process is attached to the control page yet.
    match await_others(open, |e| is_leased(e) && !seen.a_lease_stayed.get() && !is_held(looked, settings)) {
        Err(e) if is_leased(&e) && is_held(looked, settings) => Ok(None),
        Err(e) => {
            seen.a_lease_stayed.set(is_leased(&e) || seen.a_lease_stayed.get());
            Err(e)
        }
        opened => opened.map(Some),
    }
}

/// The process that owns the file, if that can be told.
pub(in crate::recovery) fn owner(file: BorrowedFd<'_>, settings: &Settings) -> Option<Owner> {
    Control::new(control::find(file, settings.pool.as_deref()).ok()??).owner()
}
