//! Tiered journals: a log in memory that persists by itself (DAX, or a tmpfs until the end of the boot), for a file
//! on a disk. `docs/format.md` describes every byte.
//!
//! `docs/crash-consistency.md` ("Tiered journals") says why a crash leaves all of an epoch or nothing.
//!
//! A SYNC copies the open epoch's **records** behind the last one, fences, stores the commit slot, and fences again: no
//! system call, and no write to the disk. A thread that has the file to itself stores whole blocks there **early**, as it
//! writes them. The background brings to the file what is committed, and then raises the **tail**, up to which segments
//! can be reused.

mod area;
mod check;
mod log;
mod record;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use area::{Area, Growth};
pub(crate) use check::check;
pub(crate) use log::{EarlyPlace, MOST_EARLY, TieredLog};
pub(crate) use scan::{last_epoch, scan};

/// A cache line: the unit of records.
const LINE: usize = 64;

/// Where the line of the tail lies: in the slots' page, between the second slot and the third.
const TAIL: u64 = 4096 + 256 + LINE as u64;
