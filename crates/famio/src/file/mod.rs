//! Atomic files: read, write, size, SYNC.

mod buffers;
mod plain;

pub use buffers::{Access, Position, UserBuf};
pub use plain::{AtomicFile, close_all, disown_all};
