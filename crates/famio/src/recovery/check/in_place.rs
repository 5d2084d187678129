//! The structure of a journal in place.

use super::Problem;
use crate::error::Result;
use crate::index::{BLOCK, BLOCKS_MAX};
use crate::journal::Header;
use crate::journal::header::LEN as HEADER_LEN;
use crate::journal::inplace::{
    Commit, EXTENT_OFFSET, Geometry, Image, Key, SEGMENTS_MAX, SEGMENTS_START, SLOTS, STRIDE, Stored,
};
use crate::pmem::medium;
use crate::recovery::formats::in_place::wrong_with;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// Bytes in use of a slot, or of the line with the number of segments.
const LINE: usize = 64;

/// Returns the last commit and what is wrong. Without the file, granules that do not match their mirror are not
/// examined.
pub(super) fn check(
    journal: BorrowedFd<'_>,
    file: Option<BorrowedFd<'_>>,
    header: &Header,
) -> Result<(u64, Vec<Problem>)> {
    let length = rustix::fs::fstat(journal)?.st_size as u64;
    if length < SEGMENTS_START {
        let what = format!("the journal is {length} bytes long, its slots end at {SEGMENTS_START}: it was cut short");
        return Ok((0, vec![Problem::at(length, what)]));
    }
    let mut problems = rest_of_slots(journal)?;
    let medium = medium(header.domain, false);
    let mut image = Image::open(journal, length, Key::of(header.journal_id), medium)?;
    let last = slots(&image, &mut problems);
    segments(&mut image, length, &mut problems)?;
    let Some(last) = last else { return Ok((0, problems)) };
    if last.size > BLOCKS_MAX * BLOCK as u64 {
        let what = format!("the last commit says that the file has {} bytes, more than a file can have", last.size);
        problems.push(Problem::at(slot_at(last.epoch as usize % SLOTS), what));
    }
    entries(&image, file, last, &mut problems)?;
    Ok((last.epoch, problems))
}

fn slot_at(slot: usize) -> u64 {
    (HEADER_LEN + slot * STRIDE) as u64
}

/// Everything between the lines of the slots' page must be zero.
fn rest_of_slots(journal: BorrowedFd<'_>) -> Result<Vec<Problem>> {
    let mut page = [0u8; SEGMENTS_START as usize - HEADER_LEN];
    let read = rustix::io::pread(journal, &mut page[..], HEADER_LEN as u64)?;
    let extent = EXTENT_OFFSET as usize - HEADER_LEN;
    let used = |at: usize| at % STRIDE < LINE || (extent..extent + LINE / 2).contains(&at);
    let stray = (0..read).find(|&at| page[at] != 0 && !used(at));
    Ok(stray
        .map(|at| Problem::at((HEADER_LEN + at) as u64, "a byte between the slots is not zero"))
        .into_iter()
        .collect())
}

/// Every slot must hold, twice, the last epoch that was committed to it, except for the next slot, which may be torn.
/// Returns *C*.
fn slots(image: &Image<'_>, problems: &mut Vec<Problem>) -> Option<Commit> {
    let slots = image.slots();
    let Some(last) = slots.last() else {
        problems.push(Problem::at(slot_at(0), "there is no valid commit slot"));
        return None;
    };
    for slot in 0..SLOTS {
        let ([first, second], at) = ([slots.copy(slot, 0), slots.copy(slot, 1)], slot_at(slot));
        let is_next = (last.epoch + 1) % SLOTS as u64 == slot as u64;
        // The highest epoch up to C that belongs to this slot; if there is none, zeros.
        let behind = (last.epoch + SLOTS as u64 - slot as u64) % SLOTS as u64;
        let expected = last.epoch.checked_sub(behind).filter(|epoch| *epoch > 0);
        let fits = |(words, commit): &([u64; 4], Option<Commit>)| match expected {
            Some(epoch) => commit.is_some_and(|commit| commit.epoch == epoch),
            None => words.iter().all(|word| *word == 0),
        };
        // A commit's words are stored in order, so a crash leaves the next commit with at least its epoch.
        let torn = is_next && first.0[0] == last.epoch + 1 && first.1.is_none();
        if !fits(&first) && !torn {
            problems.push(Problem::at(at, format!("slot {slot}: the first copy of its commit is damaged")));
        }
        // If the first copy of a commit is whole, the second may be missing.
        let second_torn = last.epoch % SLOTS as u64 == slot as u64 && is_cut_short(&second, last);
        if !fits(&second) && !second_torn {
            let at = at + LINE as u64 / 2;
            problems.push(Problem::at(at, format!("slot {slot}: the second copy of its commit is damaged")));
        }
        if let (Some(a), Some(b)) = (first.1, second.1)
            && a.epoch == b.epoch
            && a.size != b.size
        {
            problems.push(Problem::at(at, format!("slot {slot}: its two copies tell of different sizes")));
        }
    }
    Some(last)
}

