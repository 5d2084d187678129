//! Atomic files: read, write, size, SYNC.

mod advise;
mod also;
mod aside;
mod atomic;
mod attach;
pub(crate) mod background;
mod bits;
mod buffers;
mod calls;
mod close;
mod context;
mod counters;
mod deferred;
mod descriptors;
mod follow;
mod gather;
mod growing;
mod home;
mod images;
mod inplace;
mod journal_name;
mod kernels_size;
mod lease;
mod life;
pub mod locks;
mod plain;
mod policy;
mod privileges;
mod process;
mod read;
mod records;
mod registry;
mod session;
pub(crate) mod shadow;
mod shared_memory;
mod size;
mod space;
mod sync;
mod times;
pub(crate) mod transaction;
mod transfer;
mod turn;
mod twins;
mod write;
mod write_atomic;
mod zero;

pub use atomic::AtomicFile;
pub use buffers::{Access, UserBuf};
pub(crate) use calls::{Call, Grace, give_way};
pub use counters::Counters;
pub(crate) use descriptors::Descriptors;
pub(crate) use home::{Home, copy_in, zero_out};
pub use lease::bar_leases;
pub(crate) use lease::end_lease_of_others;
pub use process::{close_all, disown_all, release_all};
pub(crate) use registry::{forget_for_child, remember_for_child};
pub use times::Modified;
pub use turn::LockOf;
pub(crate) use turn::{commit_leftover, regain_places};
pub use write_atomic::Whole;

/// The program has submitted asynchronous reads, which may end at any time, perhaps into a map.
static READS_END_LATER: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// The program begins to use asynchronous reads.
pub(crate) fn note_reads_that_end_later() {
    READS_END_LATER.store(true, core::sync::atomic::Ordering::Relaxed);
}

/// Whether it ever did.
fn reads_may_end_later() -> bool {
    READS_END_LATER.load(core::sync::atomic::Ordering::Relaxed)
}
