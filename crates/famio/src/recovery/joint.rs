//! Recovery of a file that was part of a joint commit, and was not told so any more: what the transaction changes of it lies in a record
//! in the pool ([`journal::joint`](crate::journal::joint)).

use crate::error::Result;
use crate::journal::joint::{Folder, Part, Record, Step, find, find_all};
use crate::journal::pool::journal_name_of;
use crate::journal::{Header, Identity, JournalId, Pool, State, lock};
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
    folder.each(Some(file), |_, record| {
        let Some(record) = Record::open(record)? else { return Ok(()) };
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

/// Removes the records that no journal waits for any more, and whose process is gone. Best effort: one that stays does no harm.
pub(super) fn remove_old(pool: Option<&Pool>, file: BorrowedFd<'_>) {
    if let Some(pool) = pool
        && let Ok(Some(folder)) = find(pool, file)
    {
        remove_old_of(pool, &folder);
    }
}

/// As [`remove_old`], of all owners.
pub(super) fn remove_all_old(pool: &Pool) {
    if let Ok(folders) = find_all(pool) {
        folders.iter().for_each(|folder| remove_old_of(pool, folder));
    }
}

fn remove_old_of(pool: &Pool, folder: &Folder<'_>) {
    // In a pool that somebody has named, an empty folder may be anybody's.
    if remove_old_in(pool, folder).is_ok_and(|removed| removed > 0 || pool.is_beside()) {
        folder.remove_if_empty();
    }
}

/// How many were removed.
fn remove_old_in(pool: &Pool, folder: &Folder<'_>) -> Result<usize> {
    let mut old = Vec::new();
    folder.each(None, |name, record| {
        if lock::is_in_session(record) {
            return Ok(());
        }
        let parts = Record::open(record)?.map_or(Ok(Vec::new()), |record| record.parts())?;
        if parts.iter().all(|part| is_over(pool, part)) {
            old.push(name.to_owned());
        }
        Ok(())
    })?;
    old.iter().for_each(|name| folder.remove(name));
    Ok(old.len())
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
