//! How control files and what they name go.

use super::{Control, OWNER_LOCK};
use crate::beside::is_beside_name;
use crate::index::members::control_page::{CHANGE, HAS_IMAGE, MAGIC, Page};
use crate::sys::locks::{Lock, is_locked};
use crate::sys::{path_of, shm};
use core::mem::offset_of;
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

impl Control {
    /// Removes the file's name, and `.famio/` around it if that is empty. Called by the last member while no other
    /// process attaches. Best effort: a file that stays is used again, or removed by the next process.
    pub(in crate::index) fn remove_name(&self) {
        let Ok(path) = path_of(self.file.as_fd()) else { return };
        let same = rustix::fs::lstat(&path).is_ok_and(|there| (there.st_dev, there.st_ino) == self.identity());
        if same && rustix::fs::unlinkat(CWD, &path, AtFlags::empty()).is_ok() {
            remove_folder(&path);
        }
    }

    /// After a rename: removes `.famio/` at the old place if it is empty.
    pub fn remove_folder_at(&self, old: &Path) {
        remove_folder(old);
    }

    /// After a recovery: removes the file and the shared memory of killed processes, unless a process is attached or
    /// has the owner lock.
    pub fn remove_if_unused(&self) {
        let Some(_attaching) = self.try_attaching() else { return };
        let is_needed = self.arena_path().is_some() || self.has_kept_epoch();
        if !is_needed && !is_locked(&self.file, 0..OWNER_LOCK.end, Lock::Exclusive) {
            self.remove_shared_memory();
            self.remove_name();
        }
    }

    /// Removes the hand-over image and the shared shadow that it names, which no process has any more.
    fn remove_shared_memory(&self) {
        if self.word(offset_of!(Page, magic)) != MAGIC {
            return;
        }
        let key = self.word(offset_of!(Page, key));
        let named = [
            (offset_of!(Page, epoch), "epoch"),
            (offset_of!(Page, unfinished), "epoch"),
            (offset_of!(Page, shadow), "shadow"),
        ];
        for (number, what) in named.map(|(at, what)| (self.word(at), what)) {
            if number != 0 {
                let path = Page::path(self.identity(), key, number, what);
                let _ = rustix::fs::unlinkat(CWD, &*path, AtFlags::empty());
            }
        }
    }

    /// As [`remove_if_unused`](Self::remove_if_unused), for a control file in `folder` without a journal beside it:
    /// then its arena has nothing to recover.
    pub fn remove_unused_from(&self, folder: BorrowedFd<'_>, name: &CStr) {
        let Some(_attaching) = self.try_attaching() else { return };
        if !self.has_kept_epoch() && !is_locked(&self.file, 0..OWNER_LOCK.end, Lock::Exclusive) {
            self.remove_arena();
            self.remove_shared_memory();
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    }

    /// Forgets the hand-over image. Called with the owner lock by a process that wants the file without it.
    pub fn drop_epoch(&self) {
        let state = self.word(offset_of!(Page, state));
        if self.is_in_use() && state & HAS_IMAGE != 0 {
            self.set_word(offset_of!(Page, state), (state & !HAS_IMAGE).wrapping_add(CHANGE));
            self.set_word(offset_of!(Page, kept), 0);
            let _ = rustix::fs::unlinkat(CWD, &*self.epoch_path(), AtFlags::empty());
        }
    }

    /// Forgets the arena and removes it, if this process may.
    pub(in crate::index) fn forget_arena(&self) {
        if let Some(path) = self.arena_path() {
            let _ = rustix::fs::unlinkat(CWD, &*path, AtFlags::empty()); // else the next sweep (`sweep.rs`) removes it
            self.set_arena(0);
        }
    }

    /// As [`forget_arena`](Self::forget_arena), for an arena with nothing to recover. If this process may not remove
    /// it (it has changed its user or root), it stays named, so that the next process can.
    pub(in crate::index) fn remove_arena(&self) {
        let Some(path) = self.arena_path() else { return };
        let removed = rustix::fs::unlinkat(CWD, &*path, AtFlags::empty());
        if removed == Ok(()) || removed == Err(Errno::NOENT) && !shm::is_gone() {
            self.set_arena(0);
        }
    }
}

fn remove_folder(file: &Path) {
    let Some(folder) = file.parent() else { return };
    let is_beside = folder.file_name().is_some_and(is_beside_name);
    if is_beside {
        let _ = rustix::fs::unlinkat(CWD, folder, AtFlags::REMOVEDIR);
    }
}
