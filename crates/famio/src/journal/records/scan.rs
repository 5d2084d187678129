//! What a journal holds: the committed epochs that the file may lack; or why that cannot be told.

use super::geometry::{Geometry, Place};
use super::head::Kind;
use super::segment::SegmentHead;
use super::walk::{Break, Expected, Found, Reader};
use super::{PAGE, ZERO_PAGE};
use crate::error::{Error, Result};
use crate::journal::{self, BootId, Header, State};
use crate::rule::{Rule, holds};
use std::os::fd::BorrowedFd;

/// What a journal holds.
#[derive(Debug, Default)]
pub struct Scan {
    pub(super) committed: u64,
    pub(super) tail: u64,
    /// The size after the last epoch, if it is still known; it may be unknown if everything is in the file.
    pub(super) size: Option<u64>,
    /// The records of the epochs after the tail, in order.
    pub(super) records: Vec<Found>,
    /// Pages to be zeroed, so that nothing of what did not happen is found again.
    pub(super) erase: Vec<u64>,
    /// More than the death of a process may have happened, so that pages may be torn.
    pub(super) may_be_torn: bool,
    /// Pages (where, how many) that may not be on the medium yet: the last epoch's.
    pub(super) last: Vec<(u64, u32)>,
}

/// What a replay would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The last committed epoch; 0: none.
    pub epoch: u64,
    /// Up to this epoch, the file has everything.
    pub checkpointed: u64,
    /// The file's size afterwards; `None`: unchanged.
    pub size: Option<u64>,
    /// Bytes of data to write to the file.
    pub bytes: u64,
}

impl Scan {
    /// What a replay would do.
    pub fn plan(&self) -> Plan {
        let bytes = self.records.iter().map(|record| record.data).sum();
        Plan { epoch: self.committed, checkpointed: self.tail, size: self.size, bytes }
    }
}

/// Reads a whole journal; changes nothing.
pub fn scan(journal: BorrowedFd<'_>, header: &Header) -> Result<Scan> {
    // After a failed flush, pages may have been lost from memory in any order.
    let strict = header.boot_id == BootId::current()? && header.state != State::Suspect;
    scan_as(journal, header, strict)
}

/// `strict`: nothing worse than the death of a process has happened, so writes are complete up to some page.
pub(super) fn scan_as(journal: BorrowedFd<'_>, header: &Header, strict: bool) -> Result<Scan> {
    if header.kind != journal::Kind::Records {
        return Err(damage("it is a journal in place, not of records"));
    }
    let (geometry, count) = Geometry::get(&header.geometry)?;
    let (length, end) = (rustix::fs::fstat(journal)?.st_size as u64, geometry.end(count));
    if length < end {
        return Err(damage(&format!("it has {length} bytes, its header tells of {end}")));
    }
    let mut scanner = Scanner {
        reader: Reader::new(journal, header.journal_id, end),
        strict,
        entered: Vec::new(),
        unknown: Vec::new(),
        proof: None,
    };
    scanner.segments(header, geometry.places().take(count))?;
    Ok(Scan { may_be_torn: !strict, ..scanner.chain()? })
}

fn damage(what: &str) -> Error {
    Error::with(libc::EIO, format!("the journal is damaged: {what}"))
}

struct Scanner<'a> {
    reader: Reader<'a>,
    strict: bool,
    /// In order of generation.
    entered: Vec<(Place, SegmentHead)>,
    /// Segments without a valid head page: torn, or damaged.
    unknown: Vec<Place>,
    /// A later segment (by its index in `entered`) that proves that an epoch was durable.
    proof: Option<(usize, u64)>,
}

/// Position along the chain.
struct Chain {
    /// The segment in which it began.
    start: usize,
    committed: u64,
    /// A record was found that says what is committed; with its tail.
    tail: Option<u64>,
    size: Option<u64>,
    records: Vec<Found>,
    /// After the last commit or note: the segment and the position.
    end: (usize, u64),
}

