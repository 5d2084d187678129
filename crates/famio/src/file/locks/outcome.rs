//! How a lock call is carried out: in memory, or by the kernel.

use super::{AtomicFile, Kind, Lock, Owner, Range};
use core::sync::atomic::Ordering;

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
            Owner::OtherProcess(_) | Owner::Description(_) => Self::Description,
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
    pub(super) file: Option<&'a AtomicFile>,
    /// It waits there, and other processes know.
    pub(super) waits: bool,
    /// The lock table's count of changes when the locks were the kernel's, if the process uses the table.
    pub(super) seen: Option<u32>,
}

impl<'a> InKernel<'a> {
    /// Counted in `Locks::place`.
    pub(super) fn of(file: &'a AtomicFile) -> Self {
        Self { file: Some(file), waits: false, seen: None }
    }

    /// For a file whose locks are the kernel's for good.
    pub fn uncounted() -> Self {
        Self { file: None, waits: false, seen: None }
    }

    /// Whether other processes know that the call may wait there.
    pub fn is_known(&self) -> bool {
        self.waits
    }

    /// The kernel has refused a lock: whether to ask again, since locks may have moved to or from the table since the call
    /// was begun, or this process did not use the table, and does from now on.
    pub fn may_have_moved(&self) -> bool {
        self.file.is_some_and(|file| file.may_locks_have_moved(self.seen))
    }

    /// The kernel has given a lock of that kind. Whether it holds: another process may have taken and lost the cover since
    /// the call was begun, with locks in the table meanwhile. Otherwise the call is to be undone and made again.
    pub fn holds(&self, owner: Owner, kind: Kind, range: Range) -> bool {
        let (Some(file), Some(seen)) = (self.file, self.seen) else { return true };
        file.is_lock_good(seen, Lock { owner, kind, range })
    }

    /// The call has ended, and has released something.
    pub fn unlocked(self) {
        let file = self.file;
        drop(self);
        let Some(file) = file else { return };
        if file.locks.wants_cover.load(Ordering::Relaxed) && AtomicFile::may_wait().is_ok() {
            file.try_cover();
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
            if self.waits {
                let _ = file.with_locked_table(|_, locked| locked.table().set_waits_in_kernel(false));
            }
            file.locks.place.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
