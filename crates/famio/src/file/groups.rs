//! The files of groups that this process has open. A SYNC of one of them commits all of its group's
//! (`transaction/group.rs`).

use super::AtomicFile;
use crate::error::{Error, Result};
use crate::file::parts::per_process::PerProcess;
use crate::settings::{JournalChoice, OnKill, Settings};
use core::sync::atomic::{AtomicU64, Ordering};
use std::borrow::Cow;
use std::sync::{Arc, Weak};

type List = Vec<Weak<AtomicFile>>;

static FILES: PerProcess<List> = PerProcess::new(Vec::new());
/// How many files have joined.
static JOINED: AtomicU64 = AtomicU64::new(0);

/// The settings of a file that is about to be opened. A file of a group is never the kernel's, and has a journal from
/// its first change on.
///
/// # Errors
/// `EINVAL`: settings that contradict each other.
pub(super) fn settings_in_effect(settings: &Settings) -> Result<Cow<'_, Settings>> {
    if settings.group.is_none() {
        return Ok(Cow::Borrowed(settings));
    }
    if settings.on_kill == OnKill::Keep {
        let what = "it is a file of a group, and with on-kill = keep a kill would leave its files at different calls";
        return Err(Error::with(libc::EINVAL, what));
    }
    Ok(Cow::Owned(Settings { require: true, journal: JournalChoice::Always, ..settings.clone() }))
}

/// Adds a file that was just opened and not written yet.
pub(super) fn join(file: &Arc<AtomicFile>) {
    if file.settings.group.is_some() {
        let mut list = FILES.lock();
        list.retain(|file| file.strong_count() > 0);
        list.push(Arc::downgrade(file));
        JOINED.fetch_add(1, Ordering::SeqCst);
    }
}

/// The program has closed the file.
pub(super) fn leave(file: &AtomicFile) {
    if file.settings.group.is_some() {
        let me: *const AtomicFile = file;
        FILES.lock().retain(|file| file.as_ptr() != me);
    }
}

/// Whether the file, which has a group, is one of the files that are committed together.
pub(super) fn has(file: &AtomicFile) -> bool {
    let me: *const AtomicFile = file;
    FILES.lock().iter().any(|file| file.as_ptr() == me)
}

/// How many files have joined so far.
pub(super) fn joined() -> u64 {
    JOINED.load(Ordering::SeqCst)
}

/// The files of a group, in the order in which their gates are closed.
pub(super) fn files_of(group: u32) -> Vec<Arc<AtomicFile>> {
    let mut files: Vec<_> = FILES.lock().iter().filter_map(Weak::upgrade).collect();
    files.retain(|file| file.settings.group == Some(group));
    files.sort_by_key(|file| file.key());
    files
}

/// In a forked child: the parent's files are not the child's.
pub(super) fn begin_child() {
    FILES.begin_child();
}
