//! The beginning of a journal: it becomes durable, then the mark, and the journal counts.

use super::{ACTIVE, FAILED, FIRST, Live, MARK, NOTHING, demoted_by};
use crate::error::{Error, Result};
use crate::journal::demotion_note;
use crate::journal::header::{Kind, State};
use crate::journal::mark::{self, Mark};
use crate::rule::{Rule, holds, in_order};
use crate::settings::Durability;
use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};

impl Live {
    /// The journal is complete: makes it durable, with its name, marks the file, durably, and then stores state
    /// *active*. Commits, and stores to the file, may follow.
    ///
    /// A journal of records, whose file is not stored to before the first commit, becomes *as marked* instead. Where the
    /// order is kept, its first commit makes mark and journal durable, with its records.
    pub fn activate(&self, file: BorrowedFd<'_>) -> Result<()> {
        let mark = self.mark()?;
        let is_of_records = self.header.lock().kind == Kind::Records && holds(Rule::MarkBeforeActive);
        if is_of_records {
            self.store(State::AsMarked)?;
        }
        // With the mark, the file becomes durable as it was found: from here on, a crash takes it back to that.
        let set_mark = || {
            let due = match (is_of_records, self.keeps_order.load(Ordering::Relaxed)) {
                (true, true) => MARK,
                (true, false) => FIRST,
                (false, _) => NOTHING,
            };
            if due == MARK {
                self.medium.write_out(file)?;
            }
            mark::set(file, &mark)?;
            // A process that notes this looks for a mark afterwards. So one of the two sees the other.
            if let Some(pid) = demotion_note::of_another_at_begin(file) {
                return Err(demoted_by(pid));
            }
            self.due.store(due, Ordering::Relaxed);
            if due == MARK { Ok(()) } else { mark::persist(file, self.durability, self.medium) }
        };
        in_order(
            Rule::MarkBeforeActive,
            || in_order(Rule::JournalBeforeMark, || self.persist_before_mark(), set_mark),
            || if is_of_records { Ok(()) } else { self.store(State::Active) },
        )?;
        *self.made_in.lock() = None;
        Ok(())
    }

    /// Whether the next commit has to make the mark durable.
    pub fn awaits_mark(&self) -> bool {
        [MARK, FAILED].contains(&self.due.load(Ordering::Relaxed))
    }

    /// Before a commit that is not an append to the journal: makes it count.
    ///
    /// # Errors
    /// Those of the flushes. After one, no later call succeeds (`Rule::FailedFlushIsForGood`).
    pub fn make_mark_durable(&self, file: BorrowedFd<'_>) -> Result<()> {
        match self.due.load(Ordering::Relaxed) {
            MARK => self.flush_with_mark(file).inspect_err(|_| {
                if holds(Rule::FailedFlushIsForGood) {
                    self.due.store(FAILED, Ordering::Relaxed);
                }
            }),
            FAILED => Err(Error::with(libc::EIO, "a flush of the journal failed earlier: it takes no more commits")),
            _ => Ok(()),
        }
    }

    fn flush_with_mark(&self, file: BorrowedFd<'_>) -> Result<()> {
        let journal = || {
            if self.write_out()? && self.change_mark(file)? {
                return Ok(());
            }
            // Its name is durable with the mark, or was so before the mark was set.
            self.file.run(|journal| self.medium.fsync(journal.as_fd()))
        };
        let mark = || mark::persist(file, self.durability, self.medium);
        in_order(Rule::RecordsBeforeMark, journal, mark)?;
        self.header.lock().was_flushed();
        self.due.store(ACTIVE, Ordering::Relaxed);
        Ok(())
    }

    /// Changes the bytes of the mark. The flush of a file makes durable what its file system changed up to the file's own
    /// last change, and nothing more: of what was written out after the mark was set, the disk has the bytes then, but
    /// not where they are. Returns whether it could.
    fn change_mark(&self, file: BorrowedFd<'_>) -> Result<bool> {
        if !holds(Rule::MarkChangesWithRecords) {
            return Ok(true);
        }
        match mark::replace(file, &Mark { is_committing: true, ..self.mark()? }) {
            Err(e) if e.is_denied() || e.is_full() || e.errno() == libc::ENODATA => Ok(false),
            replaced => {
                self.medium.changed_name();
                replaced.map(|()| true)
            }
        }
    }

    /// Makes a new journal and its name durable, where that matters: size, owner and mode, too. One flush of the disk
    /// takes most of it: the folders have nothing left where the file system commits all at once. Where the order is
    /// kept, the flush of the mark takes all of it.
    pub(super) fn persist_before_mark(&self) -> Result<()> {
        if self.durability == Durability::Power && !self.write_out()? {
            self.file.run(|journal| self.medium.fsync(journal.as_fd()))?;
        }
        let is_written_out = self.keeps_order.load(Ordering::Relaxed);
        self.header.lock().has_begun(!is_written_out);
        if is_written_out {
            return Ok(());
        }
        self.made_in.lock().as_ref().map_or(Ok(()), |pool| pool.sync(self.durability, self.medium))
    }

    /// Where the file system keeps the order: writes the journal to the disk, so that it is there after a crash if a
    /// later change of the mark is. Returns whether it did; a sandbox may forbid it.
    pub(super) fn write_out(&self) -> Result<bool> {
        self.write_out_by(|| self.file.run(|journal| self.medium.write_out(journal.as_fd())))
    }

    /// As [`write_out`](Self::write_out), of what `write` writes to the disk.
    pub(super) fn write_out_by(&self, write: impl FnOnce() -> Result<()>) -> Result<bool> {
        if self.keeps_order.load(Ordering::Relaxed) {
            match write() {
                Err(e) if [libc::ENOSYS, libc::EPERM].contains(&e.errno()) => {
                    self.keeps_order.store(false, Ordering::Relaxed);
                }
                written => written?,
            }
        }
        Ok(self.keeps_order.load(Ordering::Relaxed))
    }
}
