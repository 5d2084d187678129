//! A process becomes a member: it attaches to the control file. The first one looks whether a dead process has left a
//! journal.

use crate::error::Result;
use crate::file::atomic::{AtomicFile, GROWING};
use crate::index::{LIVES, SESSION};
use crate::journal::{control, known_control, path_of};
use crate::recovery::{self, Known};
use crate::sys::internal::{Undisturbed, undisturbed};
use crate::sys::{note_path, open_again};
use core::sync::atomic::Ordering;
use rustix::fs::OFlags;
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd};

/// Looks, and the time between two, at a journal that is locked though no process is attached: half a second.
const LOOKS_AT_DYING: u32 = 250;
const DYING: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

const IMMUTABLE: &[u8] =
    b": it may not be written any more (chattr -i, then open it again or run famio recover): read with what its journal has";

impl AtomicFile {
    /// Attaches to the control file, and makes it if there is none: before this process changes anything, or maps the
    /// file.
    ///
    /// # Errors
    /// `EACCES`: it may not write the file, or not its folder. `EIO`: the control file was removed while others had
    /// written.
    pub(in crate::file) fn become_member(&self) -> Result<()> {
        let membership = &self.ownership.membership;
        let is_new = !membership.is_attached();
        if is_new {
            self.attach_to_control_file().map_err(|e| self.leave_unseen(e))?;
        }
        if membership.state() & SESSION != 0 && (is_new || !LIVES.are_kept()) {
            crate::file::base::background_wakeup::watch_members(); // to notice its end
        }
        Ok(())
    }

    /// As [`become_member`](Self::become_member), of a process that is none. After an error the file stays as it is.
    pub(in crate::file) fn attach_to_control_file(&self) -> Result<()> {
        self.check_limit_of_membership()?;
        self.fds.by_a_name(|| self.fds.with(false, |fd| self.attach_by(fd)))
    }

    fn attach_by(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let pool = self.settings.pool.as_deref();
        let open = || known_control::find(fd, self.key(), pool).map_or_else(|| control::find_or_make(fd, pool), Ok);
        let membership = &self.ownership.membership;
        membership.set_device(self.key().0);
        membership.attach(open, || self.is_journal_left(fd))?;
        self.recalls_as_new_member();
        Ok(())
    }

    /// Whether this process is the only member, and a child of it could not attach: it has another root by now, or is
    /// another user.
    pub(crate) fn is_out_of_childs_reach(&self) -> bool {
        let Some(control) = self.ownership.membership.control() else { return false };
        let can_attach = || open_again(control.as_fd(), OFlags::RDWR).is_ok() && self.fds.with(false, path_of).is_ok();
        !can_attach() && !self.ownership.membership.has_others()
    }

    /// Whether there is a journal or a mark.
    fn has_journal(&self, fd: BorrowedFd<'_>, known: Known<'_>) -> Result<bool> {
        Ok(!recovery::is_ordinary(fd, known, &self.settings)?)
    }

    /// Whether a dead process has left a journal. Called by the first member.
    ///
    /// # Errors
    /// `EBUSY`: the process lives, and its control file was removed.
    fn is_journal_left(&self, fd: BorrowedFd<'_>) -> Result<bool> {
        if self.state.load(Ordering::Acquire) == GROWING {
            return Ok(false); // the mark is this process's
        }
        let mut look = 0;
        loop {
            if !self.has_journal(fd, Known::default())? {
                return Ok(false);
            }
            if !recovery::is_in_session(fd, &self.settings) {
                return Ok(true);
            }
            if look == LOOKS_AT_DYING {
                return Err(recovery::in_session());
            }
            // The kernel closes a killed process's control file before its journal.
            look += 1;
            let _ = rustix::thread::nanosleep(&DYING);
            undisturbed::renew();
        }
    }

    /// At an open: puts in order what a dead process left, unless another process is at it.
    pub(in crate::file) fn recover_if_left(&self, fd: BorrowedFd<'_>, known: Known<'_>) -> Result<()> {
        if self.is_unused_by_others(fd, known) || !self.has_journal(fd, known).unwrap_or(true) {
            return Ok(());
        }
        let attach = |fd: BorrowedFd<'_>| {
            known.path.iter().for_each(|path| note_path(fd, path));
            self.attach_by(fd).map_err(|e| match recovery::look(fd, &self.settings) {
                Err(conflict) if conflict.errno() == libc::EIO => conflict, // for example: its pool is gone
                _ => e,
            })
        };
        let undisturbed = Undisturbed::begin();
        let attached = self.check_limit_of_membership().and_then(|()| self.fds.with(false, attach));
        drop(undisturbed);
        if let Err(e) = attached {
            if self.ownership.membership.is_kept_out() || self.ownership.membership.is_full() {
                return Ok(()); // they live: writes fail, and reads of what they changed fail or visit them
            }
            if e.is_full() && recovery::has_nothing_to_recover(fd, &self.settings) {
                return Ok(()); // nothing to recover: a full disk had no room to remove the mark
            }
            if e.errno() == libc::EFBIG {
                recovery::await_end_of_session(fd, &self.settings); // of a parent, say, which is about to end
            }
            let error = self.leave_unseen(e);
            return if self.is_demoted() { Ok(()) } else { Err(error) };
        }
        if self.ownership.membership.state() & SESSION == 0 || self.ownership.membership.has_unowned() {
            return Ok(());
        }
        let recovered = self.recover_the_dead(&mut self.inner());
        match recovered {
            // The committed state can be read, and no more is possible.
            Err(_) if !self.fds.has_writable() && self.ownership.has_view(&self.fds) => {
                crate::sys::notice_parts(&[self.path.to_bytes(), IMMUTABLE]);
                Ok(())
            }
            recovered => recovered.map(|_| self.commit_kept()),
        }
    }
}
