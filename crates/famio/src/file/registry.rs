//! The atomic files of this process, by device and inode.

use super::AtomicFile;
use crate::thread::{ForkMutex, Guard, Held, current};
use std::collections::BTreeMap;
use std::sync::Arc;

/// By device and inode: a program may have thousands.
pub(super) type List = BTreeMap<(u64, u64), Arc<AtomicFile>>;

static FILES: ForkMutex<List> = ForkMutex::new(BTreeMap::new());

/// Locks the list.
pub(super) fn files() -> Guard<'static, List> {
    FILES.lock()
}

impl AtomicFile {
    /// The atomic file of this process with that device and inode, if it is open.
    pub fn find(device: u64, inode: u64) -> Option<Arc<Self>> {
        files().get(&(device, inode)).cloned()
    }
}

/// Before a fork: keeps the list for the child, even if another thread is about to hold it at that moment, as a last
/// close does until its checkpoint is done.
pub(crate) fn remember_for_child() {
    forget_for_child(); // of a fork that was never made
    let list = Box::new(files().clone());
    current().inheritance.set(Box::into_raw(list).expose_provenance());
}

/// After a fork, in the parent.
pub(crate) fn forget_for_child() {
    let _held = Held::of_process(); // uninterrupted, for signal handlers
    drop(remembered());
}

/// What this thread has kept for its child.
fn remembered() -> Option<Box<List>> {
    let list = core::ptr::with_exposed_provenance_mut::<List>(current().inheritance.replace(0));
    // SAFETY: null, or made by `remember_for_child` on this thread (in the child: on the one that forked), and taken
    // once.
    (!list.is_null()).then(|| unsafe { Box::from_raw(list) })
}

/// In a forked child: the parent's files, which are not the child's. Empty if another thread of the parent held the
/// list, and the fork was a signal handler's.
pub(super) fn inherited() -> Vec<Arc<AtomicFile>> {
    let known = remembered().map_or(List::new(), |list| *list);
    let mut all: Vec<_> = known.values().cloned().collect();
    let since = FILES.begin_child().unwrap_or_default();
    let is_new = |(key, file): &(_, Arc<AtomicFile>)| known.get(key).is_none_or(|known| !Arc::ptr_eq(known, file));
    all.extend(since.into_iter().filter(is_new).map(|(_, file)| file));
    all
}
