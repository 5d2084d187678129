//! Whether an outsider has changed a file between the crash and now. The arena outlives a killed process, though not
//! the boot, and has the time when the last writer left and the size of the file then.

use crate::error::Result;
use crate::index::{ARENA_MAGIC, EXCLUSIVE_WORDS, Entered, Exact, Exclusive, OwnerLock, Shared};
use core::mem::offset_of;
use std::os::fd::BorrowedFd;

/// File times may be coarser than the clock that writers read by this many nanoseconds.
const SLACK: u64 = 20_000_000;

const PAGE: u64 = 4096;
/// The most by which such a write makes the file longer; a size in a longer one is taken for an outsider's.
const LONGEST: u64 = 2 << 20;

/// What an outsider has done to a file whose journal is to be recovered.
pub(super) enum Found {
    /// Nothing, as far as can be told.
    Unchanged,
    /// What it changed, in words: the journal does not fit the file any more.
    Changed(&'static str),
    /// It changed a file that had everything, as one has that the program has closed.
    ChangedExact,
}

/// Looks at `file`, which this process owns.
pub(super) fn look(file: BorrowedFd<'_>, owner_lock: &OwnerLock) -> Result<Found> {
    let Some(page) = owner_lock.arena_page() else { return Ok(Found::Unchanged) }; // after a reboot, or it was removed
    let stat = rustix::fs::fstat(file)?;
    if let Some(exact) = Shared::exact_file_in(&page) {
        return Ok(if exact == Exact::of(&stat) { Found::Unchanged } else { Found::ChangedExact });
    }
    let changed = stat.st_mtime as u64 * 1_000_000_000 + stat.st_mtime_nsec as u64;
    Ok(changed_since(&page, stat.st_size as u64, changed).map_or(Found::Unchanged, Found::Changed))
}

/// What an outsider changed, in words, by the first page of an arena, for a file of that size and with that time of the
/// last change, in nanoseconds.
fn changed_since(page: &[u8; 4096], size: u64, changed: u64) -> Option<&'static str> {
    let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| page[at + i]));
    let half = |at: usize| u32::from_le_bytes(core::array::from_fn(|i| page[at + i]));
    if word(offset_of!(Shared, magic)) != ARENA_MAGIC {
        return None;
    }
    let [before, next] = [offset_of!(Shared, physical), offset_of!(Shared, physical_next)].map(word);
    // A kill within a write that makes the file longer ends it after some of its pages.
    let is_within = (before..next).contains(&size) && size.is_multiple_of(PAGE) && next - before <= LONGEST;
    if size != before && size != next && !is_within {
        return Some("another program changed the size of the file after the crash");
    }
    let exclusive = offset_of!(Shared, gate.exclusive_words) + offset_of!(Exclusive, inside);
    let exclusive = (0..EXCLUSIVE_WORDS).map(|i| exclusive + i * size_of::<Exclusive>());
    // The killed process may have had any of the slots.
    let entered = (0..size_of::<Entered>() / 4).map(|i| offset_of!(Shared, entered) + i * 4);
    let busy = exclusive.chain(entered).chain([offset_of!(Shared, gate.closed)]).any(|at| half(at) != 0);
    let touched = word(offset_of!(Shared, touched));
    if !busy && touched != 0 && changed > touched + SLACK {
        return Some("another program changed the file after the crash");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the first slot was examined, which the only process of a file once always had. If a process with another
    /// slot was killed in a write, its changes counted as an outsider's.
    #[test]
    fn what_a_process_changed_that_was_killed_in_a_write_is_nobody_elses() {
        let mut page = [0; 4096];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(Shared, magic), &ARENA_MAGIC.to_le_bytes());
        put(offset_of!(Shared, physical_next), &5000u64.to_le_bytes());
        put(offset_of!(Shared, touched), &1_000_000_000u64.to_le_bytes());
        let later = 1_000_000_000 + 2 * SLACK;
        assert!(changed_since(&page, 5001, 1_000_000_000).is_some() && changed_since(&page, 5000, later).is_some());
        assert!(changed_since(&page, 5000, 1_000_000_000).is_none());
        let mut growing = page;
        growing[offset_of!(Shared, physical)..][..8].copy_from_slice(&2000u64.to_le_bytes());
        let is_ours = |size: u64| changed_since(&growing, size, 1_000_000_000).is_none();
        assert_eq!([2000, 4096, 5000].map(is_ours), [true; 3]);
        assert_eq!([1999, 2002, 5001, 8192].map(is_ours), [false; 4]);
        for at in [0, 4, size_of::<Entered>() - 4] {
            let mut page = page;
            page[offset_of!(Shared, entered) + at] = 1;
            assert!(changed_since(&page, 5000, later).is_none());
        }
    }
}
