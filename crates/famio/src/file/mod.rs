//! Atomic files: read, write, size, SYNC. Each folder uses those above it in this list, and nothing below:
//!
//! - `base`, `descriptors`: what everything builds on; the program's descriptors of a file;
//! - `engine`, `inplace`, `records`: where bytes live and how an epoch is committed, by one of two engines;
//! - `images`, `session`: a file between its first write and its close;
//! - `state`, `atomic.rs`, `registry.rs`, `groups.rs`: what an [`AtomicFile`] consists of; the files of the process;
//! - `lease`, `locks`, `shadow`, `growing`, `background.rs`, `ownership`, `lifetime`, `transaction`, `operations`: what
//!   is done with it.

mod atomic;
mod background;
mod base;
mod descriptors;
mod engine;
mod groups;
mod growing;
mod images;
mod inplace;
mod lease;
mod lifetime;
pub mod locks;
mod operations;
mod ownership;
mod records;
mod registry;
mod session;
pub(crate) mod shadow;
mod state;
pub(crate) mod transaction;

pub use atomic::AtomicFile;
pub(crate) use base::background_wakeup;
pub use base::buffers::{Access, UserBuf};
pub(crate) use base::calls::{Call, Grace, give_way};
pub use base::modified::Modified;
pub(crate) use base::waiting::waiting_for_room;
pub(crate) use descriptors::Descriptors;
pub(crate) use engine::home::{Home, copied_in, copy_in, copy_out, zero_out};
pub use lease::bar_leases;
pub(crate) use lease::end_lease_of_others;
pub use lifetime::copies::{backup, restore};
pub(crate) use lifetime::deferred_close::{any_deferred_close, end_deferred_closes};
pub use lifetime::demotion_note::{note_demotions_again, remove_demotion_notes, remove_demotion_notes_but};
pub use lifetime::flush::{Flush, Flushed, Waiting, flush_path};
pub(crate) use lifetime::opening::{OpenedBy, open_latest};
pub(crate) use lifetime::process::map_all_again;
pub use lifetime::process::{close_all, disown_all, release_all};
pub use lifetime::recover::recover_path;
pub use operations::counters::Counters;
pub use operations::write_atomic::Whole;
pub use ownership::LockOf;
pub(crate) use ownership::{commit_leftover, replace_nameless_control_files, steps_to_keep};
pub(crate) use registry::{forget_for_child, remember_for_child};

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
