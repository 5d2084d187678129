//! Atomic files: read, write, size, SYNC.

mod atomic;
mod attach;
mod background;
mod bits;
mod buffers;
mod close;
mod context;
mod descriptors;
mod home;
mod inplace;
mod lease;
mod plain;
mod policy;
mod read;
mod records;
mod registry;
mod session;
mod size;
mod sync;
mod write;

pub use atomic::{AtomicFile, close_all, disown_all, release_all};
pub use buffers::{Access, Position, UserBuf};
pub(crate) use descriptors::Descriptors;
pub(crate) use home::Home;
pub use lease::bar_leases;
