//! Descriptions without descriptors: calls may still be using them; after that they are free for reuse.

use super::description::{Description, Subject};
use crate::file::background_wakeup;
use crate::file::{Grace, give_way};
use crate::posix::call::lock::{Lock, not_reentered};
use crate::thread::Held;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A list through `Description::next`, under [`LOCK`].
type List = AtomicPtr<Description>;

/// Descriptions that still have a file, which calls may be using.
static LEAVING: List = AtomicPtr::new(ptr::null_mut());
/// Free descriptions.
static FREE: List = AtomicPtr::new(ptr::null_mut());
static LOCK: Lock = Lock::new();

fn push(list: &List, description: &'static Description) {
    description.next.store(list.load(Ordering::Relaxed), Ordering::Relaxed);
    list.store(ptr::from_ref(description).cast_mut(), Ordering::Relaxed);
}

fn pop(list: &List) -> Option<&'static Description> {
    // SAFETY: descriptions in a list were leaked, so they are valid forever; only the lock's holder takes one out.
    let first = unsafe { list.load(Ordering::Relaxed).as_ref() }?;
    list.store(first.next.load(Ordering::Relaxed), Ordering::Relaxed);
    Some(first)
}

/// A free description.
pub(in crate::posix) fn take() -> &'static Description {
    let free = {
        let _guard = LOCK.lock();
        pop(&FREE)
    };
    free.unwrap_or_else(|| Box::leak(Box::new(Description::vacant())))
}

/// Takes `description`, whose count has become zero and which is in no table.
#[cold]
pub(in crate::posix) fn give(description: &'static Description) {
    // The file of a parent must not be destroyed by this process. In a signal handler, this very thread may hold the
    // lock of the lists. In both cases the description is never reused.
    if !description.is_ours() || not_reentered().is_err() {
        return;
    }
    {
        let _guard = LOCK.lock();
        // SAFETY: under the lock, and in no list yet.
        unsafe { *description.grace.get() = Grace::new() };
        push(&LEAVING, description);
    }
    if !give_way(|| !sweep()) {
        background_wakeup::remind(); // a long call is still under way
    }
}

/// Frees the descriptions that no call uses any more. Returns whether any are left.
pub(in crate::posix) fn sweep() -> bool {
    let mut files: Vec<Option<Subject>> = Vec::new();
    let left = {
        let _guard = LOCK.lock();
        let stay = AtomicPtr::new(ptr::null_mut());
        while let Some(description) = pop(&LEAVING) {
            // SAFETY: under the lock; only this function takes elements out of this list.
            if unsafe { &mut *description.grace.get() }.is_over() {
                // SAFETY: the count is zero, and every call that could have found the description has ended.
                files.push(unsafe { (*description.subject.get()).take() });
                push(&FREE, description);
            } else {
                push(&stay, description);
            }
        }
        LEAVING.store(stay.into_inner(), Ordering::Relaxed);
        !LEAVING.load(Ordering::Relaxed).is_null()
    };
    // Without the lock, since dropping a file takes a while. One uninterrupted section for signal handlers.
    let _held = Held::of_process();
    drop(files);
    left
}

/// In a forked child: another thread of the parent may have been changing the lists.
pub(in crate::posix) fn forget() {
    LOCK.reset();
    FREE.store(ptr::null_mut(), Ordering::Relaxed);
    LEAVING.store(ptr::null_mut(), Ordering::Relaxed);
}
