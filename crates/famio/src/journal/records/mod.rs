//! Journals of records, for files that only `fdatasync` makes durable. `docs/format.md` describes every byte, and how
//! the [`scan`](Scan) tells what a crash leaves from damage; `docs/crash-consistency.md` ("Journals of records") says
//! why a crash leaves all of an epoch or nothing.
//!
//! **Segments** are filled with zeros before use, so that a later `fdatasync` of data written into them commits no
//! metadata. **Records** begin on pages and form a chain by their hashes. A SYNC appends the open epoch as a *commit*
//! record, or, if it is large, as *part* records and a commit: one contiguous write and one `fdatasync`. Writes begin
//! and end on page boundaries, since a process that dies leaves whole pages of its last write.

mod apply;
mod check;
mod gather;
mod geometry;
mod head;
mod log;
mod replay;
mod scan;
mod segment;
mod shared;
#[cfg(test)]
mod tests;
mod walk;

pub(in crate::journal) use apply::{Apply, Content, Source, each_run};
pub use check::check_segments;
pub(in crate::journal) use gather::mask_runs;
pub use gather::{Batch, Block};
pub use geometry::Geometry;
pub(in crate::journal) use geometry::Place;
pub use log::RecordLog;
pub use replay::{Replayed, apply, each_run_of, replay};
pub use scan::{Plan, Scan, scan};
pub use shared::{Keeper, Preparation};
pub(in crate::journal) use walk::{Reader, read_exactly};

/// The unit of records, and of what a dying process leaves.
const PAGE: usize = 4096;

/// The bytes of a block of the file.
pub const BLOCK: usize = 4096;

/// The bytes of a granule; a block's mask has a bit for each.
pub const GRANULE: usize = BLOCK / 64;

/// A page of zeros.
static ZERO_PAGE: [u8; PAGE] = [0; PAGE];
