//! Regions: maps of atomic files that the program uses knowingly, by pointers and by copies.
//!
//! A region is a map as a program's own `mmap` gives one (`file::shadow`): for a file that may be stored to, of memory that
//! holds the file's bytes as they are now. So stores through pointers, [copies](copy) and writes of one epoch are atomic
//! together, on every domain and under every policy. A copy is cheaper than a store: it says what it has changed, so that the
//! SYNC does not have to find out.

mod advise;
mod bytes;
mod map;

pub use advise::advise;
pub(crate) use advise::advised;
pub use bytes::{copy, copy_string, find_region, set};
pub use map::Region;
