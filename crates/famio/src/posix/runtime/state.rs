//! Whether the library runs in this process, and which process this is: after a `fork`, or in a child of `vfork`.

use crate::posix::raw;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::sync::OnceLock;

pub(in crate::posix) const UNINIT: u8 = 0;
pub(in crate::posix) const STARTING: u8 = 1;
/// Files that match the configuration are atomic.
pub(in crate::posix) const ON: u8 = 2;
/// Nothing is atomic: no configuration.
pub(in crate::posix) const OFF: u8 = 3;
/// Nothing is atomic any more: the process is ending.
pub(in crate::posix) const OVER: u8 = 4;

pub(in crate::posix) static STATE: AtomicU8 = AtomicU8::new(UNINIT);
/// The process whose memory this is: not in a child of `vfork`.
pub(in crate::posix) static PID: AtomicU32 = AtomicU32::new(0);
/// The latest fork generation of this process or its ancestors.
static LATEST: AtomicU32 = AtomicU32::new(1);
/// Used instead of [`GENERATION`] before the start, and on kernels that cannot wipe pages at fork.
pub(in crate::posix) static PLAIN_GENERATION: AtomicU32 = AtomicU32::new(1);
/// A word on a page that the kernel zeroes in a forked child, however it was forked.
pub(in crate::posix) static GENERATION: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const PLAIN_GENERATION).cast_mut());
/// What is forgotten in a forked child, because it was the parent's. Set before the library [runs](ON).
static FORGET: OnceLock<fn()> = OnceLock::new();

/// To be called at the start: what a forked child does first.
pub(in crate::posix) fn do_in_child(forget: fn()) {
    let _ = FORGET.set(forget);
}

/// The fork generation; zero in a child that the library has not noticed yet.
#[inline]
pub(in crate::posix) fn generation() -> u32 {
    // SAFETY: the pointer is to a static or to a page that is never unmapped.
    unsafe { &*GENERATION.load(Ordering::Relaxed) }.load(Ordering::Relaxed)
}

pub(in crate::posix) fn pid() -> u32 {
    // SAFETY: no arguments.
    (unsafe { raw!(SYS_getpid) }) as u32
}

pub(in crate::posix) fn watch_forks() {
    const SIZE: usize = 4096;
    // SAFETY: a new anonymous mapping of our own; its first word is then used as an atomic.
    unsafe {
        let page = raw!(
            SYS_mmap,
            0,
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            usize::MAX,
            0
        );
        if (-4095..0).contains(&page) {
            return;
        }
        if raw!(SYS_madvise, page, SIZE, libc::MADV_WIPEONFORK) != 0 {
            raw!(SYS_munmap, page, SIZE);
            return;
        }
        let word = page as *mut AtomicU32;
        (*word).store(LATEST.load(Ordering::Relaxed), Ordering::Relaxed);
        GENERATION.store(word, Ordering::Release);
    }
}

/// Whether this process was forked after the library had started, so that its memory has its parent's files.
pub(in crate::posix) fn is_forked() -> bool {
    generation() != 1
}

/// In a forked child: takes a new identity; what the parent opened stays the parent's.
#[cold]
pub(in crate::posix) fn enter_child() {
    let next = LATEST.load(Ordering::Relaxed) + 1;
    // SAFETY: as in `generation`.
    let word = unsafe { &*GENERATION.load(Ordering::Relaxed) };
    if word.compare_exchange(0, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        LATEST.store(next, Ordering::Relaxed);
        PID.store(pid(), Ordering::Relaxed);
        if let Some(forget) = FORGET.get() {
            forget();
        }
    }
}

/// Whether this is a `vfork` child. Its memory is the parent's, so the library's state must not change.
pub(in crate::posix) fn in_vfork_child() -> bool {
    if STATE.load(Ordering::Acquire) != ON {
        return false;
    }
    if generation() == 0 {
        enter_child();
    }
    pid() != PID.load(Ordering::Relaxed)
}

/// Whether the library is on, or may still be switched on.
pub(in crate::posix) fn may_be_on() -> bool {
    ![OFF, OVER].contains(&STATE.load(Ordering::Acquire))
}

/// Whether the library is on.
pub fn is_on() -> bool {
    STATE.load(Ordering::Acquire) == ON
}
