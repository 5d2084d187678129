//! Famio: failure-atomic mapped I/O. Everything written to a file between two SYNCs becomes durable as a whole or,
//! after a crash, is gone as a whole.
//!
//! Most programs never see this crate: `famio run` loads it into them, and their own `write` and `fsync` do the rest.
//! A program can also use an [`AtomicFile`] directly, and map it by [`Region`]s:
//!
//! ```
//! use famio::AtomicFile;
//!
//! # fn main() -> Result<(), famio::Error> {
//! // On tmpfs a SYNC survives the end of the process, however it ends; on a disk, loss of power too.
//! let folder = format!("/dev/shm/famio-example-{}", std::process::id());
//! # std::fs::create_dir(&folder).unwrap();
//! let path = format!("{folder}/file");
//!
//! // A journal that a crash left is recovered here.
//! let file = AtomicFile::options().create(true).open(&path)?;
//! file.write_at(b"all of it ", 0)?;
//! file.append(b"or nothing")?;
//! file.sync()?; // now it is durable; what follows belongs to the next epoch
//!
//! file.set_len(8192)?;
//! let region = file.map(..)?;
//! region.write_at(b"by a copy to memory", 4096)?;
//! // SAFETY: below the end of the file, and no other thread or process uses it.
//! unsafe { region.as_ptr().add(5000).write(7) }; // by a pointer
//! file.write_at(b"by a call", 6000)?;
//! file.sync()?; // all three, as a whole
//!
//! drop(region);
//! file.close()?; // reports errors that a drop could not
//!
//! let bytes = std::fs::read(&path).unwrap(); // no trace of Famio: a file like any other
//! assert_eq!((&bytes[..20], bytes[5000]), (&b"all of it or nothing"[..], 7));
//! assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! Items hidden in these pages are for Famio's own programs, and change without notice.
//!
//! For C there is `libfamio` (`crates/famio-capi`, `docs/api.md`). [`file::AtomicFile`] is the layer below, for
//! callers with a descriptor and possibly bad buffers.
//!
//! What a SYNC survives depends on the file's [domain](pmem::Domain): `docs/guarantees.md`. `docs/format.md`
//! describes what lies on the medium, `docs/architecture.md` how the layers work together. A layer calls only those
//! listed above it here.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Famio is for 64-bit Linux");

pub mod error;
pub mod settings;

pub(crate) mod beside;
mod fast_path;
mod name_prefilter;
#[doc(hidden)]
pub mod rule;
pub(crate) mod sync;

#[doc(hidden)]
pub mod kernel;

#[doc(hidden)]
pub mod heap;

#[doc(hidden)]
pub mod thread;

#[doc(hidden)]
pub mod sys;

pub mod pmem;

pub mod map;

pub(crate) mod index;

#[doc(hidden)]
pub mod journal;

pub mod recovery;

#[doc(hidden)]
pub mod file;

pub mod region;

pub(crate) mod transaction;

#[doc(hidden)]
pub mod posix;

mod open;

pub use error::{Error, Result};
pub use map::Advice;
pub use open::{AtomicFile, OpenOptions, Tx, TxFile};
pub use region::Region;
pub use settings::{
    Atomicity, DeferClose, Durability, JournalChoice, LocksChoice, OnClose, OnKill, PolicyChoice, Settings, TierChoice,
    WriteBackRange,
};
