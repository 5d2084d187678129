//! Famio: failure-atomic mapped I/O. Everything that is written to a file between two SYNCs becomes durable as a
//! whole or, after a crash, is gone as a whole.
//!
//! Most programs never see this crate: `famio run` loads it into them, and their own `write` and `fsync` do the rest. A
//! program that knows what it wants can use an [`AtomicFile`](file::AtomicFile) itself:
//!
//! ```
//! use famio::Settings;
//! use famio::file::{Access, AtomicFile, UserBuf};
//! use std::ffi::CString;
//! use std::os::fd::{AsFd, AsRawFd};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // On tmpfs a SYNC survives the end of the process, however it ends; on a disk, loss of power too.
//! let folder = format!("/dev/shm/famio-example-{}", std::process::id());
//! std::fs::create_dir(&folder)?;
//! let path = format!("{folder}/file");
//! let descriptor = std::fs::File::options().read(true).write(true).create(true).open(&path)?;
//!
//! // A journal that a crash left is recovered here.
//! let name = CString::new(path.clone())?;
//! let file = AtomicFile::open(descriptor.as_fd(), Access::Write, &name, &Settings::default())?;
//!
//! let mut text = *b"all of it or nothing";
//! let buffers = [UserBuf { base: text.as_mut_ptr(), len: text.len() }];
//! // SAFETY: the buffer is alive and valid for its length.
//! let written = unsafe { file.write(0, &buffers) }?;
//! assert_eq!(written, text.len());
//! file.sync()?; // now it is durable, and what follows is the next epoch
//!
//! // Before the descriptor is closed. With the last one the file is committed, settled and closed clean.
//! file.remove_descriptor(descriptor.as_raw_fd())?;
//! drop(descriptor);
//!
//! assert_eq!(std::fs::read(&path)?, text); // no trace of us: a file like any other
//! assert_eq!(std::fs::read_dir(&folder)?.count(), 1);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! What a SYNC survives depends on the file's [domain](pmem::Domain): `docs/guarantees.md`. What lies on the medium is in
//! `docs/format.md`, and how the layers work together in `docs/architecture.md`. A layer calls only those that stand above
//! it here.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Famio is for 64-bit Linux");

pub mod error;
pub mod settings;

#[doc(hidden)]
pub mod rule;
pub(crate) mod sync;
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
