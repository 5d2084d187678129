//! Covers the moment in which a descriptor of the library has a number that the program may want: the kernel opens
//! with the lowest free number, and only a duplicate gets a high one. Both sides announce what they do, and the later
//! one waits. The library announces an open by a count in a word that the hooks read anyway; a thread of the program
//! that replaces a number, or whose open has to get the lowest one, by counts of their own. All waits are bounded,
//! since what was opened is confirmed as well (`opening`).

use crate::fast_path::FAST_PATH;
use crate::fast_path::NUMBERS;
use crate::sys::clock::monotonic_now;
use crate::thread::{Held, current};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::cell::Cell;
use std::os::fd::RawFd;

/// In [`FAST_PATH`]: subtracted for each descriptor that passes. The remainder is the lowest number of an internal
/// descriptor so far.
const STEP: i32 = 1 << 21;
/// More do not fit into the word.
const MOST: i32 = 1000;

const _: () = assert!((NUMBERS as i32) < STEP && MOST < i32::MAX / STEP);

/// The threads that replace a number, or close a range. In a line of its own, since few threads do.
#[repr(align(64))]
struct Line(AtomicU32);
static REPLACING: Line = Line(AtomicU32::new(0));

/// Calls of the program that get the lowest free number: those under way in the lower half, those ever begun in the
/// upper one.
#[repr(align(64))]
struct Opens(AtomicU64);
static OPENS: Opens = Opens(AtomicU64::new(0));
const BEGUN: u64 = 1 << 32;
/// The number of calls begun when a wait for them failed. Such a call has its number already; it may wait for the
/// other end of a FIFO.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);

/// In nanoseconds: an open may wait for a disk, a close for a socket that lingers.
const WAIT_TO_REPLACE: u64 = 500_000_000;
const WAIT_TO_PASS: u64 = 50_000_000;
/// The kernel takes the number at the beginning of the call.
const WAIT_FOR_OPENS: u64 = 50_000;
/// A close only waits in case the program closes what it has not opened.
const WAIT_TO_CLOSE: u64 = 1_000_000;

/// Calls `begin`; until it is alone or the time is over, undoes it by `end` and tries again.
fn begin_alone(nanoseconds: u64, begin: impl Fn(), is_alone: impl Fn() -> bool, end: impl Fn()) {
    begin();
    if is_alone() {
        return;
    }
    let until = monotonic_now() + nanoseconds;
    while !is_alone() && monotonic_now() < until {
        end();
        rustix::thread::sched_yield();
        begin();
    }
}

/// The lowest number that an internal descriptor has had.
pub(super) fn lowest() -> RawFd {
    FAST_PATH.internal.load(SeqCst).rem_euclid(STEP)
}

/// An internal descriptor has this number.
pub(super) fn lower_to(number: RawFd) {
    let lower = |word: i32| Some(word - (word.rem_euclid(STEP) - number).max(0));
    let _ = FAST_PATH.internal.fetch_update(SeqCst, SeqCst, lower);
}

/// Whether a descriptor passes through the program's numbers.
fn any_passes() -> bool {
    FAST_PATH.internal.load(SeqCst) < 0
}

