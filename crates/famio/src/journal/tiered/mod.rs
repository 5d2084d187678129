//! Tiered journals: a log in memory that persists by itself (DAX, or a tmpfs for as long as the boot lasts), before a file on a
//! disk. `docs/format.md` has it byte by byte.
//!
//! Behind the header lie the page of the commit slots, as in a journal in place, and segments. A segment has a head line and
//! **records**, which lie one behind the other, in whole cache lines: a head line, the list of blocks with their granules, and the
//! granules. A SYNC copies what the open epoch wrote behind the last record, fences, stores the slot, and fences again: no system
//! call, and no write to the disk. The file only gets what is committed, later, in the background.
//!
//! # What makes it right
//! - A slot is stored when all records of its epoch are persistent, and names the last one. So all records up to that one are there,
//!   whatever a crash leaves of those behind it, which belong to no epoch. One that is missing below is damage, and is told.
//! - A segment is used again when the file has all its epochs, durably, and the **tail**, which says so, is persistent. A new
//!   generation sets its records apart from the old ones.
//! - Recovery brings the file to the slot's epoch and ends the journal: no record is ever appended behind what a crash left.

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
pub(crate) use scan::{Scan, last_epoch, scan};

/// A cache line: the unit of records.
const LINE: usize = 64;

/// Where the line of the tail lies: in the slots' page, between the second slot and the third.
const TAIL: u64 = 4096 + 256 + LINE as u64;