impl Scanner<'_> {
    /// Reads the head pages.
    fn segments(&mut self, header: &Header, places: impl Iterator<Item = Place>) -> Result<()> {
        for place in places {
            let page = self.reader.page(place.offset)?;
            match SegmentHead::get(&page[..]) {
                Some(head) if head.journal_id == header.journal_id && head.position == place.offset => {
                    self.entered.push((place, head));
                }
                None if *page == ZERO_PAGE => {}
                _ if self.strict => {
                    return Err(damage(&format!("the head of the segment at byte {}", place.offset)));
                }
                _ => self.unknown.push(place),
            }
        }
        self.entered.sort_unstable_by_key(|(_, head)| head.generation);
        if let Some(pair) = self.entered.windows(2).find(|pair| pair[0].1.generation == pair[1].1.generation) {
            let (a, b) = (pair[0].0.offset, pair[1].0.offset);
            return Err(damage(&format!("the segments at bytes {a} and {b} have the same generation")));
        }
        Ok(())
    }

    /// Follows the chain. If a segment breaks it that was being reused, starts again from the next segment.
    fn chain(&mut self) -> Result<Scan> {
        let mut start = 0;
        while start < self.entered.len() {
            match self.follow(start)? {
                Ok(chain) => return self.conclude(chain),
                Err(broken_in) => start = broken_in + 1,
            }
        }
        if start > 0 || self.proves(0, None, 1)? {
            return Err(damage("the last epochs are missing"));
        }
        Ok(Scan { erase: self.unknown.iter().map(|place| place.offset).collect(), ..Scan::default() })
    }

    /// Follows the chain from the beginning of a segment to its end. `Err`: the segment in which it is broken
    /// although more was committed.
    fn follow(&mut self, start: usize) -> Result<core::result::Result<Chain, usize>> {
        let (place, head) = self.entered[start];
        let first = place.offset + PAGE as u64;
        let mut previous = head.previous;
        let mut chain = Chain {
            start,
            committed: head.committed,
            tail: None,
            size: None,
            records: Vec::new(),
            end: (start, first),
        };
        let mut index = start;
        loop {
            let (place, head) = self.entered[index];
            let mut expected = Expected {
                place,
                generation: head.generation,
                position: place.offset + PAGE as u64,
                previous,
                behind: head.behind,
            };
            let broken = loop {
                match self.reader.next(&expected)? {
                    Ok(record) => {
                        chain.add(record)?;
                        expected.position += u64::from(record.pages) * PAGE as u64;
                        (expected.previous, expected.behind) = (record.hash, record.behind);
                        if record.kind != Kind::Part {
                            chain.end = (index, expected.position);
                        }
                    }
                    Err(broken) => break broken,
                }
            };
            previous = expected.previous;
            if let Some((_, next)) = self.entered.get(index + 1)
                && (next.generation, next.previous) == (head.generation + 1, previous)
                && next.committed == chain.committed
            {
                index += 1;
                continue;
            }
            if self.proves(index, Some(expected.position), chain.committed + 1)? {
                return Ok(Err(index));
            }
            if self.strict && broken == Break::Broken {
                return Err(damage(&format!("the record at byte {}", expected.position)));
            }
            return Ok(Ok(chain));
        }
    }

    /// Whether something after `from` in segment `index`, in a later segment, or in an unknown one was written when
    /// `epoch` was durable. Without `from`: in an unknown one only.
    fn proves(&mut self, index: usize, from: Option<u64>, epoch: u64) -> Result<bool> {
        if self.proof.is_some_and(|(at, committed)| at > index && committed >= epoch) {
            return Ok(true);
        }
        if let Some(from) = from {
            let later = index + 1..self.entered.len();
            if let Some(at) = later.clone().find(|&at| self.entered[at].1.committed >= epoch) {
                self.proof = Some((at, self.entered[at].1.committed));
                return Ok(true);
            }
            // A segment that begins with an epoch, or a note, was begun when the previous record was durable, so that
            // record is missing from the chain. If it was a note, it committed no later epoch.
            let begins = |head: &SegmentHead| !head.continues && head.committed + 1 >= epoch;
            if later.clone().any(|at| begins(&self.entered[at].1)) && holds(Rule::MissingNoteIsNoEnd) {
                return Ok(true);
            }
            if self.reader.proof(from, self.entered[index].0.end(), epoch)?.is_some() {
                return Ok(true);
            }
            for at in later {
                let place = self.entered[at].0;
                if let Some(committed) = self.reader.proof(place.offset + PAGE as u64, place.end(), epoch)? {
                    self.proof = Some((at, committed));
                    return Ok(true);
                }
            }
        }
        for i in 0..self.unknown.len() {
            let place = self.unknown[i];
            if self.reader.proof(place.offset, place.end(), epoch)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What the chain means for the file.
    fn conclude(&mut self, chain: Chain) -> Result<Scan> {
        let (place, head) = self.entered[chain.start];
        // The first epoch that is complete in the chain.
        let first_whole = head.committed + 1 + u64::from(head.continues);
        let gap = chain.tail.is_none_or(|tail| first_whole > tail + 1);
        let (chain, end) = if !gap {
            let end = chain.end;
            (Some(chain), end)
        } else if head.committed == 0 && (chain.committed == 0 || !self.proves(0, Some(place.offset), 1)?) {
            (None, (chain.start, place.offset)) // the first epoch, uncommitted or torn
        } else {
            return Err(damage(&format!("epochs before {first_whole} are missing")));
        };
        let mut scan = Scan { erase: self.unknown.iter().map(|place| place.offset).collect(), ..Scan::default() };
        if end.1 < self.entered[end.0].0.end() {
            scan.erase.push(end.1);
        }
        scan.erase.extend(self.entered[end.0 + 1..].iter().map(|(place, _)| place.offset));
        let Some(chain) = chain else { return Ok(scan) };
        scan.committed = chain.committed;
        scan.tail = chain.tail.unwrap_or(0);
        scan.size = chain.size;
        scan.records = chain.records;
        for record in scan.records.iter().filter(|record| record.epoch == scan.committed) {
            scan.last.push((record.position, record.pages));
        }
        let heads = self
            .entered
            .iter()
            .map(|(place, _)| place)
            .filter(|place| scan.last.iter().any(|&(position, _)| (place.offset..place.end()).contains(&position)));
        let heads: Vec<(u64, u32)> = heads.map(|place| (place.offset, 1)).collect();
        scan.last.extend(heads);
        let (tail, committed) = (scan.tail, scan.committed);
        scan.records.retain(|r| r.kind != Kind::Note && r.epoch > tail && r.epoch <= committed);
        Ok(scan)
    }
}

impl Chain {
    fn add(&mut self, record: Found) -> Result<()> {
        if record.committed != self.committed || self.tail.is_some_and(|tail| record.tail < tail) {
            return Err(damage(&format!("the record at byte {} is out of its order", record.position)));
        }
        self.records.push(record);
        match record.kind {
            Kind::Part => return Ok(()),
            // All commits may have been released: the note has the size of the last one.
            Kind::Note => self.size = Some(record.size),
            Kind::Commit => {
                self.committed = record.epoch;
                self.size = Some(record.size);
            }
        }
        self.tail = Some(record.tail);
        Ok(())
    }
}
