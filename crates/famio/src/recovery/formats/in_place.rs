//! Recovery of a journal in place. First everything is read and checked; then undo is rolled back, committed granules
//! go to the file, and the file gets its size.

use super::Source;
use crate::error::{Error, Result};
use crate::index::{BLOCK, BLOCKS_MAX, Version};
use crate::journal::Header;
use crate::journal::inplace::{Commit, GRANULES, Image, Key, Kind, Stored, Used};
use crate::pmem::Medium;
use crate::recovery::{Options, Progress, Replayed, processors};
use crate::rule::{Rule, holds};
use crate::sys::read_at;
use std::os::fd::BorrowedFd;

const GRANULE: usize = BLOCK / GRANULES;
/// A journal with less than this to move does not get a thread of its own.
const BYTES_PER_THREAD: u64 = 64 << 20;

/// Granules to copy from a log block to the file.
#[derive(Clone, Copy, Debug)]
struct Move {
    block: u64,
    entry: u32,
    granules: u64,
}

/// See the module. `adopt` is called after everything is checked and before the file is changed. It writes the header
/// once more, and makes the whole journal durable.
pub(in crate::recovery) fn replay(
    source: Source<'_>,
    options: Options,
    progress: &dyn Progress,
    adopt: impl FnOnce() -> Result<()>,
) -> Result<Replayed> {
    let Source { file, medium, .. } = source;
    let Found { image, last, moves, bytes } = find(source)?;
    let replayed = Replayed { epoch: last.epoch, bytes };
    if options.dry_run {
        return Ok(replayed);
    }

    // Visible is not persistent: the commit just read is made durable, together with the header, before anything is
    // done because of it. Stale entries would do no harm: with them, too, what was copied is what is committed.
    image.write_again(last)?;
    adopt()?;

    progress.begin(bytes);
    let size = rustix::fs::fstat(file)?.st_size as u64;
    if size < last.size {
        medium.ftruncate(file, last.size)?;
    }
    copy_all(file, &image, &moves, bytes, options.threads, medium, progress)?;
    // Even if the size is right already: after a failed flush, the visible size may not be the durable one.
    medium.ftruncate(file, last.size)?;
    medium.fdatasync(file)?;
    progress.end();
    Ok(replayed)
}

/// Makes the entries durable as a replay has found them, before the file gets any bytes that a replay would not give
/// it. For an entry whose granules do not match their mirror, log and file have the same bytes; a later recovery
/// would not find that any more, and would report damage. On the medium, other entries may be in this state.
pub(in crate::recovery) fn keep_entries(
    journal: BorrowedFd<'_>,
    length: u64,
    header: &Header,
    medium: &'static dyn Medium,
) -> Result<()> {
    let mut image = Image::open(journal, length, Key::of(header.journal_id), medium)?;
    image.find_segments()?;
    image.write_entries_again()?;
    medium.fdatasync(journal)
}

/// Whether a replay can read everything that it needs.
pub(in crate::recovery) fn read_through(source: Source<'_>) -> Result<()> {
    find(source).map(drop)
}

/// Tells the medium `to` what a replay would do to the file; changes nothing else. Returns the epoch of the last
/// commit.
pub(in crate::recovery) fn list(source: Source<'_>, to: &dyn Medium) -> Result<u64> {
    let file = source.file;
    let Found { image, last, moves, bytes } = find(source)?;
    to.ftruncate(file, last.size)?;
    copy_all(file, &image, &moves, bytes, 1, to, &crate::recovery::Silent)?;
    to.ftruncate(file, last.size)?;
    Ok(last.epoch)
}

/// A journal that was read completely, and what it has for the file.
struct Found<'a> {
    image: Image<'a>,
    last: Commit,
    moves: Vec<Move>,
    bytes: u64,
}

fn find(Source { file, journal, length, header, medium }: Source<'_>) -> Result<Found<'_>> {
    let mut image = Image::open(journal, length, Key::of(header.journal_id), medium)?;
    let Some(last) = image.slots().last() else {
        return Err(Error::with(libc::EIO, "the journal has no valid commit slot"));
    };
    image.find_segments()?;
    if last.size > BLOCKS_MAX * BLOCK as u64 {
        return Err(Error::with(libc::EIO, format!("the last commit says that the file has {} bytes", last.size)));
    }
    let moves = check_all(file, &image, last.epoch, last.size)?;
    let bytes = moves.iter().map(|m| u64::from(m.granules.count_ones()) * GRANULE as u64).sum();
    Ok(Found { image, last, moves, bytes })
}

/// Checks every entry against the last commit, and lists what has to be copied. Changes nothing.
fn check_all(file: BorrowedFd<'_>, image: &Image<'_>, committed: u64, size: u64) -> Result<Vec<Move>> {
    let mut moves = Vec::new();
    let mut blocks = Vec::new();
    image.each_entry(|number, stored| {
        let damaged = |what: &str| Err(Error::with(libc::EIO, format!("entry {number}: {what}")));
        let used = match stored {
            Stored::Free => return Ok(()),
            Stored::Used(used) => used,
            Stored::Damaged(what) => return damaged(what),
        };
        let block = used.constants.block;
        if let Some(what) = wrong_with(file, image, number, &used, committed, size)? {
            return damaged(what);
        }
        blocks.push(block);
        if let Some(granules) = to_move(&used, committed) {
            let below = below(block, size);
            if granules & below != 0 {
                moves.push(Move { block, entry: number, granules: granules & below });
            }
        }
        Ok(())
    })?;
    blocks.sort_unstable();
    if let Some(pair) = blocks.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::with(libc::EIO, format!("two entries are of block {}", pair[0])));
    }
    Ok(moves)
}

