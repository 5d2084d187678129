//! Tiered journals: a log in memory that persists by itself (DAX, or a tmpfs until the end of the boot), for a file
//! on a disk. `docs/format.md` describes every byte.
//!
//! After the header come the page of the commit slots, as in a journal in place, and segments. A segment has a head
//! line and **records**, one after the other, in whole cache lines: a head line, the list of blocks with their
//! granules, and the granules. A SYNC copies what the open epoch wrote after the last record, fences, stores the
//! slot, and fences again: no system call, and no write to the disk. The file gets only what is committed, later, in
//! the background.
//!
//! # Correctness
//! - A slot is stored when all records of its epoch are persistent, and names the last one. So all records up to that
//!   one exist, whatever a crash leaves of those after it, which belong to no epoch. If one is missing before it,
//!   that is damage, and is reported.
//! - A segment is reused when the file has all its epochs, durably, and the **tail**, which says so, is persistent. A
//!   new generation sets its records apart from the old ones.
//! - Recovery brings the file to the slot's epoch and ends the journal: no record is ever appended after what a crash
//!   left.

mod area;
mod check;
mod log;
mod record;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use area::Growth;
pub(crate) use check::check;
pub(crate) use log::TieredLog;
pub(crate) use scan::{last_epoch, scan};

/// A cache line: the unit of records.
const LINE: usize = 64;

/// Where the line of the tail lies: in the slots' page, between the second slot and the third.
const TAIL: u64 = 4096 + 256 + LINE as u64;
