//! From the opening of a file to its end: the beginning and end of sessions, recovery, and files that are left to the
//! kernel.

pub(super) mod copies;
pub(super) mod deferred_close;
pub(super) mod demotion_note;
pub(super) mod flush;
pub(super) mod flush_wanted;
pub(super) mod left_journal;
pub(super) mod life;
pub(super) mod names;
pub(super) mod opening;
pub(super) mod process;
pub(super) mod recover;
pub(super) mod unprotectable;
