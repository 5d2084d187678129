//! Regions: maps of atomic files that a program makes explicitly, and uses by pointers and by copies.
//!
//! A region is a map like those of a program's own `mmap` (`file::shadow`); if the file may be stored to, it is a map
//! of memory with the file's current bytes. So stores through pointers, [copies](copy) and writes of one epoch are
//! atomic together, on every domain and under every policy. A copy is cheaper than a store: it notes what it changes,
//! so the SYNC need not search for it. Where there are only copies, the SYNC looks for nothing
//! ([`AtomicFile::map_for_copies`](crate::AtomicFile::map_for_copies)).

mod advise;
mod bytes;
mod map;

pub use advise::advise;
pub(crate) use advise::advised;
pub use bytes::{copy, copy_string, find_region, set};
pub(crate) use map::Purpose;
pub use map::Region;
