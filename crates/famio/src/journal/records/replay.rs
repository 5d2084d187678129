//! Bringing the file to the last committed epoch.

use super::gather::mask_runs;
use super::head::{Kind, parse};
use super::scan::{Scan, scan};
use super::walk::{Found, read_exactly};
use super::{BLOCK, PAGE, ZERO_PAGE};
use crate::error::{Error, Result};
use crate::journal::{BootId, Header, Identity, State};
use crate::pmem::Medium;
use crate::rule::{Rule, holds, in_order};
use std::os::fd::BorrowedFd;

/// What a medium writes as a whole, or not at all.
const SECTOR: usize = 512;

/// Below so many bytes, one thread does it all.
const LARGE: u64 = 64 << 20;

/// Threads take turns by so many blocks of the file.
const STRIPE: u64 = 256;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// The epoch that the file is at; 0: nothing was committed.
    pub epoch: u64,
    /// The file's size.
    pub size: u64,
    /// The bytes of data written to it.
    pub bytes: u64,
}

/// Brings `file` to the last epoch committed in `journal`, durably. Idempotent: a crash at any point, and another call,
/// give the same. The journal is as good afterwards as before; to make it *clean* and to remove it is for the caller.
///
/// `file` is open for writing. `header` is the journal's, active or suspect, as it was loaded. `progress` is told of
/// bytes as they are written, [`Plan::bytes`](super::Plan) in all, from any thread.
pub fn replay(
    journal: BorrowedFd<'_>,
    header: &mut Header,
    file: BorrowedFd<'_>,
    medium: &dyn Medium,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Replayed> {
    if !matches!(header.state, State::Active | State::Suspect) {
        return Err(Error::with(libc::EINVAL, format!("a journal that is {} is not replayed", header.state.name())));
    }
    if Identity::of_fd(file)? != header.identity {
        return Err(Error::with(libc::EIO, "the journal is another file's"));
    }
    let scan = scan(journal, header)?;
    let threads = if scan.plan().bytes > LARGE { threads.max(1) } else { 1 };
    let mut size = 0;
    in_order(
        Rule::JournalBeforeFile,
        || settle_journal(journal, header, &scan, medium),
        || {
            size = Apply { journal, file, medium, threads, progress }.all(&scan)?;
            medium.fdatasync(file)
        },
    )?;
    Ok(Replayed { epoch: scan.committed, size, bytes: scan.plan().bytes })
}

/// What [`replay`] would do to the file, told to `medium`; changes nothing else.
pub fn apply(journal: BorrowedFd<'_>, header: &Header, file: BorrowedFd<'_>, medium: &dyn Medium) -> Result<u64> {
    let scan = scan(journal, header)?;
    Apply { journal, file, medium, threads: 1, progress: &|_| {} }.all(&scan)?;
    Ok(scan.committed)
}

/// Before anything is stored in the file: what was read is durable (it may be only in a cache, or the kernel may have
/// failed to write it and forgotten), what did not happen is gone, and the header says that we are at it.
fn settle_journal(journal: BorrowedFd<'_>, header: &mut Header, scan: &Scan, medium: &dyn Medium) -> Result<()> {
    header.secure(journal, medium)?;
    let mut buffer = Vec::new();
    let last = if holds(Rule::LastEpochIsWrittenAgain) { &scan.last[..] } else { &[] };
    for &(position, pages) in last {
        buffer.resize(pages as usize * PAGE, 0);
        read_exactly(journal, &mut buffer, position)?;
        medium.pwritev(journal, &[&buffer], position)?;
    }
    let erase = if holds(Rule::WhatDidNotHappenIsErased) { &scan.erase[..] } else { &[] };
    // From the front, durably: a torn record may lack nothing but zeros, and zeros behind its first sector make it whole.
    for &position in erase {
        medium.pwritev(journal, &[&ZERO_PAGE[..SECTOR]], position)?;
    }
    if !erase.is_empty() {
        medium.fdatasync(journal)?;
    }
    for &position in erase {
        medium.pwritev(journal, &[&ZERO_PAGE[SECTOR..]], position + SECTOR as u64)?;
    }
    header.boot_id = BootId::current()?;
    header.stamp = None;
    // Flushes all of it. The header may come first: after a power cut, its boot is over in any case.
    header.store(journal, medium)
}

pub(super) struct Apply<'a> {
    pub journal: BorrowedFd<'a>,
    pub file: BorrowedFd<'a>,
    pub medium: &'a dyn Medium,
    pub threads: usize,
    pub progress: &'a (dyn Fn(u64) + Sync),
}

