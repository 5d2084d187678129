//! What `famio check` says about the lines of a tiered journal, where recovery would stop at the first problem.

use super::log::FOUND;
use super::scan::scan;
use crate::error::Result;
use crate::journal::Header;
use crate::journal::header::LEN as HEADER_LEN;
use crate::journal::inplace::{Image, Key, SEGMENTS_START, SLOTS, STRIDE};
use crate::pmem::Medium;
use std::os::fd::BorrowedFd;

/// The position of a problem, if it has one, and its description.
pub(crate) type Wrong = (Option<u64>, String);

/// Returns the last commit (0: none), and what is wrong.
///
/// # Errors
/// Those that keep it from being read.
pub(crate) fn check(
    journal: BorrowedFd<'_>,
    header: &Header,
    medium: &'static dyn Medium,
) -> Result<(u64, Vec<Wrong>)> {
    let length = rustix::fs::fstat(journal)?.st_size as u64;
    if length < SEGMENTS_START {
        let what = format!("the journal is {length} bytes long, its slots end at {SEGMENTS_START}: it was cut short");
        return Ok((0, vec![(Some(length), what)]));
    }
    let mut problems = Vec::new();
    let image = Image::open(journal, length, Key::of(header.journal_id), medium)?;
    let slots = image.slots();
    if let Some(last) = slots.last() {
        for slot in 0..SLOTS {
            // The highest epoch up to C that belongs to this slot; the next slot may be torn.
            let behind = (last.epoch + SLOTS as u64 - slot as u64) % SLOTS as u64;
            let expected = last.epoch.checked_sub(behind).filter(|&epoch| epoch >= FOUND);
            let is_next = (last.epoch + 1) % SLOTS as u64 == slot as u64;
            let found = [slots.copy(slot, 0).1, slots.copy(slot, 1).1].into_iter().flatten().map(|commit| commit.epoch);
            if !is_next && found.max() != expected {
                let at = (HEADER_LEN + slot * STRIDE) as u64;
                problems.push((Some(at), format!("slot {slot}: both copies of its commit are damaged")));
            }
        }
    }
    match scan(journal, length, header, medium) {
        Ok(scan) => Ok((scan.epoch(), problems)),
        Err(e) if e.errno() == libc::EIO => {
            problems.push((None, e.to_string()));
            Ok((0, problems))
        }
        Err(e) => Err(e),
    }
}
