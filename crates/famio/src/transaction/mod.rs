//! Transactions: changes of atomic files that are committed as a whole or never happen (vNVML, sections 3 and 4).
//!
//! A transaction keeps its writes in the process's memory, and holds no lock: any number may be open at once, and a
//! forgotten one hinders no other thread or process. Reads show what an ordinary read shows, overlaid with the
//! transaction's own writes. [`AtomicFile::commit_transaction`] commits it; an abort drops the writes.

mod deadline;
mod part;

use crate::error::{Error, Result};
use crate::file::transaction::{check_joint, commit_joint};
use crate::file::{AtomicFile, UserBuf};
use core::time::Duration;
use deadline::Deadline;
use part::Part;
pub(crate) use part::of_parent;
use std::sync::Arc;

const NOT_DURABLE: &str = "a transaction of several files is a SYNC of them";

/// A transaction that has neither been committed nor aborted. Dropping it aborts it.
pub(crate) struct Transaction {
    part: Part,
    /// The parts of files that have joined.
    others: Vec<Part>,
    checks: bool,
    /// Its commit is a SYNC.
    durable: bool,
    deadline: Deadline,
    /// Its time limit has passed: its writes are dropped.
    is_over: bool,
}

impl Transaction {
    /// Begins one. `checks`: its commit fails if what it read or overwrote has changed.
    ///
    /// # Errors
    /// `EBADF`: the file is not open for writing. `ECHILD`: it is the parent's. With `checks`: those of a first
    /// write.
    pub fn begin(file: &Arc<AtomicFile>, checks: bool) -> Result<Self> {
        let mut part = Part::new(file.clone());
        part.is_usable()?;
        if checks {
            part.begin_to_see()?;
        }
        Ok(Self { part, others: Vec::new(), checks, durable: true, deadline: Deadline::none(), is_over: false })
    }

    /// Makes the commit check for changes.
    ///
    /// # Errors
    /// `EINVAL`: it has already read or written. Those of [`begin`](Self::begin).
    pub fn check(&mut self) -> Result<()> {
        self.may_go_on()?;
        if self.checks {
            return Ok(());
        }
        if self.parts().any(Part::is_touched) {
            let what = "a transaction that is to be checked says so before it reads or writes";
            return Err(self.part.named(Error::with(libc::EINVAL, what)));
        }
        self.part.begin_to_see()?;
        self.others.iter_mut().try_for_each(Part::begin_to_see)?;
        self.checks = true;
        Ok(())
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        core::iter::once(&self.part).chain(&self.others)
    }

    /// Adds a file: the commit covers all files or none. Does nothing if the file has joined already.
    ///
    /// # Errors
    /// As [`begin`](Self::begin). `EINVAL`: the commit is not to be a SYNC, which is impossible with several files.
    /// `ETIMEDOUT`.
    pub fn join(&mut self, file: &Arc<AtomicFile>) -> Result<()> {
        self.may_go_on()?;
        if self.parts().any(|part| part.is_of(file)) {
            return Ok(());
        }
        let mut part = Part::new(file.clone());
        if !self.durable {
            return Err(part.named(Error::with(libc::EINVAL, NOT_DURABLE)));
        }
        part.is_usable()?;
        if self.checks {
            part.begin_to_see()?;
        }
        self.others.push(part);
        Ok(())
    }

    /// Sets whether its commit is a SYNC; otherwise it becomes part of the open epoch.
    pub fn set_durable(&mut self, durable: bool) {
        self.durable = durable;
    }

    /// Ends the transaction when this time has passed: later calls fail.
    pub fn set_time_limit(&mut self, limit: Option<Duration>) {
        self.deadline = limit.map_or(Deadline::none(), Deadline::after);
    }

    /// # Errors
    /// `ETIMEDOUT`: its time limit has passed, now or before. `ECHILD`, `EBADF`: as in [`begin`](Self::begin).
    #[inline]
    fn may_go_on(&mut self) -> Result<()> {
        if self.is_over || self.deadline.is_over() {
            self.is_over = true;
            self.part.forget();
            self.others.iter_mut().for_each(Part::forget);
            let what = "the transaction came to its time limit, and is aborted";
            return Err(self.part.named(Error::with(libc::ETIMEDOUT, what)));
        }
        self.part.is_usable()
    }

