//! The end of a journal: everything is in the file, the mark goes, and then the journal.

use super::Live;
use crate::error::{Error, Result};
use crate::journal::header::{Kind, LEN, State};
use crate::journal::mark::{self, Mark};
use crate::journal::pools::pool::{Pool, is_beside_name};
use crate::journal::records::Keeper;
use crate::rule::{Rule, in_order};
use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// What has become of a journal's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Removed {
    Gone,
    /// Its folder was not found.
    OutOfReach,
    /// The process lacks the right, or room for the removal of the mark.
    Denied,
}

impl Live {
    /// Everything was written to the file: makes that durable; or, where the order is kept, writes it to the disk, and
    /// [`retire`](Self::retire) makes it durable.
    pub fn persist_before_end(&self, file: BorrowedFd<'_>) -> Result<()> {
        if self.write_out_by(|| self.medium.write_out(file))? { Ok(()) } else { self.medium.fdatasync(file) }
    }

    /// Stores a state that is a leftover's once the mark is gone: durably, or as [`write_out`](Self::write_out) does.
    pub(super) fn store_end_before_unmark(&self) -> Result<()> {
        if self.state() == State::AsMarked {
            return Ok(()); // and so it was, durably, before the mark was
        }
        if !self.keeps_order.load(Ordering::Relaxed) {
            return self.store(State::Clean);
        }
        {
            let mut header = self.header.lock();
            header.state = State::AsMarked;
            self.file.run(|journal| header.store_one_copy(journal, self.medium))?;
        }
        if self.write_out()? { Ok(()) } else { self.file.run(|journal| self.medium.fdatasync(journal.as_fd())) }
    }

    /// Everything is in the file, as after [`persist_before_end`](Self::persist_before_end): stores state *clean*, or
    /// *as marked*, removes the mark from the file, durably, and with it all that the file has, and removes the journal.
    /// After an error, the journal takes no more commits, since recovery might not replay them.
    pub fn retire(&self, file: BorrowedFd<'_>) -> Result<()> {
        // A process that lacks the rights by now (it has dropped them, or the file has another owner), or for which a
        // full disk has no room even to remove a mark, leaves both: a clean journal is never replayed.
        let is_marked = core::cell::Cell::new(false);
        let unmark = || {
            let is_durable = self.mark_as_closing(file)?;
            match self.unmark(file) {
                Err(e) if e.is_denied() || e.is_full() => {
                    is_marked.set(true);
                    self.make_clean(file)
                }
                Ok(()) if is_durable => {
                    self.medium.changed_name();
                    Ok(()) // that it is gone need not be durable
                }
                removed => removed.and_then(|()| mark::persist(file, self.durability, self.medium)),
            }
        };
        let remove = || {
            let removed = if is_marked.get() { Ok(Removed::Denied) } else { self.remove(file) };
            let removed = removed.or_else(|e| if e.is_denied() { Ok(Removed::Denied) } else { Err(e) })?;
            self.is_left.store(removed == Removed::Denied, Ordering::Release);
            // The file may be deleted later: without it, nothing tells that the journal has ended.
            if removed == Removed::Gone { Ok(()) } else { self.make_clean(file) }
        };
        let ended = in_order(
            Rule::CleanBeforeMarkGoes,
            || self.store_end_before_unmark(),
            || in_order(Rule::MarkGoesBeforeJournal, unmark, remove),
        );
        self.leave();
        ended // not synced: one that reappears after a power cut, clean or without a mark, is never replayed
    }

    /// Whether [`retire`](Self::retire) has left it, with or without its mark, for lack of rights or room.
    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Where the order is kept: changes the mark to one that counts for nothing after this boot, durably, and with it all
    /// that the file has. If the flush fails, what the file had may be lost, and the next open recovers it. Returns
    /// whether it did: not if it may not change the mark.
    #[inline(never)] // it has a name in the simulator's list of flushes
    fn mark_as_closing(&self, file: BorrowedFd<'_>) -> Result<bool> {
        if !self.keeps_order.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let pending = self.mark()?;
        match mark::replace(file, &Mark { is_closing: true, ..pending.clone() }) {
            Err(e) if e.is_denied() || e.is_full() || e.errno() == libc::ENODATA => {
                self.medium.fdatasync(file)?;
                return Ok(false);
            }
            replaced => replaced?,
        }
        if let Err(error) = mark::persist(file, self.durability, self.medium) {
            let _ = mark::replace(file, &pending); // another boot counts on the journal, too
            return Err(error);
        }
        Ok(true)
    }