impl Apply<'_> {
    /// Everything, in order. The file's size afterwards.
    pub fn all(&self, scan: &Scan) -> Result<u64> {
        let mut size = rustix::fs::fstat(self.file)?.st_size as u64;
        let mut rest = &scan.records[..];
        while let Some(first) = rest.first() {
            // Bytes above the cut are of no epoch any more, or of a later one that comes again.
            if first.cut < size {
                self.medium.ftruncate(self.file, first.cut)?;
                size = first.cut;
            }
            // Up to the next cut, records can be applied in any order that keeps each block's own.
            let uncut = rest.windows(2).take_while(|pair| pair[1].cut >= pair[0].size).count() + 1;
            let (these, later) = rest.split_at(uncut);
            let grown = these[uncut - 1].size;
            if grown != size {
                self.resize(size, grown)?;
                size = grown;
            }
            self.uncut(these)?;
            rest = later;
        }
        match scan.size {
            // Also where it has that size: by a flush that failed, what is visible may be forgotten.
            Some(last) => self.resize(size, last).map(|()| last),
            None => Ok(size),
        }
    }

    /// Sets the size. Where the file grows, the rest of its last block is written: when it was cut, the kernel cleared that in
    /// memory, and by a flush that failed may have forgotten to on the medium.
    fn resize(&self, from: u64, to: u64) -> Result<()> {
        self.medium.ftruncate(self.file, to)?;
        let rest = from.next_multiple_of(BLOCK as u64).min(to).saturating_sub(from) as usize;
        if rest > 0 { self.medium.pwritev(self.file, &[&ZERO_PAGE[..rest]], from) } else { Ok(()) }
    }

    /// Records without a cut among them.
    fn uncut(&self, records: &[Found]) -> Result<()> {
        if self.threads == 1 {
            return self.stripes(records, 0);
        }
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..self.threads).map(|turn| scope.spawn(move || self.stripes(records, turn))).collect();
            let mine = self.stripes(records, 0);
            let joined = others.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::new(libc::EIO))));
            joined.fold(mine, Result::and)
        })
    }

    /// The blocks of one thread.
    fn stripes(&self, records: &[Found], turn: usize) -> Result<()> {
        let mut buffer = Vec::new();
        for record in records {
            self.one(record, turn, &mut buffer)?;
        }
        Ok(())
    }

    fn one(&self, record: &Found, turn: usize, buffer: &mut Vec<u8>) -> Result<()> {
        let changed =
            || Error::with(libc::EIO, format!("the journal changed while it was read, at {}", record.position));
        buffer.resize(PAGE, 0);
        read_exactly(self.journal, buffer, record.position)?;
        let head: [u8; PAGE] = buffer[..].try_into().map_err(|_| changed())?;
        let parsed = parse(&head)?.filter(|parsed| parsed.hash == record.hash).ok_or_else(changed)?;
        let mine = |block: u64| self.threads == 1 || (block / STRIPE) as usize % self.threads == turn;
        if parsed.head.kind == Kind::Note || !parsed.list().any(|listed| mine(listed.block)) {
            return Ok(());
        }
        buffer.resize(record.pages as usize * PAGE, 0);
        read_exactly(self.journal, &mut buffer[PAGE..], record.position + PAGE as u64)?;
        let mut at = parsed.data_start();
        // Neighbours in the file are neighbours in the record.
        let mut pending = Run { offset: 0, from: 0, to: 0 };
        let mut written = 0;
        for listed in parsed.list() {
            for run in mask_runs(listed.mask) {
                let offset = listed.block * BLOCK as u64 + run.start as u64;
                let (from, to) = (at, at + run.len());
                at = to;
                if !mine(listed.block) {
                    continue;
                }
                written += run.len() as u64;
                if pending.to != from || pending.end() != offset {
                    self.put(record, buffer, &pending)?;
                    pending = Run { offset, from, to };
                }
                pending.to = to;
            }
        }
        self.put(record, buffer, &pending)?;
        (self.progress)(written);
        Ok(())
    }

    /// Writes to the file what lies below the record's size.
    fn put(&self, record: &Found, buffer: &[u8], run: &Run) -> Result<()> {
        let end = run.end().min(record.size);
        if end <= run.offset {
            return Ok(());
        }
        let length = (end - run.offset) as usize;
        self.medium.pwritev(self.file, &[&buffer[run.from..run.from + length]], run.offset)
    }
}

/// Contiguous bytes of a record, and where they go.
struct Run {
    offset: u64,
    from: usize,
    to: usize,
}

impl Run {
    fn end(&self) -> u64 {
        self.offset + (self.to - self.from) as u64
    }
}
