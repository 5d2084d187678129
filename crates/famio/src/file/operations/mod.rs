//! What a program can do with an atomic file, by its session or by the kernel: read, write, size, SYNC, times, advice;
//! and what else a change must do.

pub(super) mod advise;
pub(super) mod change_owner_and_mode;
pub(super) mod counters;
pub(super) mod follow_up;
pub(super) mod privileges;
pub(super) mod size;
pub(super) mod space;
pub(super) mod sync;
pub(super) mod times;
pub(super) mod transfer;
pub(super) mod twins;
pub(super) mod write_atomic;
