//! Recovery of a tiered journal: copies everything committed that the file lacks to the file, in order, and removes
//! the journal.

use crate::error::Result;
use crate::journal::Header;
use crate::journal::tiered::scan;
use crate::pmem::Medium;
use crate::recovery::Replayed;
use crate::recovery::{Options, Progress};
use crate::rule::{Rule, in_order};
use std::os::fd::BorrowedFd;

/// See the module. `adopt` is called after everything is checked and before the file is changed. It writes the header
/// once more, and makes the whole journal durable.
#[allow(clippy::too_many_arguments)]
pub(in crate::recovery) fn replay(
    file: BorrowedFd<'_>,
    journal: BorrowedFd<'_>,
    length: u64,
    header: &Header,
    medium: &'static dyn Medium,
    options: Options,
    progress: &dyn Progress,
    adopt: impl FnOnce() -> Result<()>,
) -> Result<Replayed> {
    let scan = scan(journal, length, header, medium)?;
    let replayed = Replayed { epoch: scan.epoch(), bytes: scan.bytes() };
    if options.dry_run {
        return Ok(replayed);
    }
    in_order(
        Rule::TieredJournalBeforeFile,
        || scan.write_slot_again().and_then(|()| adopt()),
        || {
            progress.begin(replayed.bytes);
            scan.apply(file, medium, options.threads_for_epochs(), &|bytes| progress.advance(bytes))?;
            medium.fdatasync(file)?;
            progress.end();
            Ok(())
        },
    )?;
    Ok(replayed)
}

/// Tells the medium `to` what a replay would do to the file; changes nothing else. Returns the epoch of the last
/// commit.
pub(in crate::recovery) fn list(
    file: BorrowedFd<'_>,
    journal: BorrowedFd<'_>,
    length: u64,
    header: &Header,
    medium: &'static dyn Medium,
    to: &dyn Medium,
) -> Result<u64> {
    let scan = scan(journal, length, header, medium)?;
    scan.apply(file, to, 1, &|_| {})?;
    Ok(scan.epoch())
}
