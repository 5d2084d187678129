//! Journals of records, for files that only `fdatasync` makes durable. `docs/format.md` describes every byte.
//!
//! After the header come **segments**, which are filled with zeros before use, so that a later `fdatasync` of data
//! written into them commits no metadata. A segment has a head page, and **records** that begin on pages and form a
//! chain by their hashes. A SYNC appends the open epoch as a *commit* record, or, if it is large, as *part* records
//! and a commit: one contiguous write and one `fdatasync`. An epoch without its commit record did not happen.
//!
//! A segment is reused, with a new generation, when all its epochs are durably in the file *and* a durable record
//! says so (its **tail**): a reader that finds half of the old segment then knows that it needs none of it.
//!
//! What a crash can leave, and how the [`scan`](Scan) tells it from damage:
//! - A power cut leaves any mixture of sectors of what was written since the last `fdatasync`: of the last epoch
//!   only. A broken record ends the chain, unless something in the journal was written after the record's epoch was
//!   durable.
//! - A process that dies leaves a prefix, in pages, of its last write. In a journal of this boot, a page that has
//!   neither the record's content nor the previous content is damaged. This is why every write begins and ends on a
//!   page boundary.

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
