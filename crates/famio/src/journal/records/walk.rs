//! Reads records one after the other, and trusts none of them.

use super::geometry::Place;
use super::head::{Kind, Parsed, parse};
use super::{PAGE, ZERO_PAGE};
use crate::error::{Error, Result};
use crate::journal::JournalId;
use crate::rule::{Rule, holds};
use crate::sys::read_at;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of one read.
const READ_AHEAD: usize = 512 << 10;

/// A complete record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub kind: Kind,
    pub position: u64,
    pub pages: u32,
    pub epoch: u64,
    pub committed: u64,
    pub tail: u64,
    pub size: u64,
    pub cut: u64,
    /// Bytes of data.
    pub data: u64,
    pub hash: u128,
    pub behind: u64,
}

/// Why there is no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Break {
    /// The segment ends.
    End,
    /// The previous content lies there, or zeros.
    Absent,
    /// The first part of a record, followed by the previous content.
    Prefix,
    /// Something else.
    Broken,
}

/// What the chain says about the next record.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    pub place: Place,
    pub generation: u64,
    pub position: u64,
    pub previous: u128,
    pub behind: u64,
}

/// A journal's file, read forwards.
pub(in crate::journal) struct Reader<'a> {
    fd: BorrowedFd<'a>,
    journal_id: JournalId,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Reader<'a> {
    /// Reads up to `end`, which must not be beyond the file's end.
    pub fn new(fd: BorrowedFd<'a>, journal_id: JournalId, end: u64) -> Self {
        Reader { fd, journal_id, end, window: Vec::new(), window_at: 0 }
    }

    /// For a journal that is not of records: only for [`bytes`](Self::bytes).
    pub fn of_bytes(fd: BorrowedFd<'a>, end: u64) -> Self {
        Self::new(fd, JournalId([0; 16]), end)
    }

    /// `len` bytes at `at`; they end before `end`.
    pub fn bytes(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        let inside = at >= self.window_at && at + len as u64 <= self.window_at + self.window.len() as u64;
        if !inside {
            let wanted = (len.max(READ_AHEAD) as u64).min(self.end.saturating_sub(at)) as usize;
            if wanted < len {
                return Err(Error::with(libc::EIO, format!("the journal ends before byte {}", at + len as u64)));
            }
            self.window.resize(wanted, 0);
            self.window_at = at;
            if let Err(error) = read_exactly(self.fd, &mut self.window, at) {
                self.window.clear();
                return Err(error);
            }
        }
        let start = (at - self.window_at) as usize;
        Ok(&self.window[start..start + len])
    }

    /// The record that the chain expects, or why it is missing. An error: there is a record that Famio would not have
    /// written.
    pub(super) fn next(&mut self, expected: &Expected) -> Result<core::result::Result<Found, Break>> {
        let Expected { place, position, .. } = *expected;
        if position + PAGE as u64 > place.end() {
            return Ok(Err(Break::End));
        }
        let id = self.journal_id;
        let here = |e: Error| e.context(format_args!("at byte {position}"));
        let page = self.bytes(position, PAGE)?;
        let pages = match parse(page).map_err(here)? {
            Some(parsed) if is_expected(&parsed, id, expected) => parsed.head.pages as usize,
            _ if xxh3_64(page) == expected.behind || page == ZERO_PAGE => return Ok(Err(Break::Absent)),
            _ => return Ok(Err(Break::Broken)),
        };
        if position + (pages * PAGE) as u64 > place.end() {
            return Err(here(Error::with(libc::EIO, format!("a record has {pages} pages, more than its segment"))));
        }
        let bytes = self.bytes(position, pages * PAGE)?;
        let Some(parsed) = parse(&bytes[..PAGE]).map_err(here)? else { return Ok(Err(Break::Broken)) };
        let state = (1..pages).map(|page| {
            let check = xxh3_64(&bytes[page * PAGE..(page + 1) * PAGE]);
            let (new, old) = parsed.checks(page);
            (check == new || !holds(Rule::PagesHaveChecks), check == old)
        });
        let (mut whole, mut prefix) = (true, true);
        for (new, old) in state {
            prefix &= if whole { new || old } else { old };
            whole &= new;
        }
        if !whole {
            return Ok(Err(if prefix { Break::Prefix } else { Break::Broken }));
        }
        let head = parsed.head;
        Ok(Ok(Found {
            kind: head.kind,
            position,
            pages: head.pages,
            epoch: head.epoch,
            committed: head.committed,
            tail: head.tail,
            size: head.size,
            cut: head.cut,
            data: parsed.data_len(),
            hash: parsed.hash,
            behind: head.behind,
        }))
    }

    /// Searches `from..to` for a record that was written when `epoch` was durable. Returns the epoch that it knew to
    /// be durable.
    pub fn proof(&mut self, from: u64, to: u64, epoch: u64) -> Result<Option<u64>> {
        let id = self.journal_id;
        let mut next = from;
        while next < to {
            let position = self.skip_hole(next);
            if position >= to {
                break;
            }
            next = position + PAGE as u64;
            if let Ok(Some(parsed)) = parse(self.bytes(position, PAGE)?) {
                let head = parsed.head;
                if head.journal_id == id && head.position == position && head.committed >= epoch {
                    return Ok(Some(head.committed));
                }
            }
        }
        Ok(None)
    }

    /// One page, without what follows it, unless that was read already. On the heap: the
    /// caller's stack may be small.
    pub fn page(&mut self, at: u64) -> Result<Box<[u8; PAGE]>> {
        let mut page = Box::new([0; PAGE]);
        match at.checked_sub(self.window_at).and_then(|from| self.window.get(from as usize..)?.get(..PAGE)) {
            Some(bytes) => page.copy_from_slice(bytes),
            None => read_exactly(self.fd, &mut page[..], at)?,
        }
        Ok(page)
    }

    /// The first page from `at` on that may contain anything but zeros. A journal with terabytes of holes, which
    /// Famio never creates, must not take longer to read than one without them.
    fn skip_hole(&self, at: u64) -> u64 {
        let window = self.window_at..self.window_at + self.window.len() as u64;
        if window.contains(&at) {
            return at;
        }
        match rustix::fs::seek(self.fd, SeekFrom::Data(at)) {
            Ok(data) => at.max(data & !(PAGE as u64 - 1)),
            Err(Errno::NXIO) => u64::MAX,
            Err(_) => at,
        }
    }
}

fn is_expected(parsed: &Parsed<'_>, id: JournalId, expected: &Expected) -> bool {
    let head = &parsed.head;
    (head.journal_id, head.position) == (id, expected.position)
        && (head.generation == expected.generation || !holds(Rule::RecordIsOfGeneration))
        && (head.previous == expected.previous || !holds(Rule::RecordFollowsHash))
}

/// Fills `to` from a file.
pub(in crate::journal) fn read_exactly(fd: BorrowedFd<'_>, to: &mut [u8], at: u64) -> Result<()> {
    let done = read_at(fd, at, to).map_err(|e| e.context(format_args!("reading the journal at byte {at}")))?;
    if done < to.len() {
        return Err(Error::with(libc::EIO, format!("the journal ends at byte {}", at + done as u64)));
    }
    Ok(())
}
