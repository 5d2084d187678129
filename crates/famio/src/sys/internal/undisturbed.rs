//! A stretch of the library's work in which nobody else can change the descriptors, limits and folders of the process:
//! the program has a single thread, and that thread is inside the library. What was confirmed in it stays confirmed,
//! and what was asked of the kernel is remembered to its end.
//!
//! Not covered: another process that shares this one's descriptors (`clone` with `CLONE_FILES` but without
//! `CLONE_THREAD`) and closes descriptors that it did not open.
//!
//! A stretch holds a lock, so a signal handler of the program waits for its end. The library's own threads are not part
//! of it: they run beside the program's thread and confirm each descriptor before each use.

use crate::thread::{Held, Mutex, current, is_programs_only};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Values of [`stretch`](crate::thread::ThreadBlock::stretch): there is none.
const NONE: u64 = 0;
/// One has begun, and nobody has asked yet whether the program has other threads.
const BEGUN: u64 = 1;
/// It has.
const DISTURBED: u64 = 2;
/// Numbers of stretches in which it has none are greater, and never used twice.
static LAST: AtomicU64 = AtomicU64::new(DISTURBED);
/// The program's descriptor of the file that this stretch is about; -1: none yet.
static FILE: AtomicI32 = AtomicI32::new(-1);

/// Work that is due at the end of the stretch (a `fn()`); null: none.
static DUE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Lasts until it is dropped. One that begins inside another is part of that.
#[must_use]
pub(crate) struct Undisturbed {
    begins: bool,
    #[allow(dead_code, reason = "a signal handler sees by it that it must not wait")]
    held: Held,
}

impl Undisturbed {
    /// Has no effect in a program with several threads. To find that out takes as long as several other questions: for
    /// work that asks many.
    pub fn begin() -> Self {
        let held = Held::of_process();
        let stretch = &current().stretch;
        let begins = stretch.get() == NONE;
        if begins {
            stretch.set(BEGUN);
        }
        Self { begins, held }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        if !self.begins || current().stretch.replace(NONE) <= DISTURBED {
            return;
        }
        let due = DUE.swap(core::ptr::null_mut(), Relaxed);
        if !due.is_null() {
            // SAFETY: `put_off` stored it, a function of this type.
            let due = unsafe { core::mem::transmute::<*mut (), fn()>(due) };
            due();
        }
    }
}

/// The number of the stretch of which the caller is part.
#[inline]
pub(crate) fn now() -> Option<u64> {
    match current().stretch.get() {
        NONE | DISTURBED => None,
        BEGUN => look(),
        number => Some(number),
    }
}

#[cold]
fn look() -> Option<u64> {
    let thread = current();
    if thread.ours.get() != 0 || !is_programs_only() {
        thread.stretch.set(DISTURBED);
        return None;
    }
    FILE.store(-1, Relaxed);
    let number = LAST.fetch_add(1, Relaxed) + 1;
    thread.stretch.set(number);
    Some(number)
}

/// The thread has waited for another process, which may have changed the file, or what this one may do: asks again.
pub(crate) fn renew() {
    let stretch = &current().stretch;
    if stretch.get() > DISTURBED {
        stretch.set(LAST.fetch_add(1, Relaxed) + 1);
    }
}

/// Does `work` once at the end of the stretch, instead of now and several times. False: there is no stretch.
pub(crate) fn put_off(work: fn()) -> bool {
    let is_part = now().is_some();
    if is_part {
        DUE.store(work as *mut (), Relaxed);
    }
    is_part
}

/// What was put off need not be done any more.
pub(crate) fn call_off() {
    if now().is_some() {
        DUE.store(core::ptr::null_mut(), Relaxed);
    }
}

/// As [`now`], if the stretch is about the file behind this descriptor.
pub(crate) fn now_about(file: BorrowedFd<'_>) -> Option<u64> {
    now().filter(|_| FILE.load(Relaxed) == file.as_raw_fd())
}

/// In a forked child.
pub(super) fn begin_child() {
    current().stretch.set(NONE);
}

/// A descriptor of the program leads to an atomic file, and stays as it is to the end of the stretch. Of several files,
/// the first one counts.
pub(crate) fn note_file(fd: RawFd) {
    let _ = FILE.compare_exchange(-1, fd, Relaxed, Relaxed);
}

/// A number that the kernel is asked for once in a stretch.
pub(crate) struct Number {
    known: AtomicU64,
    value: AtomicU64,
}

impl Number {
    pub const fn new() -> Self {
        Self { known: AtomicU64::new(0), value: AtomicU64::new(0) }
    }

