//! Recovery of a growing file: one that has no journal. What lies beyond its committed size goes.

use super::examine::conflict_text;
use super::{Options, Outcome};
use crate::error::Result;
use crate::journal::live::durability_of;
use crate::journal::{GrowingMark, Identity, RangeHash, Stamp, boot, mark};
use crate::pmem::{Domain, Medium, detect, medium};
use crate::settings::{Durability, Settings};
use crate::sys::each_piece;
use core::fmt::Display;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// What is wrong with a growing file, if anything is: the text of the conflict.
pub(super) fn conflict(mark: &GrowingMark, identity: &Identity, stamp: &Stamp, path: &Path) -> Option<String> {
    // A write sets both times to the present. A program can set mtime to a time in the future, but not ctime.
    let changed = stamp.mtime.min(stamp.ctime).0;
    let what: &dyn Display = if mark.identity != identity.hash128() as u64 {
        &"the file carries the mark of another file: it is a copy of one that was being written, and may be half of it"
    } else if mark.is_volatile && i64::from(mark.until) < boot::started().0 {
        &"what was committed of it was not made to survive the end of its boot, which has ended"
    } else if stamp.size < mark.base && !mark.is_found {
        &format_args!("the file has {} bytes, and {} were committed", stamp.size, mark.base)
    } else if changed > i64::from(mark.until) && stamp.size != mark.base {
        &"the file was changed by somebody else after the crash"
    } else {
        return None;
    };
    Some(conflict_text(what, path))
}

/// The committed size, from what the file holds now.
pub(super) fn committed(file: BorrowedFd<'_>, mark: &GrowingMark, size: u64) -> Result<u64> {
    let base = if mark.is_found { mark.base.min(size) } else { mark.base };
    if mark.new == mark.base || size < mark.new {
        return Ok(base);
    }
    Ok(if hash_of(file, mark.base, mark.new)? == Some(mark.hash) { mark.new } else { base })
}

/// The hash of a range. `None`: the file ends before.
pub(crate) fn hash_of(file: BorrowedFd<'_>, from: u64, to: u64) -> Result<Option<u128>> {
    let mut hash = RangeHash::default();
    let is_whole = each_piece(file, from..to, |_, piece| {
        hash.update(piece);
        Ok(())
    })?;
    Ok(is_whole.then(|| hash.get()))
}

/// Brings the file to its committed size, and takes the mark off; the file is as after a clean close then. `keeps_all`: the file is to
/// be taken as it is.
pub(super) fn recover(
    file: BorrowedFd<'_>,
    mark: &GrowingMark,
    settings: &Settings,
    options: Options,
    keeps_all: bool,
) -> Result<Outcome> {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    let committed = if keeps_all { size } else { committed(file, mark, size)? };
    if !options.dry_run {
        let found = detect(file, settings).map_or(Domain::PageCache, |found| found.domain);
        let medium = medium(found, false);
        let durability = durability_of(found);
        if durability == Durability::Power {
            if mark.new > mark.base && committed >= mark.new {
                // A kernel that failed to write these bytes shows them all the same, and takes them for written.
                each_piece(file, mark.base..mark.new, |at, piece| medium.pwritev(file, &[piece], at))?;
            }
            medium.fsync(file)?;
        }
        end(file, mark, (committed, size), durability, medium)?;
    }
    Ok(if keeps_all {
        Outcome::Discarded
    } else if committed == size {
        Outcome::Clean
    } else {
        Outcome::Recovered
    })
}

/// The file, which has `size` bytes, of which at least `committed` are durable, ends as one of `committed` bytes, without a mark. First the mark says no
/// more than the size: one with a hash must not come back once others may overwrite the file.
pub(crate) fn end(
    file: BorrowedFd<'_>,
    mark: &GrowingMark,
    (committed, size): (u64, u64),
    durability: Durability,
    medium: &dyn Medium,
) -> Result<()> {
    if durability == Durability::Power && (!mark.is_plain() || mark.base != committed) {
        mark::set_growing(file, &mark.of_size(committed), false)?;
        medium.fsync(file)?;
    }
    if size > committed {
        medium.ftruncate(file, committed)?;
    }
    mark::remove(file)
}
