//! How a lock call is carried out: in memory, or by the kernel.

use super::waiting::Waiting;
use super::{AtomicFile, Owner};
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// The kind of lock that a call is about. A description's may also wait for others, or ask what only the kernel
/// knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Process,
    Description,
}

impl Whose {
    pub(super) fn of(owner: Owner) -> Self {
        match owner {
            Owner::Process => Self::Process,
            Owner::Description(_) => Self::Description,
        }
    }
}

/// The outcome of a call.
pub enum Outcome<'a, T> {
    /// Done, or refused with an errno.
    Done(core::result::Result<T, i32>),
    /// The caller makes the system call, and reports its result.
    Kernel(InKernel<'a>),
}

/// While a call is in the kernel the locks stay there.
pub struct InKernel<'a> {
    file: Option<&'a Arc<AtomicFile>>,
    /// The count of record locks that the kernel had given before the call.
    granted: u32,
}

impl<'a> InKernel<'a> {
    /// Counted in `Locks::place`.
    pub(super) fn of(file: &'a Arc<AtomicFile>) -> Self {
        Self { file: Some(file), granted: file.locks.keeping.granted.load(Ordering::Acquire) }
    }

    /// For a file whose locks are the kernel's for good.
    pub fn uncounted() -> Self {
        Self { file: None, granted: 0 }
    }

    /// The kernel has given a record lock.
    pub fn locked(self) {
        if let Some(file) = self.file {
            file.locks.keeping.granted.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The kernel has refused a lock for writing, or named a lock for reading that excludes it. `None`: no other process
    /// keeps locks, nor can begin to before the call returns, if it `blocks`.
    pub fn waits(&self, blocks: bool) -> Option<Waiting<'a>> {
        self.file?.waits_for_lock(blocks)
    }

    /// The call has ended, and has released something. `all`: this process has had no record lock after it.
    pub fn unlocked(self, all: bool) {
        let (file, granted) = (self.file, self.granted);
        drop(self);
        let Some(file) = file else { return };
        if all && file.locks.keeping.is_wanted.load(Ordering::Relaxed) {
            file.try_to_keep(granted);
        }
        if file.locks.leased.load(Ordering::Relaxed) && AtomicFile::may_wait().is_ok() {
            file.try_memory();
        } else if file.tries_at_unlock() && AtomicFile::may_wait().is_ok() {
            file.try_lease_at_unlock();
        }
    }
}

impl Drop for InKernel<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file {
            file.locks.place.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