    /// As [`may_go_on`](Self::may_go_on), for calls that do not need the file yet: if it is closed, the commit
    /// reports that.
    #[inline]
    fn may_write_on(&mut self) -> Result<()> {
        if self.is_over || self.deadline.is_over() || self.part.is_parents() { self.may_go_on() } else { Ok(()) }
    }

    /// Writes at `offset`, in memory.
    ///
    /// # Errors
    /// `ETIMEDOUT`, `ECHILD`. `EFBIG`, `ENOMEM`, `EFAULT`: nothing was written.
    ///
    /// # Safety
    /// The buffer may be read; it may also be a bad address.
    #[inline]
    pub unsafe fn write(&mut self, file: &Arc<AtomicFile>, offset: u64, buf: UserBuf) -> Result<()> {
        self.may_write_on()?;
        // SAFETY: the caller's promise.
        unsafe { self.part_of(file)?.write(offset, buf) }
    }

    /// The last `len` bytes that were written to a file, as the commit will write them: the caller's memory may have
    /// changed since.
    ///
    /// # Errors
    /// `EXDEV`: the file has not joined.
    pub fn last_written(&mut self, file: &Arc<AtomicFile>, len: usize) -> Result<&[u8]> {
        Ok(self.part_of(file)?.last_written(len))
    }

    /// As [`write`](Self::write), from readable memory.
    ///
    /// # Errors
    /// As there, except `EFAULT`.
    #[inline]
    pub fn write_slice(&mut self, file: &Arc<AtomicFile>, offset: u64, bytes: &[u8]) -> Result<()> {
        self.may_write_on()?;
        self.part_of(file)?.write_slice(offset, bytes)
    }

    /// Reads from `offset`: what the file shows, overlaid with the transaction's own writes. Returns fewer bytes at
    /// the end.
    ///
    /// # Errors
    /// `ETIMEDOUT`, `ECHILD`, `EBADF`. Those of a read. With checks: `EAGAIN`: what it has read has changed, so its
    /// commit would fail.
    ///
    /// # Safety
    /// The buffer may be overwritten; it may also be a bad address.
    pub unsafe fn read(&mut self, file: &Arc<AtomicFile>, offset: u64, buf: UserBuf) -> Result<usize> {
        self.may_go_on()?;
        // SAFETY: the caller's promise.
        unsafe { self.part_of(file)?.read(offset, buf) }
    }

    /// Sets the size, in memory.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn set_size(&mut self, file: &Arc<AtomicFile>, size: u64) -> Result<()> {
        self.may_go_on()?;
        self.part_of(file)?.set_size(size)
    }

    /// The size that the file will have after the commit.
    ///
    /// # Errors
    /// `ETIMEDOUT`, `ECHILD`, `EBADF`.
    pub fn size(&mut self, file: &Arc<AtomicFile>) -> Result<u64> {
        self.may_go_on()?;
        Ok(self.part_of(file)?.size())
    }

    /// Commits the transaction, which ends in any case.
    ///
    /// # Errors
    /// `ETIMEDOUT`, `ECHILD`, `EBADF`. Those of [`AtomicFile::commit_transaction`].
    pub fn commit(mut self) -> Result<()> {
        self.may_go_on()?;
        if self.others.is_empty() {
            return self.part.commit(self.durable);
        }
        self.commit_all()
    }

    #[cold]
    fn commit_all(&self) -> Result<()> {
        self.others.iter().try_for_each(Part::is_usable)?;
        if !self.durable {
            return Err(self.part.named(Error::with(libc::EINVAL, NOT_DURABLE)));
        }
        let parts: Vec<&Part> = self.parts().filter(|part| part.has_work()).collect();
        let shares: Vec<_> = parts.iter().map(|part| part.share()).collect();
        if shares.len() > 1 {
            check_joint(&shares)?;
        }
        // What was written to files that the transaction has at most read: what it writes may depend on it.
        self.parts().filter(|part| !part.has_work()).try_for_each(|part| part.commit(true))?;
        match parts[..] {
            [] => Ok(()),
            [only] => only.commit(true),
            _ => commit_joint(shares),
        }
    }

    #[inline]
    fn part_of(&mut self, file: &Arc<AtomicFile>) -> Result<&mut Part> {
        if self.part.is_of(file) {
            return Ok(&mut self.part);
        }
        if let Some(part) = self.others.iter_mut().find(|part| part.is_of(file)) {
            return Ok(part);
        }
        Err(Part::new(file.clone()).named(Error::with(libc::EXDEV, "it is not a file of this transaction")))
    }
}