/// Whether a second copy is what a crash may leave: some words of the commit, then the previous content.
fn is_cut_short((words, commit): &([u64; 4], Option<Commit>), last: Commit) -> bool {
    let before = last.epoch.checked_sub(SLOTS as u64).filter(|epoch| *epoch > 0);
    match (commit, before) {
        (Some(commit), _) => Some(commit.epoch) == before,
        (None, _) if words[0] == last.epoch => true,
        (None, None) => words.iter().all(|word| *word == 0),
        (None, Some(_)) => false,
    }
}

/// Checks the number of segments, and the header of each. Afterwards `image` knows those that are sound.
fn segments(image: &mut Image<'_>, length: u64, problems: &mut Vec<Problem>) -> Result<()> {
    let extent = image.extent();
    let ([(a, a_sound), (b, b_sound)], at) = ([extent.copy(0), extent.copy(1)], EXTENT_OFFSET);
    let Some(count) = extent.read().filter(|&count| count <= SEGMENTS_MAX as u64) else {
        problems.push(Problem::at(at, "the number of its segments is damaged"));
        return Ok(());
    };
    // The number is stored twice, one copy after the other. It grows by one segment at a time, and drops to one when
    // the journal is cut.
    let fast_path = a.abs_diff(b) <= 1 || a.min(b) == 1;
    if !fast_path || (!a_sound && !b_sound) {
        problems.push(Problem::at(at, "one of the two copies of the number of its segments is damaged"));
    }
    for index in 0..count as usize {
        let geometry = Geometry::of(index);
        if geometry.end() > length {
            let end = geometry.end();
            let what = format!("the journal ends here, segment {index} at {end}: it was cut short");
            problems.push(Problem::at(length, what));
            return Ok(());
        }
        if !image.find_segment(geometry)? {
            problems.push(Problem::at(geometry.start, format!("the header of segment {index} is damaged")));
            return Ok(()); // the following entries cannot be told from the log blocks of another
        }
    }
    Ok(())
}

fn entries(image: &Image<'_>, file: Option<BorrowedFd<'_>>, last: Commit, problems: &mut Vec<Problem>) -> Result<()> {
    let mut owners: HashMap<u64, u32> = HashMap::new();
    image.each_entry(|number, stored| {
        let mut wrong = |what: &str| {
            problems.push(Problem::at(Geometry::entry_at(number), format!("entry {number}: {what}")));
        };
        let used = match stored {
            Stored::Free => return Ok(()),
            Stored::Damaged(what) => {
                wrong(what);
                return Ok(());
            }
            Stored::Used(used) => used,
        };
        if let Some(file) = file
            && let Some(what) = wrong_with(file, image, number, &used, last.epoch, last.size)?
        {
            wrong(what);
        }
        if let [Some((a_kind, a, _)), Some((b_kind, b, _))] = used.versions {
            if a_kind != b_kind {
                wrong("its two versions are of different kinds");
            }
            if a.epoch == b.epoch {
                wrong("its two versions are of the same epoch");
            }
        }
        if let Some(other) = owners.insert(used.constants.block, number) {
            wrong(&format!("block {} of the file is entry {other}'s, too", used.constants.block));
        }
        Ok(())
    })
}
