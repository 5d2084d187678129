//! What a tiered journal holds: the committed epochs that the file may lack, or why that cannot be told. It is read
//! piece by piece and never mapped: its owner, who may be any user, can cut it or change it at any moment.

use super::area::SEGMENTS_MAX;
use super::log::FOUND;
use super::record::{Head, generation_of, list, list_lines};
use super::{LINE, TAIL};
use crate::error::{Error, Result};
use crate::index::{BLOCK, BLOCKS_MAX};
use crate::journal::inplace::{Commit, Extent, Image, Key, SEGMENTS_START};
use crate::journal::records::{Apply, Content, GRANULE, Geometry, Place, Reader, Source, each_run, read_exactly};
use crate::journal::{Header, Kind};
use crate::pmem::Medium;
use crate::rule::{Rule, holds};
use core::sync::atomic::AtomicU64;
use std::os::fd::BorrowedFd;

/// Below this many bytes, one thread does everything.
const LARGE: u64 = 64 << 20;

/// A record of an epoch that is committed and may not be in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    position: u64,
    head: Head,
}

/// What a journal holds.
pub(crate) struct Scan<'a> {
    journal: BorrowedFd<'a>,
    key: Key,
    image: Image<'a>,
    pub(super) last: Commit,
    pub(super) tail: u64,
    /// The records of the epochs after the tail, in order.
    records: Vec<Found>,
}

/// Reads the heads of a whole journal, `length` bytes long; changes nothing.
///
/// # Errors
/// `EIO`: damaged: not everything that was committed is there.
pub(crate) fn scan<'a>(
    journal: BorrowedFd<'a>,
    length: u64,
    header: &Header,
    medium: &'static dyn Medium,
) -> Result<Scan<'a>> {
    let damaged = |what: &str| Err(Error::with(libc::EIO, format!("the journal is damaged: {what}")));
    if header.kind != Kind::Tiered {
        return damaged("it is not a tiered one");
    }
    let key = Key::of(header.journal_id);
    let image = Image::open(journal, length, key, medium)?;
    let Some((last, number)) = image.slots().last_with() else {
        return damaged("it has no valid commit slot");
    };
    if last.size > BLOCKS_MAX * BLOCK as u64 {
        return damaged(&format!("the last commit says that the file has {} bytes", last.size));
    }
    let Some(tail) = tail_of(journal, key, medium)? else {
        return damaged("how far it is written back is damaged");
    };
    if tail < FOUND || tail > last.epoch {
        return damaged(&format!("it is written back up to epoch {tail}, and committed up to {}", last.epoch));
    }
    let mut records = Vec::new();
    for place in places(length, header, &image)? {
        segment(journal, key, place, length, &mut |found| {
            if found.head.number <= number && found.head.epoch > tail {
                records.push(found);
            }
        })?;
    }
    records.sort_unstable_by_key(|found| found.head.number);
    if let Some(what) = wrong_with(&records, last.epoch, tail, number) {
        return damaged(&what);
    }
    Ok(Scan { journal, key, image, last, tail, records })
}

/// The last commit according to the slots, without reading the records.
pub(crate) fn last_epoch(
    journal: BorrowedFd<'_>,
    length: u64,
    header: &Header,
    medium: &'static dyn Medium,
) -> Option<u64> {
    let image = Image::open(journal, length, Key::of(header.journal_id), medium).ok()?;
    image.slots().last().map(|commit| commit.epoch)
}

fn tail_of(journal: BorrowedFd<'_>, key: Key, medium: &'static dyn Medium) -> Result<Option<u64>> {
    let mut bytes = [0; LINE];
    read_exactly(journal, &mut bytes, TAIL)?;
    let words: [AtomicU64; 8] =
        core::array::from_fn(|i| AtomicU64::new(u64::from_ne_bytes(core::array::from_fn(|byte| bytes[8 * i + byte]))));
    Ok(Extent::of_tail(&words, medium, key).read())
}

/// The segments that the journal counts.
pub(super) fn places(length: u64, header: &Header, image: &Image<'_>) -> Result<Vec<Place>> {
    let (geometry, _) = Geometry::get(&header.geometry)?;
    let Some(count) = image.extent().read().filter(|&count| count <= SEGMENTS_MAX) else {
        return Err(Error::with(libc::EIO, "the number of its segments is damaged"));
    };
    let places: Vec<Place> = geometry.places_from(SEGMENTS_START).take(count as usize).collect();
    match places.last().filter(|last| last.end() > length) {
        Some(last) => {
            let end = last.end();
            Err(Error::with(libc::EIO, format!("the journal is {length} bytes long, its segments end at {end}")))
        }
        None => Ok(places),
    }
}

