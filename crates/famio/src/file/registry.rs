//! The atomic files of this process, by device and inode.

use super::AtomicFile;
use std::sync::{Arc, Mutex, MutexGuard};

static FILES: Mutex<Vec<Arc<AtomicFile>>> = Mutex::new(Vec::new());

/// Locks the list. Few files are atomic: a list is enough.
pub(super) fn files() -> MutexGuard<'static, Vec<Arc<AtomicFile>>> {
    FILES.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// In a forked child: the list, unless another thread of the parent had it locked at the fork.
pub(super) fn files_after_fork() -> Option<MutexGuard<'static, Vec<Arc<AtomicFile>>>> {
    FILES.try_lock().ok()
}
