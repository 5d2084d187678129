//! Descriptions that no descriptor has any more: calls may still use them; after that they are free, to be used again.

use super::description::{Description, Subject};
use crate::file::background_bell;
use crate::file::{Grace, give_way};
use crate::posix::call::lock::{Lock, not_reentered};
use crate::thread::Held;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A list through `Description::next`, under [`LOCK`].
type List = AtomicPtr<Description>;

/// With a file still, which calls may be using.
static LEAVING: List = AtomicPtr::new(ptr::null_mut());
/// Without.
static FREE: List = AtomicPtr::new(ptr::null_mut());
static LOCK: Lock = Lock::new();

fn push(list: &List, description: &'static Description) {
    description.next.store(list.load(Ordering::Relaxed), Ordering::Relaxed);
    list.store(ptr::from_ref(description).cast_mut(), Ordering::Relaxed);
}

fn pop(list: &List) -> Option<&'static Description> {
    // SAFETY: what is in a list was leaked, so it is valid for ever, and only the lock's holder takes it out.
    let first = unsafe { list.load(Ordering::Relaxed).as_ref() }?;
    list.store(first.next.load(Ordering::Relaxed), Ordering::Relaxed);
    Some(first)
}

/// A vacant description.
pub(in crate::posix) fn take() -> &'static Description {
    let free = {
        let _guard = LOCK.lock();
        pop(&FREE)
    };
    free.unwrap_or_else(|| Box::leak(Box::new(Description::vacant())))
}

/// The count of `description` has become zero; it is in no table.
#[cold]
pub(in crate::posix) fn give(description: &'static Description) {
    // The parent's file: its destructor is not for this process. And in a signal handler the lists may be locked by this
    // very thread. The description is then never used again.
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
        background_bell::remind(); // somebody is in a long call
    }
}

/// Frees those that no call uses any more. Whether others are left.
pub(in crate::posix) fn sweep() -> bool {
    let mut files: Vec<Option<Subject>> = Vec::new();
    let left = {
        let _guard = LOCK.lock();
        let stay = AtomicPtr::new(ptr::null_mut());
        while let Some(description) = pop(&LEAVING) {
            // SAFETY: under the lock; its list is popped here only.
            if unsafe { &mut *description.grace.get() }.is_over() {
                // SAFETY: the count is zero, and no call that could have found the description is inside any more.
                files.push(unsafe { (*description.subject.get()).take() });
                push(&FREE, description);
            } else {
                push(&stay, description);
            }
        }
        LEAVING.store(stay.into_inner(), Ordering::Relaxed);
        !LEAVING.load(Ordering::Relaxed).is_null()
    };
    // With no lock: a file's end takes a while. In one piece, for handlers.
    let _held = Held::of_process();
    drop(files);
    left
}

/// In a forked child: the lists may have been in another thread's hands.
pub(in crate::posix) fn forget() {
    LOCK.reset();
    FREE.store(ptr::null_mut(), Ordering::Relaxed);
    LEAVING.store(ptr::null_mut(), Ordering::Relaxed);
}
