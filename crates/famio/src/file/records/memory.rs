//! The memory of buffers: what was not needed for a while goes back to the system, in the background, and write caches
//! share what a process may have.

use super::buffers;
use crate::file::engine::context::Context;
use crate::index::BLOCK;
use crate::sys::monotonic_now;
use core::sync::atomic::{AtomicU64, Ordering};

/// Buffers that were not needed for this many nanoseconds are given back.
const PERIOD: u64 = if cfg!(test) { 50_000_000 } else { 3_000_000_000 };

/// Bytes by which write caches adapt to each other.
const STEP: u64 = 16 << 20;

/// Buffers of all sessions of this process.
static ALL: AtomicU64 = AtomicU64::new(0);

/// The buffers that one session holds, as far as they are counted in [`ALL`].
#[derive(Default)]
pub(super) struct Held(AtomicU64);

impl Held {
    pub fn set(&self, buffers: u64) {
        let before = self.0.load(Ordering::Relaxed);
        // Fails if another thread counts: it has as new a number.
        if before != buffers && self.0.compare_exchange(before, buffers, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            ALL.fetch_add(buffers.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Bytes of the other sessions, in steps.
    fn of_others(&self) -> u64 {
        // For a moment a change may be counted in one of the two alone.
        let others = ALL.load(Ordering::Relaxed).wrapping_sub(self.0.load(Ordering::Relaxed)) as i64;
        (others.max(0) as u64).saturating_mul(BLOCK as u64) / STEP * STEP
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Counts the buffers of a session. Returns how many bytes the other sessions of the process have, in steps.
#[inline]
pub(super) fn count(held: &Held, cx: Context<'_>) -> u64 {
    held.set(cx.shared().buffers_held.load(Ordering::Relaxed));
    held.of_others()
}

/// What is to be given back.
#[derive(Default)]
pub(super) struct Surplus {
    /// When the present period ends.
    ends: AtomicU64,
    /// What the last period needed, plus one; 0: nothing is to be given back before the present one ends.
    keep: AtomicU64,
    /// The buffers held and in use ([`counts`]) when there was nothing more to give back.
    settled: AtomicU64,
}

impl Surplus {
    /// Gives back the memory of some buffers. Returns whether there is more. For one thread at a time, outside the
    /// gate.
    pub fn trim(&self, cx: Context<'_>) -> bool {
        if !self.is_any(cx) {
            return false;
        }
        let now = monotonic_now();
        if self.keep.load(Ordering::Relaxed) == 0 {
            if now < self.ends.load(Ordering::Relaxed) {
                return false;
            }
            let is_first = self.ends.swap(now + PERIOD, Ordering::Relaxed) == 0;
            let Ok(peak) = buffers::begin_period(cx) else { return false };
            if is_first {
                return false;
            }
            self.keep.store(peak + 1, Ordering::Relaxed);
        }
        let keep = self.keep.load(Ordering::Relaxed) - 1;
        let given = buffers::trim(cx, keep).unwrap_or(0);
        if given == 0 {
            self.keep.store(0, Ordering::Relaxed);
            if keep <= cx.shared().used.load(Ordering::Relaxed) {
                self.settled.store(counts(cx), Ordering::Relaxed); // what is left lies between buffers in use
            }
        }
        given > 0
    }

    /// Whether there may be something to give back, now or later.
    pub fn is_any(&self, cx: Context<'_>) -> bool {
        buffers::spare(cx) > 0 && self.settled.load(Ordering::Relaxed) != counts(cx)
    }
}

fn counts(cx: Context<'_>) -> u64 {
    let shared = cx.shared();
    shared.buffers_held.load(Ordering::Relaxed) << 32 | shared.used.load(Ordering::Relaxed)
}
