//! Recovery of a tiered journal: all that is committed, and not in the file yet, goes there, in order; then the journal ends.

use super::Replayed;
use super::{Options, Progress};
use crate::error::Result;
use crate::journal::Header;
use crate::journal::tiered::scan;
use crate::pmem::Medium;
use crate::rule::{Rule, in_order};
use std::os::fd::BorrowedFd;

/// See the module. `adopt` is called when all is checked and before anything is changed.
#[allow(clippy::too_many_arguments)]
pub(super) fn replay(
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
        || scan.secure(medium).and_then(|()| adopt()),
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

/// What a replay would do to the file, told to the medium `to`. Changes nothing else. The epoch of the last commit.
pub(super) fn list(
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
