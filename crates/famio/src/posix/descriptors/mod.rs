//! Descriptors of atomic files: the table, open descriptions with position and flags, duplicates, closing, locks,
//! demotion; what a process has from another, and what becomes of all that when it changes its user.
// Cycle: description, spare: a description whose last descriptor is gone goes to the spare ones, which are made
// descriptions again

pub(super) mod attach;
pub(super) mod close;
pub(super) mod control;
pub(super) mod demote;
pub(super) mod description;
pub(super) mod description_mark;
pub(super) mod dup;
pub(super) mod inherit;
pub(super) mod locks;
pub(super) mod position;
pub(super) mod rights;
pub(super) mod spare;
pub mod table;
pub(super) mod unlock;
pub(super) mod verify;
