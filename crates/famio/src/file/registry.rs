//! The atomic files of this process, by device and inode.

use super::AtomicFile;
use crate::thread::{Guard, Held, Mutex, current};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

type List = Vec<Arc<AtomicFile>>;

static FILES: Mutex<List> = Mutex::new(Vec::new());
/// Null: [`FILES`]. A child whose parent was changing the list at the fork has one of its own: that one stays locked for ever.
static OF_CHILD: AtomicPtr<Mutex<List>> = AtomicPtr::new(null_mut());

fn list() -> &'static Mutex<List> {
    // SAFETY: null, or leaked by `inherited`.
    unsafe { OF_CHILD.load(Ordering::Acquire).as_ref() }.unwrap_or(&FILES)
}

/// Locks the list. Few files are atomic: a list is enough.
pub(super) fn files() -> Guard<'static, List> {
    list().lock()
}

/// Before a fork: what the child is told of, though another thread should be at the list at that moment, which a last close
/// is until the file is settled.
pub(crate) fn remember_for_child() {
    forget_for_child(); // of a fork that was never made
    let list = Box::new(files().clone());
    current().inheritance.set(Box::into_raw(list).expose_provenance());
}

/// After a fork, in the parent.
pub(crate) fn forget_for_child() {
    let _held = Held::of_process(); // in one piece, for handlers
    drop(remembered());
}

/// What this thread has kept for its child.
fn remembered() -> Option<Box<List>> {
    let list = core::ptr::with_exposed_provenance_mut::<List>(current().inheritance.replace(0));
    // SAFETY: null, or made by `remember_for_child` on this thread (in the child: on the one that forked), and taken once.
    (!list.is_null()).then(|| unsafe { Box::from_raw(list) })
}

/// In a forked child: the parent's files, which are the child's no longer. Where another thread of the parent was at the list,
/// and the fork was a signal handler's, none.
pub(super) fn inherited() -> List {
    let mut all = remembered().map_or(Vec::new(), |list| *list);
    match list().try_lock() {
        Some(mut list) => {
            let mut since = core::mem::take(&mut *list);
            since.retain(|file| !all.iter().any(|known| Arc::ptr_eq(known, file)));
            all.append(&mut since);
        }
        None => OF_CHILD.store(Box::leak(Box::new(Mutex::new(Vec::new()))), Ordering::Release),
    }
    all
}
