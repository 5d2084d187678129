//! The note that this process writes a file through the kernel (`journal::demotion_note`): a process that could
//! protect the file finds it there, and leaves the file to the kernel, too.

use crate::file::atomic::{AtomicFile, PLAIN};
use crate::file::registry::files;
use crate::journal::{demotion_note, mark};
use crate::sys::{owner_and_mode, process_id};
use crate::thread::Mutex;
use core::sync::atomic::Ordering;
use std::os::fd::RawFd;
use std::sync::Arc;

/// In a forked child: the parent's files, which the child notes for itself.
static OF_PARENT: Mutex<Vec<Arc<AtomicFile>>> = Mutex::new(Vec::new());

/// In a forked child, before it writes: it may outlive its parent, whose note goes then.
pub(in crate::file) fn note_in_child(file: Arc<AtomicFile>) {
    let was_noted = file.noted_by.swap(0, Ordering::AcqRel) != 0;
    if !was_noted || !file.is_demoted() || file.fds.are_locked_by_parent() {
        return;
    }
    file.note_demotion();
    if let Some(mut all) = OF_PARENT.try_lock() {
        all.push(file);
    }
}

/// At the end of the process: removes its notes.
pub fn remove_demotion_notes() {
    let mut all: Vec<_> = files().values().cloned().collect();
    if let Some(mut of_parent) = OF_PARENT.try_lock() {
        all.append(&mut of_parent);
    }
    all.iter().for_each(|file| file.end_demotion_note());
}

/// Before an `exec`: removes the notes of files of which no descriptor stays open. `stays` is asked for noted files only.
pub fn remove_demotion_notes_but(stays: impl Fn(&AtomicFile) -> bool) {
    let is_noted = |file: &&Arc<AtomicFile>| file.noted_by.load(Ordering::Acquire) != 0;
    let noted: Vec<_> = files().values().filter(is_noted).cloned().collect();
    noted.iter().filter(|file| !stays(file)).for_each(|file| file.end_demotion_note());
}

/// The `exec` has failed.
pub fn note_demotions_again() {
    files().values().filter(|file| file.is_demoted()).for_each(|file| file.note_demotion());
}

impl AtomicFile {
    /// Notes it. Without the right to, nothing can be done: what the process writes may be lost if another one begins a
    /// session.
    pub(in crate::file) fn note_demotion(&self) {
        if self.fds.has_writable() {
            self.noted_by.store(process_id(), Ordering::Release);
            let _ = self.fds.with(true, demotion_note::set); // also if it should be there: a session's begin removes it
        }
    }

    /// As [`note_demotion`](Self::note_demotion), before the file is demoted: looks whether another process has begun a
    /// session meanwhile. If so, returns false, and nothing is noted.
    pub(super) fn note_unless_in_session(&self) -> bool {
        self.note_demotion();
        let is_free = self.is_unmarked();
        if !is_free {
            self.remove_demotion_note();
        }
        is_free
    }

    /// Whether this process may write the demoted file by its new descriptor `fd`: no other process has a session, and
    /// from now on one that would begin it sees the note.
    pub(crate) fn may_be_written_demoted(&self, fd: RawFd) -> bool {
        !self.is_demoted() || self.fds.has_writable_besides(fd) || self.note_unless_in_session()
    }

    /// Removes this process's note, unless it has mapped the demoted file.
    pub(in crate::file) fn remove_demotion_note(&self) {
        if !self.keeps_note.load(Ordering::Acquire) {
            self.end_demotion_note();
        }
    }

    /// Removes this process's note, where its maps end as well.
    fn end_demotion_note(&self) {
        let own = process_id();
        if self.noted_by.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // First: without the note, a process that wants the file takes an owner that keeps it for an error.
            if self.is_demoted()
                && let Some(mut inner) = self.inner.try_lock()
            {
                self.release_owner_lock(&mut inner);
            }
            let _ = self.fds.with(false, |fd| {
                demotion_note::remove(fd);
                Ok(())
            });
        }
    }

    /// The program is about to close `fd`, which may be a descriptor of the parent's: with its last writable descriptor,
    /// the note goes.
    pub(crate) fn remove_note_with_last_writable(&self, fd: RawFd) {
        if self.noted_by.load(Ordering::Relaxed) != 0 && !self.fds.has_writable_besides(fd) {
            self.remove_demotion_note();
            // Another thread may just have got one.
            if self.is_demoted() && self.fds.has_writable_besides(fd) {
                self.note_demotion();
            }
        }
    }

    /// The program maps the demoted file: the note stays to the end of the process, since stores need no descriptor.
    pub(crate) fn keep_demotion_note(&self) {
        self.note_demotion();
        self.keeps_note.store(true, Ordering::Release);
        demotion_note::keep();
    }

    /// Whether another process has demoted it.
    pub(super) fn is_demoted_elsewhere(&self) -> bool {
        self.fds.with(true, |fd| Ok(demotion_note::of_another(fd))).is_ok_and(|pid| pid.is_some())
    }

    /// A descriptor of the demoted file is added, perhaps of another process that has demoted it, or of the program that
    /// was in this process before an `exec`.
    pub(super) fn note_by_added_descriptor(&self) {
        if self.is_demoted() {
            self.note_demotion();
        }
    }

    /// Before the process may lose the right to write the file, without which it could neither protect nor note it: notes
    /// it now, unless everybody may write it, or other processes see in its control file what this one does.
    pub(crate) fn note_before_change_of_rights(&self) {
        let may_lose = || self.fds.with(true, |fd| Ok(owner_and_mode(fd)?.st_mode & 0o002 == 0)).unwrap_or(false);
        if self.state.load(Ordering::Acquire) == PLAIN && !self.ownership.membership.is_attached() && may_lose() {
            self.note_demotion();
        }
    }

    /// After that: the process may still note the file when it demotes it.
    pub(crate) fn remove_note_if_not_needed(&self) {
        if self.state.load(Ordering::Acquire) == PLAIN
            && self.noted_by.load(Ordering::Relaxed) != 0
            && self.fds.with(true, |fd| Ok(mark::can_be_changed(fd))).unwrap_or(false)
        {
            self.remove_demotion_note();
        }
    }
}
