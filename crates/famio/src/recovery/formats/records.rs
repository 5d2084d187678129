//! Recovery of a journal of records: copies its chain of committed epochs into the file.

use crate::error::Result;
use crate::index::OwnerLock;
use crate::journal::Header;
use crate::journal::records::{replay as replay_records, scan};
use crate::pmem::Medium;
use crate::recovery::Replayed;
use crate::recovery::{Options, Progress};
use std::os::fd::BorrowedFd;

/// See [`replay_records`]; a dry run only reads the journal through.
pub(in crate::recovery) fn replay(
    file: BorrowedFd<'_>,
    owner_lock: Option<&OwnerLock>,
    journal: BorrowedFd<'_>,
    header: &mut Header,
    medium: &dyn Medium,
    options: Options,
    progress: &dyn Progress,
) -> Result<Replayed> {
    let plan = scan(journal, header)?.plan();
    if options.dry_run {
        return Ok(Replayed { epoch: plan.epoch, bytes: plan.bytes });
    }
    // Everything was read and is sound: from here on, the file is changed by this recovery.
    owner_lock.iter().for_each(|owner_lock| owner_lock.forget_arena());
    progress.begin(plan.bytes);
    let done =
        replay_records(journal, header, file, medium, options.threads_for_epochs(), &|bytes| progress.advance(bytes))?;
    progress.end();
    Ok(Replayed { epoch: done.epoch, bytes: done.bytes })
}
