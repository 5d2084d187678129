//! The state of a file whose close is deferred (`lifetime/deferred_close.rs`).

use crate::fast_path::FAST_PATH;
use crate::file::Descriptors;
use crate::index::{Exact, Shared};
use crate::sys::{InternalFd, monotonic_now};
use crate::thread::Mutex;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::os::fd::RawFd;

/// How many files a process has of which the close is deferred.
static SLOTS: AtomicUsize = AtomicUsize::new(0);
/// The most.
const SLOTS_MAX: usize = 16;

/// One of the files of which the close may be deferred: the program has a file open, although it has no descriptor.
pub(in crate::file) struct Slot(());

impl Slot {
    /// `None`: there are too many.
    pub fn reserve() -> Option<Self> {
        if SLOTS.fetch_add(1, Ordering::Relaxed) >= SLOTS_MAX {
            SLOTS.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        FAST_PATH.descriptors.fetch_add(1, Ordering::Relaxed);
        Some(Self(()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        FAST_PATH.descriptors.fetch_sub(1, Ordering::Relaxed);
        SLOTS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A descriptor of the library, which stands in for those that the program has closed.
pub(in crate::file) struct StandIn {
    fd: InternalFd,
    _slot: Slot,
}

impl StandIn {
    pub fn new(fd: InternalFd, slot: Slot) -> Self {
        Self { fd, _slot: slot }
    }

    /// Whether there may be any.
    pub fn any() -> bool {
        SLOTS.load(Ordering::Relaxed) != 0
    }

    /// It is no stand-in any more.
    pub fn into_fd(self) -> InternalFd {
        self.fd
    }
}

#[derive(Default)]
pub(in crate::file) struct Deferred {
    /// There while the program has the file closed.
    pub stand_in: Mutex<Option<StandIn>>,
    /// Its number, as the file's descriptors have it: the program may have closed it unseen.
    pub number: AtomicI32,
    /// When the file is to be closed, in nanoseconds of the monotonic clock; if the program has it open again, until when
    /// the background looks at it. 0: neither.
    pub due: AtomicU64,
}

impl Deferred {
    /// The stand-in has another number.
    pub fn renumber(&self, old: RawFd, new: RawFd) {
        let _ = self.number.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Whether the file is as it was left: no other program has changed it since.
pub(in crate::file) fn is_exact(fds: &Descriptors, exact: Exact) -> bool {
    fds.stat().is_ok_and(|stat| Exact::of(&stat) == exact)
}

/// Of a session that has no owner: whether another program has changed the file since it was exact.
pub(in crate::file) fn has_changed_since_exact(fds: &Descriptors, shared: &Shared) -> bool {
    shared.exact_file().is_some_and(|exact| !is_exact(fds, exact))
}

/// A file that was closed, and how often, each time soon after the last. Threads that change it at once may lose a
/// count.
struct Closed {
    key: AtomicU64,
    times: AtomicU32,
    last: AtomicU64,
}

/// The files that were closed last. No lock, which a forked child might find locked.
static CLOSED: [Closed; 16] =
    [const { Closed { key: AtomicU64::new(0), times: AtomicU32::new(0), last: AtomicU64::new(0) } }; 16];

/// From this close on, a file is one that is closed and opened again and again, if no more than [`SOON`] nanoseconds
/// lie between each two.
const OFTEN: u32 = 3;
const SOON: u64 = 1_000_000_000;

/// Notes a close of the file; whether it is one that is closed again and again.
pub(in crate::file) fn is_closed_often((device, inode): (u64, u64)) -> bool {
    let now = monotonic_now();
    let key = device.rotate_left(32) ^ inode;
    let known = CLOSED.iter().find(|one| one.key.load(Ordering::Relaxed) == key);
    let oldest = || CLOSED.iter().min_by_key(|one| one.last.load(Ordering::Relaxed));
    let Some(one) = known.or_else(oldest) else { return false };
    let again = known.is_some() && now <= one.last.load(Ordering::Relaxed) + SOON;
    let times = if again { one.times.load(Ordering::Relaxed).saturating_add(1) } else { 1 };
    one.key.store(key, Ordering::Relaxed);
    one.times.store(times, Ordering::Relaxed);
    one.last.store(now, Ordering::Relaxed);
    times >= OFTEN
}
