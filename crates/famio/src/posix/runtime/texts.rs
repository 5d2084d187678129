//! The messages of each thread, on the library's own heap. They are not thread-local variables: those of libraries
//! that are loaded later (`dlopen`) have to fit into a few hundred bytes that libc keeps ready.
//!
//! A thread's texts are never freed: a thread that starts later takes over those of a thread that has ended.

use core::cell::{Cell, UnsafeCell};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::alloc::{Layout, alloc_zeroed};

/// Size of a text that C receives, with its terminating zero.
pub const SHOWN: usize = 1024;
/// Size of the longest message that is kept.
pub(in crate::posix) const MAX_TEXT_LEN: usize = 1000;

/// Zeros are a valid value.
#[repr(C)]
pub struct Texts {
    /// The kernel's id of the thread that has them; 0: no thread.
    owner: AtomicU32,
    next: AtomicPtr<Texts>,
    /// The message of the last call that failed.
    pub(in crate::posix) last: [Cell<u8>; MAX_TEXT_LEN],
    /// What `nverrmsg` has returned.
    pub message: UnsafeCell<[u8; SHOWN]>,
    /// What `nvstrerror` has returned.
    pub words: UnsafeCell<[u8; SHOWN]>,
}

/// The list of all texts.
static ALL: AtomicPtr<Texts> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    /// This thread's; null before the first use.
    static MINE: Cell<*const Texts> = const { Cell::new(ptr::null()) };
}

/// This thread's, if it has any yet.
pub(in crate::posix) fn current() -> Option<&'static Texts> {
    // SAFETY: null, or texts that are never freed.
    unsafe { MINE.get().as_ref() }
}

/// This thread's, made now if needed. `None`: no memory.
pub fn texts() -> Option<&'static Texts> {
    current().or_else(take)
}

#[cold]
fn take() -> Option<&'static Texts> {
    let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let texts = find(me).or_else(|| make(me))?;
    MINE.set(texts);
    Some(texts)
}

/// Finds the texts of a thread that has ended.
fn find(me: u32) -> Option<&'static Texts> {
    let mut at = ALL.load(Ordering::Acquire);
    // SAFETY: null, or texts that are never freed.
    while let Some(texts) = unsafe { at.as_ref() } {
        let owner = texts.owner.load(Ordering::Relaxed);
        let is_free = owner == 0 || owner == me || crate::sys::thread_is_gone(owner);
        if is_free && texts.owner.compare_exchange(owner, me, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Some(texts);
        }
        at = texts.next.load(Ordering::Acquire);
    }
    None
}

fn make(me: u32) -> Option<&'static Texts> {
    // SAFETY: the type has a size; zeros are valid for it, and no other thread has it yet.
    let texts = unsafe { alloc_zeroed(Layout::new::<Texts>()).cast::<Texts>().as_ref() }?;
    texts.owner.store(me, Ordering::Relaxed);
    let mut first = ALL.load(Ordering::Acquire);
    loop {
        texts.next.store(first, Ordering::Relaxed);
        match ALL.compare_exchange_weak(first, ptr::from_ref(texts).cast_mut(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(texts),
            Err(now) => first = now,
        }
    }
}

/// In a forked child, where only this thread exists, with a new id.
pub(in crate::posix) fn enter_child() {
    let mine = MINE.get();
    let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let mut at = ALL.load(Ordering::Acquire);
    // SAFETY: null, or texts that are never freed.
    while let Some(texts) = unsafe { at.as_ref() } {
        texts.owner.store(if ptr::eq(texts, mine) { me } else { 0 }, Ordering::Relaxed);
        at = texts.next.load(Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_living_thread_has_its_own() {
        let mine = ptr::from_ref(texts().unwrap()).addr();
        assert_eq!(mine, ptr::from_ref(texts().unwrap()).addr());
        let other = || std::thread::spawn(|| ptr::from_ref(texts().unwrap()).addr()).join().unwrap();
        for _ in 0..3 {
            assert_ne!(other(), mine);
        }
    }

    #[test]
    fn threads_that_end_leave_theirs_to_the_next() {
        let count = || {
            let (mut count, mut at) = (0, ALL.load(Ordering::Acquire));
            // SAFETY: null, or texts that are never freed.
            while let Some(texts) = unsafe { at.as_ref() } {
                count += 1;
                at = texts.next.load(Ordering::Acquire);
            }
            count
        };
        let before = count();
        for _ in 0..200 {
            std::thread::spawn(|| assert!(texts().is_some())).join().unwrap();
        }
        // Other tests make some, too; a joined thread may keep its id for a moment.
        assert!(count() - before < 100, "{before} {}", count());
    }
}
