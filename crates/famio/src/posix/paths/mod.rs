//! Calls that name a file by its path: open, stat, rename, remove; and libc's streams. Decides whether a path
//! leads to an atomic file.

mod foresee;
pub(super) mod names;
pub(super) mod open;
pub(super) mod open_atomic;
pub(super) mod open_plain;
pub(super) mod openat2;
mod ordinary_writer;
mod prepared;
pub(super) mod selected;
pub(super) mod stat;
mod stat_of_others;
pub(super) mod streams;
pub(super) mod times;
pub(super) mod twin;
pub(super) mod unreadable;
