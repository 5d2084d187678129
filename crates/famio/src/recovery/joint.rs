//! Recovery of a file that was part of a joint commit, and was not told so any more: what the transaction changes of it lies in a record
//! in the pool ([`journal::joint`](crate::journal::joint)).

use crate::error::Result;
use crate::journal::joint::{Folder, Part, Step, find};
use crate::journal::pool::journal_name_of;
use crate::journal::{Header, Identity, JournalId, Pool, State};
use crate::pmem::Medium;
use std::os::fd::{AsFd, BorrowedFd};

/// The file has come to epoch `committed` of its journal, and that is still pending: if a record has a part that follows, the file gets it,
/// durably. Bytes that it got.
pub(super) fn apply(
    pool: Option<&Pool>,
    file: BorrowedFd<'_>,
    header: &Header,
    committed: u64,
    medium: &dyn Medium,
) -> Result<u64> {
    let mut applied = 0;
    let Some(folder) = pool.map(|pool| find(pool, file)).transpose()?.flatten() else { return Ok(0) };
    folder.each(file, |_, record| {
        for part in record.parts()? {
            if !is_next(&part, &header.identity, header.journal_id, committed) {
                continue;
            }
            // The other files may have been recovered, or will be, because of what is visible here: it has to stay.
            record.secure()?;
            record.each_step(&part, |step| match step {
                Step::Write { offset, bytes } => {
                    applied += bytes.len() as u64;
                    medium.pwritev(file, &[bytes], offset)
                }
                Step::SetSize(size) => medium.ftruncate(file, size),
            })?;
            medium.fdatasync(file)?;
        }
        Ok(())
    })?;
    Ok(applied)
}

/// Whether a part follows epoch `committed` of that journal.
fn is_next(part: &Part, identity: &Identity, journal: JournalId, committed: u64) -> bool {
    part.identity == identity.hash128() && part.journal == journal && part.committed == committed
}

/// Removes the records that no journal waits for any more, and whose process is gone.
/// Best effort: one that stays does no harm.
pub(super) fn remove_old(pool: Option<&Pool>, file: BorrowedFd<'_>) {
    if let Some(pool) = pool
        && let Ok(Some(folder)) = find(pool, file)
        && remove_old_of(pool, &folder, file).is_ok()
    {
        folder.remove_if_empty();
    }
}

fn remove_old_of(pool: &Pool, folder: &Folder<'_>, file: BorrowedFd<'_>) -> Result<()> {
    let mut old = Vec::new();
    folder.each(file, |name, record| {
        if !record.is_in_use() && record.parts()?.iter().all(|part| is_over(pool, part)) {
            old.push(name.to_owned());
        }
        Ok(())
    })?;
    old.iter().for_each(|name| folder.remove(name));
    Ok(())
}

/// Whether the journal of a part has ended. Not known counts as no.
fn is_over(pool: &Pool, part: &Part) -> bool {
    match pool.open_read_only(&journal_name_of(part.identity), None) {
        Ok(None) => true,
        Ok(Some(journal)) => Header::load(journal.as_fd()).is_ok_and(|(header, _)| {
            header.journal_id != part.journal || matches!(header.state, State::Clean | State::Creating)
        }),
        Err(_) => false,
    }
}
