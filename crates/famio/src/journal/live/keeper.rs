//! What a log of records needs of its journal: the header, and flushes.

use super::{ACTIVE, FIRST, Live, NOTHING};
use crate::error::{Error, Result};
use crate::journal::header::{Header, State, first_bytes};
use crate::journal::records::Keeper;
use crate::sys::InternalFd;
use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};

impl Keeper for Live {
    fn journal(&self) -> &InternalFd {
        &self.file
    }

    fn header(&self) -> Header {
        self.header.lock().clone()
    }

    fn stores(&self) -> u64 {
        self.header.lock().stores()
    }

    fn read_again(&self) -> Result<()> {
        let mut header = self.header.lock();
        let (bytes, length) = self.file.run(|journal| first_bytes(journal.as_fd()))?;
        let (there, _) = Header::read(&bytes[..length])?;
        if there.journal_id != header.journal_id {
            return Err(Error::with(libc::EIO, format!("journal {}: it was replaced", self.path.display())));
        }
        *header = there;
        Ok(())
    }

    fn change(&self, journal: &dyn AsFd, change: &mut dyn FnMut(&mut Header)) -> Result<()> {
        let mut header = self.header.lock();
        change(&mut header);
        // Not durable for a new journal: `activate` makes all of that durable.
        header.store(journal, self.medium).map_err(|e| e.context(format_args!("journal {}", self.path.display())))
    }

    fn flush(&self, file: Option<BorrowedFd<'_>>) -> Result<()> {
        match (self.due.load(Ordering::Relaxed), file) {
            (_, Some(file)) if self.awaits_mark() => self.make_mark_durable(file),
            (ACTIVE, _) if self.state() == State::AsMarked => {
                self.store(State::Active)?; // its flush of the journal takes the records, too
                self.due.store(NOTHING, Ordering::Relaxed);
                Ok(())
            }
            (due, _) => {
                self.file.run(|journal| self.medium.fdatasync(journal.as_fd()))?;
                if due == FIRST {
                    self.due.store(ACTIVE, Ordering::Relaxed);
                }
                Ok(())
            }
        }
    }
}
