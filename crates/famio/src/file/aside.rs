//! A file that can't be protected is left to the kernel before anything of it is changed: said once on stderr. Where the settings
//! require protection, and where a journal is pending or others have the file mapped, it is an error instead.

use super::atomic::{AtomicFile, DEMOTED, Inner, PLAIN};
use crate::error::{Error, Result};
use crate::index::{SESSION, TRAVELS};
use crate::journal::pool::BESIDE;
use crate::journal::{control, folder_of, mark};
use crate::sys::file_size_limit;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{Access, AtFlags, accessat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// What a process needs to find others at a file, and to leave a word to them.
const SMALLEST: u64 = 1 << 20;

/// Who may not make the journal, or not mark the file; or a limit or the file system allows neither.
fn is_out_of_reach(errno: i32) -> bool {
    const ALL: [i32; 6] = [libc::EACCES, libc::EPERM, libc::EROFS, libc::EOPNOTSUPP, libc::EEXIST, libc::EFBIG];
    ALL.contains(&errno)
}

/// Journals and arenas are files of the process, which its limit on file sizes (`ulimit -f`) holds for; what lies in them is no
/// more than twice the journal's own limit.
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
    /// Whether a limit on file sizes leaves room for a session, whatever is written. Where protection is required, what there is
    /// has to do: a journal that reaches the limit is full (`ENOSPC`).
    ///
    /// # Errors
    /// `EFBIG`.
    pub fn check_limit(&self, limit: u64) -> Result<()> {
        if self.settings.require {
            return Ok(());
        }
        check_limit(limit, self.settings.journal_limit.saturating_mul(2))
    }

    /// Whether the file can be left to the kernel after such an error: nothing of it is anywhere else.
    fn can_be_left(&self, error: &Error) -> bool {
        let is_unmarked = || match self.fds.with(false, mark::get) {
            // Not told: who marks a file is at its door, or died there.
            Err(e) if e.errno() == libc::EACCES => self.is_in_nobodys_session() || self.is_unknown(),
            mark => matches!(mark, Ok(None)),
        };
        let is_possible = match error.errno() {
            // A process that can't protect the file either has it handed back, or is about to end its session.
            libc::EBUSY => {
                self.is_in_nobodys_session() && self.fds.with(true, |fd| Ok(may_not_protect(fd))).unwrap_or(false)
            }
            // A pool that is not there may be a mistake of the user's, and a name that is not may be gone for a moment.
            libc::ENOENT | libc::ESTALE => self.is_unreachable(),
            errno => is_out_of_reach(errno),
        };
        !self.settings.require && self.state.load(Ordering::Acquire) == PLAIN && is_possible && is_unmarked()
    }

    /// Whether no process has a control file for it.
    fn is_unknown(&self) -> bool {
        let find = |fd: BorrowedFd<'_>| control::find(fd, self.settings.pool.as_deref());
        matches!(self.fds.with(false, find), Ok(None))
    }

    /// Whether the file's path, or the place where processes meet, can't be reached: after a `chroot`.
    fn is_unreachable(&self) -> bool {
        rustix::fs::lstat("/dev/shm").is_err() || self.fds.with(false, |fd| Ok(folder_of(fd).is_err())).unwrap_or(true)
    }

    fn is_in_nobodys_session(&self) -> bool {
        self.turns.door.has_come() && self.turns.door.state() & (SESSION | TRAVELS) == 0
    }

    /// The file can't be protected because of `error`: it is the kernel's from here on; or the error.
    #[cold]
    pub(super) fn leave_to_kernel(&self, inner: &mut Inner, error: Error) -> Result<()> {
        if error.errno() == libc::ESTALE && !self.is_unreachable() {
            return Err(Error::new(libc::ESTALE)); // it has got another name meanwhile: again
        }
        if !self.can_be_left(&error) {
            return Err(self.named(error));
        }
        if self.turns.door.has_come() && self.is_mapped_by_others() {
            self.release_claim(inner);
            return Err(self.named(error));
        }
        self.maps_to_kernel()?;
        self.say_left(&error);
        if inner.claim.is_some() {
            self.put_in_kernels_file()?;
        }
        self.state.store(DEMOTED, Ordering::SeqCst);
        self.late_copies_to_kernel();
        Ok(())
    }

    /// As [`leave_to_kernel`](Self::leave_to_kernel), of a process that could not even look whether there are others at the file.
    #[cold]
    pub(super) fn leave_unseen(&self, error: Error) -> Error {
        if self.can_be_left(&error) {
            if self.fds.has_writable() {
                self.say_left(&error);
            }
            self.state.store(DEMOTED, Ordering::SeqCst);
        }
        self.named(error)
    }

    /// What a process needs to come to the file's door.
    pub(super) fn check_limit_of_door(&self) -> Result<()> {
        check_limit(file_size_limit(), SMALLEST)
    }

    /// Says it, but not again for the same file in a row.
    fn say_left(&self, error: &Error) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let key = (self.device.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.inode) | 1;
        if LAST.swap(key, Ordering::Relaxed) == key {
            return;
        }
        let path = self.path.to_string_lossy();
        let text = error.to_string();
        let why = text.strip_prefix(&*path).map_or(&*text, |rest| rest.trim_start_matches(": "));
        crate::sys::notice(&format!(
            "{path}: handed back to the kernel because it can't be protected ({why}): from here on it is an ordinary file"
        ));
    }
}

/// Whether this process may surely not make a journal beside the file, or not mark it.
fn may_not_protect(fd: BorrowedFd<'_>) -> bool {
    let is_denied = |answer: rustix::io::Result<()>| matches!(answer, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS));
    let Ok((folder, _)) = folder_of(fd) else { return true };
    let beside = accessat(&folder, BESIDE, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    let can_make = match beside {
        Err(Errno::NOENT) => accessat(folder.as_fd(), ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS),
        answer => answer,
    };
    is_denied(can_make) || !mark::can_be_changed(fd)
}
