//! Recovery of a tiered journal: copies everything committed that the file lacks to the file, in order, and removes
//! the journal.

use super::Source;
use crate::error::Result;
use crate::journal::tiered::scan;
use crate::pmem::Medium;
use crate::recovery::{Options, Progress, Replayed};
use crate::rule::{Rule, in_order};

/// See the module. `adopt` is called after everything is checked and before the file is changed. It writes the header
/// once more, and makes the whole journal durable.
pub(in crate::recovery) fn replay(
    Source { file, journal, length, header, medium }: Source<'_>,
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
    Source { file, journal, length, header, medium }: Source<'_>,
    to: &dyn Medium,
) -> Result<u64> {
    let scan = scan(journal, length, header, medium)?;
    scan.apply(file, to, 1, &|_| {})?;
    Ok(scan.epoch())
}
