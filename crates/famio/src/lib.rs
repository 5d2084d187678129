//! Famio: failure-atomic mapped I/O. Everything that is written to a file between two SYNCs becomes durable as a
//! whole or, after a crash, is gone as a whole.
//!
//! The words and the rules are in `docs/`; a layer calls only those that stand above it here.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Famio is for 64-bit Linux");

pub mod error;
pub mod settings;

pub mod sys;
pub mod thread;

pub mod pmem;

pub mod map;

pub(crate) mod index;

pub mod journal;

pub mod recovery;

pub mod file;

pub mod posix;

pub use error::{Error, Result};
pub use settings::{Durability, PolicyChoice, Settings};
