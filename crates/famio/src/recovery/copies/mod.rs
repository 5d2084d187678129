//! Copies of atomic files: backup, restore, and a view of the last SYNC.

pub(super) mod backup;
pub(super) mod copying;
pub(super) mod destination;
pub(super) mod kept;
pub(super) mod replace;
pub(super) mod restore;
pub(super) mod view;
