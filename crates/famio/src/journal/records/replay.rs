//! Brings the file to the last committed epoch.

use super::apply::{Apply, Content, Source, each_run};
use super::head::{Kind, parse};
use super::scan::{Scan, scan};
use super::walk::{Found, read_exactly};
use super::{PAGE, ZERO_PAGE};
use crate::error::{Error, Result};
use crate::journal::{BootId, Header, Identity, State};
use crate::pmem::Medium;
use crate::rule::{Rule, holds, in_order};
use std::os::fd::BorrowedFd;

/// A unit that a medium writes as a whole or not at all.
const SECTOR: usize = 512;

/// Below this many bytes, one thread does everything.
const LARGE: u64 = 64 << 20;

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

/// Brings `file` to the last epoch committed in `journal`, durably. Idempotent: after a crash at any point, another
/// call gives the same result. The journal stays valid; the caller marks it *clean* and removes it.
///
/// `file` is open for writing. `header` is the journal's, active or suspect, as it was loaded. `progress` receives
/// the bytes as they are written, [`Plan::bytes`](super::Plan) in all, from any thread.
pub fn replay(
    journal: BorrowedFd<'_>,
    header: &mut Header,
    file: BorrowedFd<'_>,
    medium: &dyn Medium,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Replayed> {
    if !header.state.is_pending(true) {
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
        || {
            checkpoint_journal(journal, header, &scan, medium)?;
            match header.state {
                // Its process may have died before the mark was durable, without which the journal does not count.
                State::AsMarked => medium.fsync(file),
                _ => Ok(()),
            }
        },
        || {
            size =
                Apply { source: &Pages { journal }, file, medium, threads, progress }.all(&scan.records, scan.size)?;
            medium.fdatasync(file)
        },
    )?;
    Ok(Replayed { epoch: scan.committed, size, bytes: scan.plan().bytes })
}

/// Tells `medium` what [`replay`] would do to the file; changes nothing else.
pub fn apply(journal: BorrowedFd<'_>, header: &Header, file: BorrowedFd<'_>, medium: &dyn Medium) -> Result<u64> {
    let scan = scan(journal, header)?;
    Apply { source: &Pages { journal }, file, medium, threads: 1, progress: &|_| {} }.all(&scan.records, scan.size)?;
    Ok(scan.committed)
}

/// Gives what the committed epochs that the file may lack have written: see `apply::each_run`.
///
/// # Errors
/// As there.
pub fn each_run_of(
    journal: BorrowedFd<'_>,
    scan: &Scan,
    wanted: &dyn Fn(u64) -> u64,
    give: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    each_run(&Pages { journal }, &scan.records, wanted, give)
}

/// Before anything is stored in the file: makes what was read durable (it may be only in a cache, or the kernel may
/// have failed to write it and dropped it), erases what did not happen, and notes in the header that recovery has
/// begun.
fn checkpoint_journal(journal: BorrowedFd<'_>, header: &mut Header, scan: &Scan, medium: &dyn Medium) -> Result<()> {
    header.secure(journal, medium)?;
    let mut buffer = Vec::new();
    let last = if holds(Rule::LastEpochIsWrittenAgain) { &scan.last[..] } else { &[] };
    for &(position, pages) in last {
        buffer.resize(pages as usize * PAGE, 0);
        read_exactly(journal, &mut buffer, position)?;
        medium.pwritev(journal, &[&buffer], position)?;
    }
    let erase = if holds(Rule::WhatDidNotHappenIsErased) { &scan.erase[..] } else { &[] };
    if scan.may_be_torn {
        // From the front, each durably: a torn record may lack only zeros, so zeros after its first sector would
        // complete it.
        for &position in erase {
            medium.pwritev(journal, &[&ZERO_PAGE[..SECTOR]], position)?;
        }
        if !erase.is_empty() {
            medium.fdatasync(journal)?;
        }
        for &position in erase {
            medium.pwritev(journal, &[&ZERO_PAGE[SECTOR..]], position + SECTOR as u64)?;
        }
    } else {
        // Whole pages: if this recovery is killed between two writes, the next one must not take half a page for
        // damage.
        for &position in erase {
            medium.pwritev(journal, &[&ZERO_PAGE], position)?;
        }
    }
    header.boot_id = BootId::current()?;
    // Flushes everything. The header may become durable first: after a power cut, its boot is over anyway.
    header.store(journal, medium)
}

/// Records that begin on pages.
pub(super) struct Pages<'a> {
    pub journal: BorrowedFd<'a>,
}

impl Source for Pages<'_> {
    type Record = Found;

    fn sizes(&self, record: &Found) -> (u64, u64) {
        (record.cut, record.size)
    }

    fn read(&self, record: &Found, mine: &dyn Fn(u64) -> bool, buffer: &mut Vec<u8>) -> Result<Option<Content>> {
        let changed =
            || Error::with(libc::EIO, format!("the journal changed while it was read, at {}", record.position));
        buffer.resize(PAGE, 0);
        read_exactly(self.journal, buffer, record.position)?;
        let head = buffer.clone(); // a page
        let parsed = parse(&head[..])?.filter(|parsed| parsed.hash == record.hash).ok_or_else(changed)?;
        if parsed.head.kind == Kind::Note || !parsed.list().any(|listed| mine(listed.block)) {
            return Ok(None);
        }
        buffer.resize(record.pages as usize * PAGE, 0);
        read_exactly(self.journal, &mut buffer[PAGE..], record.position + PAGE as u64)?;
        let list = parsed.list().map(|listed| (listed.block, listed.mask)).collect();
        Ok(Some(Content { list, data: parsed.data_start() }))
    }
}
