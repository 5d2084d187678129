//! What `famio check` says about each segment, where recovery would stop at the first problem.

use super::ZERO_PAGE;
use super::geometry::Geometry;
use super::segment::SegmentHead;
use super::walk::Reader;
use crate::error::Result;
use crate::journal::{BootId, Header, State};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// What is wrong with the segments, each with its position: space that the header counts and that does not exist,
/// invalid heads, heads of another journal or position, and duplicate generations. An error: nothing can be found at
/// all.
pub fn check_segments(journal: BorrowedFd<'_>, header: &Header) -> Result<Vec<(u64, String)>> {
    let (geometry, count) = Geometry::get(&header.geometry)?;
    let length = rustix::fs::fstat(journal)?.st_size as u64;
    // After a power cut, a head that was just being written may be torn, which is no damage.
    let strict = header.boot_id == BootId::current()? && header.state != State::Suspect;
    let mut reader = Reader::new(journal, header.journal_id, length);
    let mut problems = Vec::new();
    let mut generations: HashMap<u64, u64> = HashMap::new();
    for place in geometry.places().take(count) {
        let at = place.offset;
        if place.end() > length {
            let end = place.end();
            problems
                .push((length, format!("the journal ends here, its segment at byte {at} at {end}: it was cut short")));
            break;
        }
        let page = reader.page(at)?;
        match SegmentHead::get(&page[..]) {
            None if *page == ZERO_PAGE || !strict => {}
            None => problems.push((at, "the head of a segment is damaged".into())),
            Some(head) if head.journal_id != header.journal_id => {
                problems.push((at, format!("the head of a segment is of journal {}", head.journal_id)));
            }
            Some(head) if head.position != at => {
                problems.push((at, format!("the head of a segment is of the one at byte {}", head.position)));
            }
            Some(head) => {
                if let Some(other) = generations.insert(head.generation, at) {
                    let generation = head.generation;
                    problems.push((at, format!("the segment has generation {generation}, as the one at byte {other}")));
                }
            }
        }
    }
    Ok(problems)
}
