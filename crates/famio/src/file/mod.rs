//! Atomic files: read, write, size, SYNC.

mod advise;
mod also;
mod arrivals;
mod aside;
mod atomic;
mod attach;
mod background;
pub(crate) mod background_bell;
mod bits;
mod buffers;
mod by_images;
mod calls;
mod close;
mod context;
mod counters;
mod deferred;
mod descriptors;
mod doing;
mod follow;
mod gather;
mod growing;
mod growing_order;
mod growing_state;
mod home;
mod images;
mod inplace;
mod joined;
mod journal_name;
mod kernels_size;
mod lease;
mod lease_bell;
mod lease_state;
mod life;
mod lock_ranges;
mod lock_state;
pub mod locks;
mod modified;
mod opening;
mod plain;
mod policy;
mod privileges;
mod process;
mod quiet;
mod read;
mod records;
mod recover;
mod refusal;
mod registry;
mod save_images;
mod session;
mod set_id;
pub(crate) mod shadow;
mod shared_memory;
mod size;
mod space;
mod sync;
mod times;
pub(crate) mod transaction;
mod transfer;
mod travel;
mod turn;
mod turns;
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
pub use modified::Modified;
pub use process::{close_all, disown_all, release_all};
pub use recover::recover_path;
pub(crate) use registry::{forget_for_child, remember_for_child};
pub use turn::LockOf;
pub(crate) use turn::{commit_leftover, regain_places};
pub use write_atomic::Whole;

/// The program has handed reads to the kernel that may end at any time, in memory which is a map.
static READS_END_LATER: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// The program begins to use queues of reads.
pub(crate) fn note_reads_that_end_later() {
    READS_END_LATER.store(true, core::sync::atomic::Ordering::Relaxed);
}

/// Whether it ever did.
fn reads_may_end_later() -> bool {
    READS_END_LATER.load(core::sync::atomic::Ordering::Relaxed)
}
