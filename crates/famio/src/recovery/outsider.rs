//! Whether somebody else changed a file between the crash and now. The arena outlives a killed process, though not the
//! boot, and knows when the last writer left and how long the file was.

use crate::error::Result;
use crate::index::{ALONE, ARENA_MAGIC, Alone, Claim, Shared};
use core::mem::offset_of;
use std::os::fd::BorrowedFd;

/// File times may be this much coarser than the clock that writers read, in nanoseconds.
const SLACK: u64 = 20_000_000;

/// What was changed, in words; `None`: nothing, as far as can be told.
pub(super) fn changed(file: BorrowedFd<'_>, claim: &Claim) -> Result<Option<&'static str>> {
    let Some(page) = claim.arena_page() else { return Ok(None) }; // another boot, or it was removed
    let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| page[at + i]));
    let half = |at: usize| u32::from_le_bytes(core::array::from_fn(|i| page[at + i]));
    if word(offset_of!(Shared, magic)) != ARENA_MAGIC {
        return Ok(None);
    }
    let stat = rustix::fs::fstat(file)?;
    let size = stat.st_size as u64;
    if size != word(offset_of!(Shared, physical)) && size != word(offset_of!(Shared, physical_next)) {
        return Ok(Some("the size of the file was changed by somebody else after the crash"));
    }
    let alone = offset_of!(Shared, gate.alone) + offset_of!(Alone, inside);
    let alone = (0..ALONE).map(|i| alone + i * size_of::<Alone>());
    let inside = [offset_of!(Shared, gate.closed), offset_of!(Shared, slots)];
    let busy = inside.into_iter().chain(alone).any(|at| half(at) != 0);
    let touched = word(offset_of!(Shared, touched));
    let changed = stat.st_mtime as u64 * 1_000_000_000 + stat.st_mtime_nsec as u64;
    if !busy && touched != 0 && changed > touched + SLACK {
        return Ok(Some("the file was changed by somebody else after the crash"));
    }
    Ok(None)
}