/// Passes on the records of one segment, up to where no record of its generation follows. These may include any that
/// a crash left: committed ones are known by their numbers.
fn segment(journal: BorrowedFd<'_>, key: Key, place: Place, end: u64, found: &mut dyn FnMut(Found)) -> Result<()> {
    let mut reader = Reader::of_bytes(journal, end.min(place.end()));
    let Some(generation) = generation_of(key, place.offset, reader.bytes(place.offset, LINE)?) else { return Ok(()) };
    let mut position = place.offset + LINE as u64;
    while position + LINE as u64 <= place.end() {
        let Some(head) = Head::get(key, position, reader.bytes(position, LINE)?) else { break };
        let next = position.saturating_add(head.len());
        if head.generation != generation && holds(Rule::TieredRecordIsOfGeneration) || next > place.end() {
            break;
        }
        let lines = list_lines(head.count.into()) as usize * LINE;
        if list(&head, reader.bytes(position + LINE as u64, lines)?).is_none() {
            break;
        }
        found(Found { position, head });
        position = next;
    }
    Ok(())
}

/// What is wrong with the records after the tail, in the order of their numbers, if anything: everything committed
/// must be there.
fn wrong_with(records: &[Found], epoch: u64, tail: u64, number: u64) -> Option<String> {
    let Some((first, last)) = records.first().zip(records.last()) else {
        return (tail < epoch).then(|| format!("nothing of the epochs after {tail} is there"));
    };
    let (first, last) = (first.head, last.head);
    if (first.epoch, first.is_first) != (tail + 1, true) {
        return Some(format!("the epochs between {tail} and {} are missing", first.epoch));
    }
    if (last.number, last.epoch) != (number, epoch) {
        return Some(format!("record {number}, the last of epoch {epoch}, is missing"));
    }
    let follows = |pair: &&[Found]| {
        let (a, b) = (pair[0].head, pair[1].head);
        b.number == a.number + 1 && b.epoch == a.epoch + u64::from(b.is_first)
    };
    let broken = records.windows(2).find(|pair| !follows(pair));
    broken.map(|pair| format!("something is missing behind the record at byte {}", pair[0].position))
}

impl Scan<'_> {
    /// The last committed epoch.
    pub fn epoch(&self) -> u64 {
        self.last.epoch
    }

    /// The epoch up to which the file has everything.
    pub fn checkpointed(&self) -> u64 {
        self.tail
    }

    /// The bytes of data to be written to the file.
    pub fn bytes(&self) -> u64 {
        let granules: u64 = self.records.iter().map(|found| u64::from(found.head.granules)).sum();
        granules * GRANULE as u64
    }

    /// Visible is not persistent: writes the slot of the last commit once more, to be durable before anything is done
    /// because of it: after the journal's next `fdatasync`. The records are durable: the slot was stored after they
    /// were.
    ///
    /// # Errors
    /// Those of the journal's medium.
    pub fn write_slot_again(&self) -> Result<()> {
        if holds(Rule::TieredSlotIsWrittenAgain) { self.image.write_again(self.last) } else { Ok(()) }
    }

    /// Brings `file` to the last commit, through `medium`. Not synced.
    ///
    /// # Errors
    /// `EIO`: the journal has changed since it was read. Those of the file's medium.
    pub fn apply(
        &self,
        file: BorrowedFd<'_>,
        medium: &dyn Medium,
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<()> {
        let threads = if self.bytes() > LARGE { threads.max(1) } else { 1 };
        Apply { source: self, file, medium, threads, progress }.all(&self.records, Some(self.last.size)).map(drop)
    }

    /// See [`each_run`].
    ///
    /// # Errors
    /// `EIO`: the journal is not what was read. Those of `give`.
    pub fn each_run(&self, wanted: &dyn Fn(u64) -> u64, give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        each_run(self, &self.records, wanted, give)
    }
}

impl Source for Scan<'_> {
    type Record = Found;

    fn sizes(&self, found: &Found) -> (u64, u64) {
        (found.head.cut, found.head.size)
    }

    fn read(&self, found: &Found, mine: &dyn Fn(u64) -> bool, buffer: &mut Vec<u8>) -> Result<Option<Content>> {
        let Found { position, head } = *found;
        let changed = || Error::with(libc::EIO, format!("the journal changed while it was read, at {position}"));
        let data = head.data() as usize;
        buffer.resize(data, 0);
        read_exactly(self.journal, buffer, position)?;
        if Head::get(self.key, position, &buffer[..LINE]) != Some(head) {
            return Err(changed());
        }
        let list = list(&head, &buffer[LINE..data]).ok_or_else(changed)?;
        if !list.iter().any(|&(block, _)| mine(block)) {
            return Ok(None);
        }
        buffer.resize(head.len() as usize, 0);
        read_exactly(self.journal, &mut buffer[data..], position + data as u64)?;
        Ok(Some(Content { list, data }))
    }
}