/// What is wrong with an entry in use, if anything.
pub(in crate::recovery) fn wrong_with(
    file: BorrowedFd<'_>,
    image: &Image<'_>,
    number: u32,
    used: &Used,
    committed: u64,
    size: u64,
) -> Result<Option<&'static str>> {
    let block = used.constants.block;
    if block >= BLOCKS_MAX || used.constants.class != 12 {
        return Ok(Some("it names a block that can't be"));
    }
    for &(kind, version, mirror) in used.versions.iter().flatten() {
        if version.epoch > committed + 1 {
            return Ok(Some("it holds an epoch above the one that was open"));
        }
        let counts = (kind == Kind::Undo) == (version.epoch > committed);
        if counts
            && holds(Rule::GranulesHaveMirror)
            && !same_in_both(file, image, number, block, version.granules ^ mirror, size)?
        {
            return Ok(Some("its granules do not fit their mirror"));
        }
    }
    Ok(None)
}

/// A crash between the stores of granules and mirror leaves bits that only one of them has. Such bits have no effect:
/// file and log have the same bytes (a pre-image whose granule was not overwritten yet, or a granule just
/// checkpointed), at least below the committed `size`; the rest of the granule is lost when a recovery cuts the file,
/// perhaps before the new size is durable. In any other case, something is damaged.
fn same_in_both(
    file: BorrowedFd<'_>,
    image: &Image<'_>,
    entry: u32,
    block: u64,
    granules: u64,
    size: u64,
) -> Result<bool> {
    let (mut there, mut logged) = ([0u8; GRANULE], [0u8; GRANULE]);
    for g in (0..GRANULES).filter(|g| granules >> g & 1 == 1) {
        let offset = block * BLOCK as u64 + (g * GRANULE) as u64;
        there.fill(0);
        // Bytes beyond the end are not committed.
        let done = read_at(file, offset, &mut there).map_err(|e| e.context("reading the file"))?;
        let size = if holds(Rule::MirrorCountsBelowSize) { size } else { u64::MAX };
        let done = done.min(size.saturating_sub(offset) as usize);
        image.read_block(entry, g, &mut logged)?;
        if there[..done] != logged[..done] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Granules of an entry that the file lacks: pre-images of an uncommitted epoch, or committed data.
fn to_move(used: &Used, committed: u64) -> Option<u64> {
    let versions = || used.versions.iter().flatten().map(|&(kind, version, _)| (kind, version));
    let undo = versions().find(|(kind, version)| *kind == Kind::Undo && version.epoch > committed);
    if let Some((_, version)) = undo {
        return Some(version.granules);
    }
    let held = versions().filter(|(kind, version)| *kind == Kind::Map && version.epoch <= committed);
    held.max_by_key(|(_, version): &(Kind, Version)| version.epoch).map(|(_, version)| version.granules)
}

/// Granules of a block that begin below `size`.
fn below(block: u64, size: u64) -> u64 {
    let granules = size.saturating_sub(block * BLOCK as u64).div_ceil(GRANULE as u64);
    if granules >= 64 { u64::MAX } else { (1 << granules) - 1 }
}

fn copy_all(
    file: BorrowedFd<'_>,
    image: &Image<'_>,
    moves: &[Move],
    bytes: u64,
    threads: usize,
    medium: &dyn Medium,
    progress: &dyn Progress,
) -> Result<()> {
    let most = if threads > 0 { threads } else { processors().min(bytes.div_ceil(BYTES_PER_THREAD) as usize) };
    let share = moves.len().div_ceil(crate::thread::sharing(most.clamp(1, 64))).max(1);
    let work = |moves: &[Move]| moves.iter().try_for_each(|m| copy_one(file, image, m, medium, progress));
    if moves.len() <= share {
        return work(moves);
    }
    std::thread::scope(|scope| {
        let shares: Vec<_> = moves.chunks(share).map(|moves| scope.spawn(move || work(moves))).collect();
        let mut result = Ok(());
        for share in shares {
            let done = share.join().unwrap_or_else(|_| Err(Error::with(libc::EIO, "a recovery thread failed")));
            if result.is_ok() {
                result = done;
            }
        }
        result
    })
}

fn copy_one(
    file: BorrowedFd<'_>,
    image: &Image<'_>,
    m: &Move,
    medium: &dyn Medium,
    progress: &dyn Progress,
) -> Result<()> {
    // One read for all of them, even if it includes granules that are not copied.
    let (from, to) = (m.granules.trailing_zeros() as usize, GRANULES - m.granules.leading_zeros() as usize);
    let mut block = [0u8; BLOCK];
    image.read_block(m.entry, from, &mut block[from * GRANULE..to * GRANULE])?;
    let mut bits = m.granules;
    while bits != 0 {
        let first = bits.trailing_zeros() as usize;
        let count = (!(bits >> first)).trailing_zeros() as usize;
        let offset = m.block * BLOCK as u64 + (first * GRANULE) as u64;
        medium.pwritev(file, &[&block[first * GRANULE..(first + count) * GRANULE]], offset)?;
        progress.advance((count * GRANULE) as u64);
        bits &= if first + count == 64 { 0 } else { u64::MAX << (first + count) };
    }
    Ok(())
}
