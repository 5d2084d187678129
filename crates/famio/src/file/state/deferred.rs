//! The state of a file whose close is deferred (`lifetime/deferred_close.rs`).

use crate::fast_path::FAST_PATH;
use crate::sys::{InternalFd, monotonic_now};
use crate::thread::Mutex;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A descriptor of the library, which stands in for those that the program has closed.
pub(in crate::file) struct StandIn(pub InternalFd);

/// How many there are.
static STAND_INS: AtomicUsize = AtomicUsize::new(0);
/// The most files whose close a process defers.
const STAND_INS_MAX: usize = 16;

impl StandIn {
    /// `None`: there are too many.
    pub fn new(fd: InternalFd) -> Option<Self> {
        if STAND_INS.fetch_add(1, Ordering::Relaxed) >= STAND_INS_MAX {
            STAND_INS.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        FAST_PATH.descriptors.fetch_add(1, Ordering::Relaxed);
        Some(Self(fd))
    }

    /// Whether there are any.
    pub fn any() -> bool {
        STAND_INS.load(Ordering::Relaxed) != 0
    }

    /// It is no stand-in any more.
    pub fn into_fd(self) -> InternalFd {
        FAST_PATH.descriptors.fetch_sub(1, Ordering::Relaxed);
        STAND_INS.fetch_sub(1, Ordering::Relaxed);
        self.0
    }
}

#[derive(Default)]
pub(in crate::file) struct Deferred {
    /// It stays while the program has the file open again.
    pub stand_in: Mutex<Option<StandIn>>,
    /// When the stand-in goes, in nanoseconds of the monotonic clock. 0: there is none.
    pub due: AtomicU64,
}

/// A file that was closed, and how often, each time soon after the last.
#[derive(Clone, Copy)]
struct Closed {
    key: (u64, u64),
    times: u32,
    last: u64,
}

/// The files that were closed last.
static CLOSED: Mutex<[Closed; 16]> = Mutex::new([Closed { key: (0, 0), times: 0, last: 0 }; 16]);

/// From this close on, a file is one that is closed and opened again and again, if no more than [`SOON`] nanoseconds
/// lie between each two.
const OFTEN: u32 = 3;
const SOON: u64 = 1_000_000_000;

/// Notes a close of the file; whether it is one that is closed again and again.
pub(in crate::file) fn is_closed_often(key: (u64, u64)) -> bool {
    let now = monotonic_now();
    let mut closed = CLOSED.lock();
    let known = closed.iter().position(|one| one.key == key);
    let oldest = || (0..closed.len()).min_by_key(|&i| closed[i].last).unwrap_or(0);
    let place = known.unwrap_or_else(oldest);
    let one = &mut closed[place];
    let again = known.is_some() && now <= one.last + SOON;
    *one = Closed { key, times: if again { one.times.saturating_add(1) } else { 1 }, last: now };
    one.times >= OFTEN
}