/// While it lives, descriptors of this thread may have any number.
#[must_use]
pub(crate) struct Passing(#[allow(dead_code, reason = "a signal handler sees by it that it must not wait")] Held);

impl Passing {
    pub fn begin() -> Self {
        let held = Held::of_process();
        let opens = Cell::new(None);
        let is_alone = || REPLACING.0.load(SeqCst) == 0 && !hinder(&opens);
        begin_alone(WAIT_TO_PASS, Self::enter, is_alone, Self::leave);
        Self(held)
    }

    fn enter() {
        let more = |word: i32| (word.div_euclid(STEP) > -MOST).then_some(word - STEP);
        while FAST_PATH.internal.fetch_update(SeqCst, SeqCst, more).is_err() {
            rustix::thread::sched_yield();
        }
    }

    /// Unless this is a child that was forked meanwhile, whose count began anew.
    fn leave() {
        let _ = FAST_PATH.internal.fetch_update(SeqCst, SeqCst, |word| (word < 0).then_some(word + STEP));
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        Self::leave();
    }
}

/// Whether calls of the program that have to get the lowest number are under way. `since`: when this thread first saw
/// some.
fn hinder(since: &Cell<Option<u64>>) -> bool {
    let opens = OPENS.0.load(SeqCst);
    let begun = (opens / BEGUN) as u32;
    if opens.is_multiple_of(BEGUN) || IN_VAIN.load(Relaxed) == begun {
        return false;
    }
    let now = monotonic_now();
    let is_early = now < since.get().unwrap_or(now) + WAIT_FOR_OPENS;
    since.set(since.get().or(Some(now)));
    if !is_early {
        IN_VAIN.store(begun, Relaxed);
    }
    is_early
}

/// Makes a call of the program that gets the lowest free number: no descriptor of the library passes meanwhile. Not
/// in a `vfork` child. Nothing is locked during the call, which may take for ever or be interrupted.
#[inline]
pub(crate) fn with_lowest<T>(call: impl FnOnce() -> T) -> T {
    if !FAST_PATH.any() && !any_passes() || is_inside() {
        return call();
    }
    begin_alone(WAIT_TO_PASS, begin_open, || !any_passes(), end_open);
    let made = call();
    end_open();
    made
}

fn begin_open() {
    OPENS.0.fetch_add(BEGUN + 1, SeqCst);
}

/// Unless this is a child that was forked meanwhile, whose count began anew.
fn end_open() {
    let _ = OPENS.0.fetch_update(SeqCst, SeqCst, |opens| (!opens.is_multiple_of(BEGUN)).then(|| opens - 1));
}

/// While it lives, no descriptor of another thread passes: numbers that are not internal are the program's.
#[must_use]
pub(crate) struct Replacing(#[allow(dead_code, reason = "as in `Passing`")] Held);

impl Replacing {
    /// Whether a descriptor of the library may have this number or get it meanwhile: while there are atomic files.
    #[inline]
    pub fn is_needed(number: RawFd) -> bool {
        FAST_PATH.any() || number >= FAST_PATH.internal.load(Relaxed)
    }

    /// `None`: a descriptor of this thread passes, in code that a signal handler has interrupted.
    #[cold]
    pub fn begin() -> Option<Self> {
        if is_inside() {
            return None;
        }
        let held = Held::of_process();
        begin_alone(WAIT_TO_REPLACE, Self::enter, || !any_passes(), Self::leave);
        Some(Self(held))
    }

    fn enter() {
        REPLACING.0.fetch_add(1, SeqCst);
    }

    fn leave() {
        let _ = REPLACING.0.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
    }
}

impl Drop for Replacing {
    fn drop(&mut self) {
        Self::leave();
    }
}

fn is_inside() -> bool {
    let thread = current();
    (thread.posix_locks.get() | thread.locks_held.get()) != 0
}

/// Called before the program closes a number that it may not have opened.
#[cold]
pub(super) fn wait_to_close() {
    wait(WAIT_TO_CLOSE);
}

/// The program got `EMFILE`: whether a number through which a descriptor of ours passed may be free by now.
#[cold]
pub(crate) fn has_waited() -> bool {
    let may_have_passed = FAST_PATH.any() || any_passes();
    wait(WAIT_TO_REPLACE);
    may_have_passed
}

fn wait(nanoseconds: u64) {
    if any_passes() && !is_inside() {
        begin_alone(nanoseconds, || (), || !any_passes(), || ());
    }
}

/// In a forked child, whose other threads are gone.
pub(super) fn begin_child() {
    FAST_PATH.internal.store(lowest(), SeqCst);
    REPLACING.0.store(0, SeqCst);
    OPENS.0.fetch_and(!(BEGUN - 1), SeqCst);
}
