//! The record of one `famio run`, which its processes share: selected files, SYNCs without protection, programs without
//! the library, and what is said of these at the end.

pub(super) mod maps_list;
pub(super) mod report;
pub mod run_notes;
pub mod run_record;
pub(super) mod why;