    /// The number, by `ask` unless it is known.
    pub fn get(&self, ask: impl FnOnce() -> u64) -> u64 {
        let Some(now) = now() else { return ask() };
        if self.known.load(Relaxed) != now {
            self.value.store(ask(), Relaxed);
            self.known.store(now, Relaxed);
        }
        self.value.load(Relaxed)
    }
}

/// What is asked once in a stretch.
pub(crate) struct Answer<T>(Mutex<Option<(u64, T)>>);

impl<T: Clone> Answer<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// By `ask`, unless this was asked before.
    pub fn get<E>(&self, ask: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let Some(now) = now() else { return ask() };
        let known = self.0.lock();
        if let Some((when, said)) = &*known
            && *when == now
        {
            return Ok(said.clone());
        }
        drop(known);
        self.renew(ask)
    }

    /// By `ask`, to be known from now on.
    pub fn renew<E>(&self, ask: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let said = ask()?;
        if let Some(now) = now() {
            *self.0.lock() = Some((now, said.clone()));
        }
        Ok(said)
    }

    /// As [`get`](Self::get), of the file behind `fd`: asked again if that is not the file that the stretch is about.
    pub fn of_file<E>(&self, fd: BorrowedFd<'_>, ask: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if now_about(fd).is_some() { self.get(ask) } else { ask() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::InternalFd;
    use core::cell::Cell;
    use core::sync::atomic::AtomicU32;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::fd::AsFd;

    /// As if the program had no other thread.
    fn certain() -> Undisturbed {
        let begun = Undisturbed::begin();
        current().stretch.set(LAST.fetch_add(1, Relaxed) + 1);
        begun
    }

    fn memory() -> std::os::fd::OwnedFd {
        memfd_create("famio-test", MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn with_other_threads_there_is_none() {
        let _begun = Undisturbed::begin();
        let waits = AtomicU32::new(0);
        let other = std::thread::scope(|scope| {
            let other = scope.spawn(|| while waits.load(Relaxed) == 0 {});
            let seen = now();
            waits.store(1, Relaxed);
            other.join().unwrap();
            seen
        });
        assert_eq!((other, now()), (None, None), "it is not looked for again");
    }

    #[test]
    fn a_descriptor_is_confirmed_once_in_each() {
        let (file, other) = (memory(), memory());
        let fd = InternalFd::duplicate(file.as_fd()).unwrap();
        let number = fd.as_raw_fd();
        {
            let _outer = certain();
            assert_eq!(fd.as_raw_fd(), number);
            drop(Undisturbed::begin());
            assert!(now().is_some(), "the inner one was part of the outer one");
        }
        // SAFETY: one of the library's numbers, which it must be able to handle.
        let mut target = core::mem::ManuallyDrop::new(unsafe { std::os::fd::FromRawFd::from_raw_fd(number) });
        rustix::io::dup2(&other, &mut target).unwrap();
        let begun = certain();
        assert!(fd.get().is_err(), "confirmed in an earlier stretch");
        drop((fd, begun));
        drop(core::mem::ManuallyDrop::into_inner(target)); // not closed with it
    }

    #[test]
    fn what_was_asked_is_known_to_the_end() {
        static NUMBER: Number = Number::new();
        static ANSWER: Answer<u64> = Answer::new();
        let asked = Cell::new(0);
        let ask = || asked.replace(asked.get() + 1);
        let both = || (NUMBER.get(ask), ANSWER.get(|| Ok::<_, ()>(ask())).unwrap());
        assert_eq!([both(), both()], [(0, 1), (2, 3)]);
        let begun = certain();
        assert_eq!([both(), both()], [(4, 5), (4, 5)]);
        drop(begun);
        let _begun = certain();
        assert_eq!([both(), both()], [(6, 7), (6, 7)]);
        assert_eq!((ANSWER.renew(|| Ok::<_, ()>(70)), both()), (Ok(70), (6, 70)));
        renew();
        assert_eq!([both(), both()], [(8, 9), (8, 9)]);
    }

    #[test]
    fn what_was_put_off_is_done_once_at_the_end() {
        static DONE: AtomicU32 = AtomicU32::new(0);
        let work = || {
            DONE.fetch_add(1, Relaxed);
        };
        assert!(!put_off(work));
        for (is_called_off, done) in [(false, 1), (true, 1), (false, 2)] {
            let begun = certain();
            assert!(put_off(work) && put_off(work));
            if is_called_off {
                call_off();
            }
            drop(begun);
            assert_eq!(DONE.load(Relaxed), done);
        }
    }
}