    /// Where the mark stays, the state has to be *clean*, and nothing of the file only written to the disk.
    fn make_clean(&self, file: BorrowedFd<'_>) -> Result<()> {
        if self.state() == State::Clean {
            return Ok(());
        }
        self.medium.fdatasync(file)?;
        self.store(State::Clean)
    }

    /// Removes the mark; the *clean* journal gives its room for that, unless it is mapped.
    fn unmark(&self, file: BorrowedFd<'_>) -> Result<()> {
        mark::remove_with_room(file, || match self.header().kind {
            Kind::Records => {
                self.make_clean(file)?;
                self.file.run(|journal| self.medium.ftruncate(journal.as_fd(), LEN as u64))
            }
            Kind::InPlace | Kind::Tiered => Err(Error::new(libc::ENOSPC)),
        })
    }

    /// Removes the journal from where it was made, or else from where the file's pool is now: folders may have been
    /// moved.
    fn remove(&self, file: BorrowedFd<'_>) -> Result<Removed> {
        let own = self.file.identity();
        // By its path, which needs no descriptor: none may be left.
        let place = self.place();
        if remove_if(&place, own)? {
            return Ok(Removed::Gone);
        }
        let made = self.path.parent().and_then(|folder| Pool::at(folder, None).ok());
        let now = || Pool::find(file, self.pool.as_deref()).ok().flatten();
        for pool in made.into_iter().chain(now()) {
            let found = pool.open_read_only(&self.name, None).ok().flatten();
            let found = found.and_then(|journal| rustix::fs::fstat(journal).ok());
            if found.is_some_and(|found| (found.st_dev, found.st_ino) == own) {
                pool.remove(&self.name)?;
                pool.remove_if_empty();
                return Ok(Removed::Gone);
            }
        }
        Ok(Removed::OutOfReach) // a leftover
    }

    /// Undoes a creation that failed before the file was changed: removes mark and journal.
    pub fn abandon(&self, file: BorrowedFd<'_>) {
        let was_creating = matches!(self.state(), State::Creating | State::AsMarked);
        // A header that may say *active* must not outlive the mark. If it cannot be changed, both stay, and the next
        // open finds them: the file is as its first commit says.
        if self.store(State::Clean).is_err() && !was_creating {
            return;
        }
        // If the mark names another journal, that journal is in use.
        let is_ours = !matches!(mark::get(file), Ok(Some(mark)) if mark.journal_id != self.id());
        if !is_ours || self.unmark_abandoned(file, was_creating).is_ok() {
            match self.made_in.lock().take() {
                Some(pool) => {
                    let _ = pool.remove(&self.name);
                    pool.remove_if_empty();
                }
                None => {
                    let _ = self.remove(file);
                }
            }
        }
    }

    #[inline(never)] // as above
    fn unmark_abandoned(&self, file: BorrowedFd<'_>, was_creating: bool) -> Result<()> {
        match mark::remove(file) {
            Err(e) if was_creating && e.is_denied() => return Ok(()), // without the right to remove it, it was never set
            removed => removed?,
        }
        mark::persist(file, self.durability, self.medium)
    }

    /// A flush failed, so the journal takes no more commits.
    pub fn suspect(&self) {
        // Best effort: if this fails, too, the header is still right, since nothing more is committed.
        let mut header = self.header.lock();
        if header.state.can_become_suspect() {
            header.state = State::Suspect;
            let _ = self.file.run(|journal| header.store(journal, self.medium));
        }
    }
}

/// Removes the journal at this path if it is the right one, and then a `.famio/` that is empty.
pub(super) fn remove_if(path: &Path, own: (u64, u64)) -> Result<bool> {
    if !rustix::fs::lstat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == own) {
        return Ok(false);
    }
    rustix::fs::unlink(path).map_err(|e| Error::from(e).context(format_args!("journal {}", path.display())))?;
    if let Some(folder) = path.parent().filter(|folder| folder.file_name().is_some_and(is_beside_name)) {
        let _ = rustix::fs::rmdir(folder); // unless it has other journals
    }
    Ok(true)
}
