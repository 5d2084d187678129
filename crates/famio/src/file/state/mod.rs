//! What an `AtomicFile` consists of: the state of its lease, its locks, its shadow, its ownership, its growth and its
//! transactions. The folders of the same names (`lease/`, `locks/`, …) have the operations.

pub(super) mod arrivals;
pub(super) mod burst;
pub(super) mod commits;
pub(super) mod cow_maps;
pub(super) mod deferred;
pub(super) mod growing_order;
pub(super) mod growing_state;
pub(super) mod hand_over_image;
pub(super) mod joint_records;
pub(super) mod kept_locks;
pub(super) mod kernels_size;
pub(super) mod lease_state;
pub(super) mod lock_ranges;
pub(super) mod lock_state;
pub(super) mod owner_session;
mod owners_journal;
pub(super) mod ownership;
pub(super) mod page_tables;
pub(super) mod per_process;
pub(super) mod plain;
pub(super) mod shadow_memory;
pub(super) mod shadow_notes;
pub(super) mod shadow_pages;
pub(super) mod shadow_slot;
pub(super) mod writers;
