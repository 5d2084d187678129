//! A file that cannot be protected is left to the kernel before anything of it is changed, with one notice on stderr.
//! If the settings require protection, or a journal is pending, or others have mapped the file, it is an error
//! instead.

use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, DEMOTED, Inner, PLAIN};
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::growing::Tail;
use crate::file::session::attach::is_out_of_reach;
use crate::index::{Control, HAS_IMAGE, SESSION};
use crate::journal::{Marked, control, folder_of, has_lost_its_name, mark, name_to_make, replaced_note};
use crate::recovery;
use crate::sys::{InternalFd, file_size_limit, shm};
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{Access, AtFlags, accessat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

pub(in crate::file) const LOST: &[u8] =
    b": demoted to an ordinary file because the name by which it was opened is gone; open it by its other name";

/// File size that a process needs for finding others at a file, and for sharing memory with them.
const SMALLEST: u64 = 1 << 20;

/// With a lower hard limit on descriptors (`ulimit -Hn`) the program needs all of them. Above a soft limit, ours do
/// not disturb the program.
const FEWEST: u64 = 32;

/// Journals and arenas are subject to the process's limit on file sizes (`ulimit -f`). They contain at most twice the
/// journal's own limit.
fn check_limit(limit: u64, needed: u64) -> Result<()> {
    if limit >= needed {
        return Ok(());
    }
    let what = format!(
        "files may have {limit} bytes (ulimit -f), and its journal may need {needed}; raise that limit, or lower --journal-limit"
    );
    Err(Error::with(libc::EFBIG, what))
}

impl AtomicFile {
    /// Checks that a limit on file sizes leaves room for a session, whatever is written. If protection is required,
    /// any limit will do: a journal that reaches it is full (`ENOSPC`).
    ///
    /// # Errors
    /// `EFBIG`.
    pub fn check_limit(&self, limit: u64) -> Result<()> {
        if self.settings.require {
            return Ok(());
        }
        check_limit(limit, self.settings.journal_limit.saturating_mul(2))
    }

    /// Checks that there are so many descriptors that ours do not disturb the program.
    ///
    /// # Errors
    /// `EMFILE`.
    pub(in crate::file) fn check_numbers(&self) -> Result<()> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
        if limit >= FEWEST || self.settings.require || self.ownership.membership.is_attached() {
            return Ok(());
        }
        let what = format!("the process may have {limit} descriptors (ulimit -n), and its journal takes some of them");
        Err(Error::with(libc::EMFILE, what))
    }

    /// During a session there is no address space for a write: commits the file as it is and demotes it. Returns
    /// whether it did.
    #[cold]
    pub(in crate::file) fn demote_for_lack_of_memory(&self, error: &Error) -> bool {
        let may = error.errno() == libc::ENOMEM && !self.settings.require && !self.ownership.membership.has_others();
        let left = may && self.demote().is_ok();
        if left {
            self.say_left(error);
        }
        left
    }

    /// Whether the file can be left to the kernel after such an error, because all of it is in the file itself.
    fn can_be_left(&self, error: &Error) -> bool {
        let is_possible = match error.errno() {
            // Another process that cannot protect the file either has demoted it, or is about to end its session.
            libc::EBUSY => {
                self.is_in_nobodys_session()
                    && (self.fds.with(true, |fd| Ok(may_not_protect(fd))).unwrap_or(false)
                        || self.is_demoted_elsewhere())
            }
            // A missing pool may be a mistake of the user; a missing name may be missing only for a moment.
            libc::ENOENT | libc::ESTALE => self.is_unreachable(),
            // Another user may have made a `.famio` that is not a folder.
            libc::ENOTDIR | libc::ELOOP => self.settings.pool.is_none(),
            errno => is_out_of_reach(errno),
        };
        !self.settings.require && self.state.load(Ordering::Acquire) == PLAIN && is_possible && self.is_unmarked()
    }

    /// Whether no process has a session, and no dead one has left a journal.
    pub(super) fn is_unmarked(&self) -> bool {
        let has_ended = |fd: BorrowedFd<'_>| Ok(recovery::has_ended(fd, &self.settings));
        match self.fds.with(false, mark::get_any) {
            // Permission denied: but a process that marks a file is attached, or died as a member.
            Err(e) if e.errno() == libc::EACCES => self.is_in_nobodys_session() || self.is_unknown(),
            Ok(Some(Marked::Journal(mark))) if self.has_left(mark.journal_id) => true,
            // A journal that has ended and could not be removed: the file has everything.
            mark => matches!(mark, Ok(None)) || self.fds.with(false, has_ended).unwrap_or(false),
        }
    }

    fn has_hand_over_image(&self) -> bool {
        self.ownership.membership.has_attached() && self.ownership.is_handed_over()
    }

    /// Before the process loses its root or its permissions: takes up what is uncommitted elsewhere (a hand-over
    /// image, or another process's session) while it still may.
    pub(crate) fn take_home(&self) {
        // A child that has made no call yet is not attached to the control page that says so.
        if !self.ownership.membership.has_attached() && self.fds.has_writable() && !self.is_unknown() {
            let _ = self.become_member(); // if this fails, the next write tries again, and reports it
        }
        if self.ownership.is_disturbed() && self.fds.has_writable() && self.state.load(Ordering::Acquire) == PLAIN {
            let _ = self.session_for_write(); // if this fails, the next write reports it
        }
    }

    /// Whether other processes may have the file open. A control file may have been left, with shared memory that its
    /// last process had no right to remove.
    pub(crate) fn may_have_others(&self) -> bool {
        if self.ownership.membership.is_attached() {
            return self.ownership.membership.has_others();
        }
        let find = |fd: BorrowedFd<'_>| control::find(fd, self.settings.pool.as_deref());
        let has_members = |found: InternalFd| Control::new(found).has_members();
        self.fds.with(false, find).map_or(true, |found| found.is_some_and(has_members))
    }

    /// Whether there is no control file for it.
    fn is_unknown(&self) -> bool {
        let find = |fd: BorrowedFd<'_>| control::find(fd, self.settings.pool.as_deref());
        matches!(self.fds.with(false, find), Ok(None))
    }

    /// Whether the file's path, or the folder of shared memory, cannot be reached: after a `chroot`.
    pub(in crate::file) fn is_unreachable(&self) -> bool {
        shm::is_gone() || self.fds.with(false, |fd| Ok(folder_of(fd).is_err())).unwrap_or(true)
    }

    fn is_in_nobodys_session(&self) -> bool {
        self.ownership.membership.has_attached() && self.ownership.membership.state() & (SESSION | HAS_IMAGE) == 0
    }

    /// The file cannot be protected because of `error`: leaves it to the kernel, or returns the error.
    #[cold]
    pub(in crate::file) fn leave_to_kernel(
        &self,
        inner: &mut Inner,
        tail: &mut Option<Tail<'_>>,
        error: Error,
    ) -> Answer<()> {
        if error.errno() == libc::ESTALE {
            self.refuse_replaced()?;
        }
        if error.is_nameless() && !self.is_unreachable() {
            return Err(Refusal::session_ended()); // it got another name meanwhile: try again
        }
        // A hand-over image that cannot be taken up would be lost silently.
        if !self.can_be_left(&error) || (self.has_hand_over_image() && inner.owner_lock.is_none()) {
            return Err(self.named(error).into());
        }
        if self.ownership.membership.has_attached() && self.is_mapped_by_others() {
            self.release_owner_lock(inner);
            return Err(self.named(error).into());
        }
        if !self.note_unless_in_session() {
            return Err(self.named(error).into());
        }
        let left = (|| {
            self.maps_to_kernel()?;
            self.say_left(&error);
            if inner.owner_lock.is_some() {
                self.put_in_kernels_file(inner)?;
            }
            self.demote_with_tail(tail)
        })();
        if let Err(e) = left {
            self.remove_demotion_note();
            return Err(e.into());
        }
        crate::sys::events::count_demotion();
        self.late_copies_to_kernel();
        // Members that could protect the file see that note, and demote the file as this process did.
        if error.errno() == libc::EBUSY && self.is_demoted_elsewhere() {
            self.release_owner_lock(inner);
        }
        Ok(())
    }

    /// After an error for the lack of a name.
    ///
    /// # Errors
    /// `ESTALE`: `famio restore` has replaced the file while it was open here, which it could not see.
    pub(super) fn refuse_replaced(&self) -> Result<()> {
        if self.fds.with(true, |fd| Ok(replaced_note::is_set(fd))).unwrap_or(false) {
            let what = "famio restore or backup has replaced the file, and what is written to the old one is lost; open it again";
            return Err(self.named(Error::with(libc::ESTALE, what)));
        }
        Ok(())
    }

    /// A growing file cannot have a session because of `error`, while others wait for it: commits it as it is and
    /// leaves it to the kernel. Returns whether it did.
    #[cold]
    pub(in crate::file) fn leave_growing(&self, error: &Error) -> bool {
        self.note_demotion(); // before other processes may open it
        let is_left = !self.settings.require && self.end_session_as(DEMOTED).is_ok();
        if is_left {
            self.say_left(error);
            crate::sys::events::count_demotion();
        } else {
            self.remove_demotion_note();
        }
        is_left
    }

    /// As [`leave_to_kernel`](Self::leave_to_kernel), for a process that could not even check whether others have the
    /// file open.
    #[cold]
    pub(in crate::file) fn leave_unseen(&self, error: Error) -> Error {
        let is_writable = self.fds.has_writable();
        if error.errno() == libc::ESTALE
            && let Err(e) = self.refuse_replaced()
        {
            return e;
        }
        if self.can_be_left(&error) && !self.has_hand_over_image() && (!is_writable || self.note_unless_in_session()) {
            if is_writable {
                self.say_left(&error);
            } else {
                self.pending_notice.store(error.errno(), Ordering::Release);
            }
            crate::sys::events::count_demotion();
            self.state.store(DEMOTED, Ordering::SeqCst);
        }
        self.named(error)
    }

    /// The file becomes writable: if it was left to the kernel when it was only read, the notice comes now.
    pub(in crate::file) fn say_pending_notice(&self) {
        let errno = self.pending_notice.swap(0, Ordering::AcqRel);
        if errno != 0 {
            self.say_left(&Error::new(errno));
        }
    }

    /// Checks that the process can attach to the control file.
    pub(in crate::file) fn check_limit_of_membership(&self) -> Result<()> {
        check_limit(file_size_limit(), SMALLEST)
    }

    /// Gives the notice, but not repeatedly for the same file.
    fn say_left(&self, error: &Error) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let key = key_of(self.device, self.inode);
        if LAST.swap(key, Ordering::Relaxed) == key {
            return;
        }
        if error.errno() == libc::ESTALE && self.fds.with(false, |fd| Ok(has_lost_its_name(fd))).unwrap_or(false) {
            // Without any name there is nothing to protect.
            if self.fds.stat().is_ok_and(|stat| stat.st_nlink > 0) {
                crate::sys::notice_parts(&[self.path.to_bytes(), LOST]);
            }
            return;
        }
        let path = self.path.to_string_lossy();
        let text = error.to_string();
        let why = text.strip_prefix(&*path).map_or(&*text, |rest| rest.trim_start_matches(": "));
        crate::sys::notice(&format!("{path}: demoted to an ordinary file because it can't be protected ({why})"));
    }
}

/// A file's key for that: never 0, and different for files of one file system. (An `| 1` once made one of two files
/// with neighbouring inodes: the second got no notice.)
fn key_of(device: u64, inode: u64) -> u64 {
    (device.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ inode).max(1)
}

/// Whether this process certainly may not make a journal beside the file, or not mark it.
fn may_not_protect(fd: BorrowedFd<'_>) -> bool {
    let is_denied = |answer: rustix::io::Result<()>| matches!(answer, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS));
    let Ok((folder, _)) = folder_of(fd) else { return true };
    let Ok(beside) = name_to_make(&folder, fd) else { return true };
    let beside = accessat(&folder, &*beside, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    let can_make = match beside {
        Err(Errno::NOENT) => accessat(folder.as_fd(), ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS),
        answer => answer,
    };
    is_denied(can_make) || !mark::can_be_changed(fd)
}

#[cfg(test)]
mod tests {
    use super::key_of;

    #[test]
    fn files_with_neighbouring_inodes_are_not_one() {
        let keys: std::collections::BTreeSet<u64> = (0..1000).map(|inode| key_of(2049, inode)).collect();
        assert_eq!(keys.len(), 1000);
        assert!(!keys.contains(&0));
    }
}
