//! Shared by the fuzz targets: a file with a sound journal, edits of that journal with corrected checks, and what
//! must hold after any recovery.

pub mod atomic;
pub mod check;
pub mod growing_mark;
pub mod in_place;
pub mod records;
pub mod stage;

pub use stage::{Crashed, Stage};
