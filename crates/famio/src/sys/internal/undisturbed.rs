//! A stretch of the library's work in which nobody else can change the descriptors, limits and folders of the process:
//! the program has a single thread, and that thread is inside the library. What was confirmed in it stays confirmed, and
//! what was asked of the kernel is remembered to its end.
//!
//! It holds a lock, so a signal handler of the program waits for its end. The library's own threads are not part of it:
//! they run beside the program's thread and confirm each descriptor before each use.

use crate::thread::{Held, Mutex, current, is_programs_only};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The number of the stretch under way; 0: none. There is one at a time, since there is one thread that can begin it.
static NOW: AtomicU64 = AtomicU64::new(0);
/// Numbers are never used twice.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The program's descriptor of the file that this stretch is about; -1: none yet.
static FILE: AtomicI32 = AtomicI32::new(-1);

/// Lasts until it is dropped. One that begins inside another is part of that.
#[must_use]
pub(crate) struct Undisturbed {
    begins: bool,
    #[allow(dead_code, reason = "a signal handler sees by it that it must not wait")]
    held: Held,
}

impl Undisturbed {
    /// Has no effect in a program with several threads.
    pub fn begin() -> Self {
        let held = Held::of_process();
        let begins = current().ours.get() == 0 && NOW.load(Relaxed) == 0 && is_programs_only();
        if begins {
            FILE.store(-1, Relaxed);
            NOW.store(LAST.fetch_add(1, Relaxed) + 1, Relaxed);
        }
        Self { begins, held }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        if self.begins {
            NOW.store(0, Relaxed);
        }
    }
}

/// The number of the stretch of which the caller is part.
#[inline]
pub(crate) fn now() -> Option<u64> {
    let now = NOW.load(Relaxed);
    (now != 0 && current().ours.get() == 0).then_some(now)
}

/// In a forked child.
pub(super) fn begin_child() {
    NOW.store(0, Relaxed);
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
        let mut known = self.0.lock();
        if let Some((when, said)) = &*known
            && *when == now
        {
            return Ok(said.clone());
        }
        let said = ask()?;
        *known = Some((now, said.clone()));
        Ok(said)
    }

    /// As [`get`](Self::get), of the file behind `fd`: asked again if that is not the file that the stretch is about.
    pub fn of_file<E>(&self, fd: BorrowedFd<'_>, ask: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if FILE.load(Relaxed) == fd.as_raw_fd() { self.get(ask) } else { ask() }
    }
}
