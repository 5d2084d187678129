//! The atomic files of this process, by device and inode.

use super::AtomicFile;
use crate::thread::{Guard, Mutex};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

type List = Vec<Arc<AtomicFile>>;

static FILES: Mutex<List> = Mutex::new(Vec::new());
/// Used by a child whose parent was changing the list at the fork: that one stays locked for ever.
static FILES_OF_CHILD: Mutex<List> = Mutex::new(Vec::new());
static ORPHANED: AtomicBool = AtomicBool::new(false);

/// Locks the list. Few files are atomic: a list is enough.
pub(super) fn files() -> Guard<'static, List> {
    let list = if ORPHANED.load(Ordering::Acquire) { &FILES_OF_CHILD } else { &FILES };
    list.lock()
}

/// In a forked child: the parent's files, which are the child's no longer. Empty where another thread of the parent was at
/// the list.
pub(super) fn inherited() -> List {
    match FILES.try_lock() {
        Some(mut list) => core::mem::take(&mut *list),
        None => {
            ORPHANED.store(true, Ordering::Release);
            Vec::new()
        }
    }
}
