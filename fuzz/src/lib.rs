//! What the fuzz targets share: a file with a sound journal, edits of that journal that get past its checks, and what must
//! hold after any recovery.

pub mod atomic;
pub mod check;
pub mod in_place;
pub mod records;
pub mod stage;

pub use stage::{Crashed, Stage};
