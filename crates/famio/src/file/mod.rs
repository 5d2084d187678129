//! Atomic files: read, write, size, SYNC.

mod atomic;
mod attach;
pub(crate) mod background;
mod bits;
mod buffers;
mod calls;
mod close;
mod context;
mod deferred;
mod descriptors;
mod gather;
mod home;
mod inplace;
mod lease;
mod life;
mod plain;
mod policy;
mod process;
mod read;
mod records;
mod registry;
mod session;
pub(crate) mod shadow;
mod size;
mod sync;
mod transfer;
mod turn;
mod write;
mod zero;

pub use atomic::AtomicFile;
pub use buffers::{Access, UserBuf};
pub(crate) use calls::{Call, Grace};
pub(crate) use descriptors::Descriptors;
pub(crate) use home::{Home, copy_in};
pub use lease::bar_leases;
pub use process::{close_all, disown_all, release_all};
