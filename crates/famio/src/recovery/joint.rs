//! Recovery of a file that was part of a joint commit, and was not told so any more: what the transaction changes of it lies in a record
//! in the pool ([`journal::joint`](crate::journal::joint)).

use crate::error::{Error, Result};
use crate::journal::joint::{Folder, Part, Record, Step, find, find_all};
use crate::journal::pool::journal_name_of;
use crate::journal::{Header, Pool, State};
use crate::pmem::Medium;
use std::os::fd::{AsFd, BorrowedFd};

/// The file has come to epoch `committed` of its journal, and that is still pending: if a record has a part that follows, the file gets it,
/// durably, after `before` was done. Bytes that it got.
pub(super) fn apply(
    pool: Option<&Pool>,
    file: BorrowedFd<'_>,
    header: &Header,
    committed: u64,
    medium: &dyn Medium,
    before: impl Fn() -> Result<()>,
) -> Result<u64> {
    let mut applied = 0;
    each_next(pool, file, header, committed, |record, part, from| {
        // The other files may have been recovered, or will be, because of what is visible here: it has to stay.
        record.secure(from, medium)?;
        before()?;
        record.each(part, |step| match step {
            Step::Write { offset, bytes } => {
                applied += bytes.len() as u64;
                medium.pwritev(file, &[bytes], offset)
            }
            Step::SetSize(size) => medium.ftruncate(file, size),
        })?;
        medium.fdatasync(file)
    })?;
    Ok(applied)
}

/// Whoever only reads a file that [`apply`] would change is told so: the file may have half of it already.
///
/// # Errors
/// `EIO`: it would.
pub(super) fn refuse_unfinished(
    pool: Option<&Pool>,
    file: BorrowedFd<'_>,
    header: &Header,
    committed: u64,
) -> Result<()> {
    each_next(pool, file, header, committed, |_, _, _| {
        let what = "a crash left it in the middle of a transaction of several files; run famio recover on it first";
        Err(Error::with(libc::EIO, what))
    })
}

/// Calls `visit` with each part that follows epoch `committed` of that journal, and its record.
///
/// # Errors
/// `EIO`: there is one in a record that others could have written.
fn each_next(
    pool: Option<&Pool>,
    file: BorrowedFd<'_>,
    header: &Header,
    committed: u64,
    mut visit: impl FnMut(&Record, &Part, BorrowedFd<'_>) -> Result<()>,
) -> Result<()> {
    let Some(folder) = pool.map(|pool| find(pool, file)).transpose()?.flatten() else { return Ok(()) };
    let identity = header.identity.hash128();
    let is_next =
        |part: &Part| part.identity == identity && part.journal == header.journal_id && part.committed == committed;
    folder.each(file, |from, untrusted| {
        let Some(record) = Record::read(from)? else { return Ok(()) };
        for part in record.parts()?.iter().filter(|part| is_next(part)) {
            if let Some(why) = untrusted.as_ref() {
                let what =
                    format!("it has a transaction that the file lacks, and {why}; make it as the file's journal is");
                return Err(Error::with(libc::EIO, what));
            }
            visit(&record, part, from)?;
        }
        Ok(())
    })
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
    let removed = folder.remove_old(|record| {
        let parts = Record::read(record)?.map_or(Ok(Vec::new()), |record| record.parts())?;
        Ok(parts.iter().all(|part| is_over(pool, part)))
    });
    // In a pool that somebody has named, an empty folder may be anybody's.
    if removed.is_ok_and(|removed| removed > 0 || pool.is_beside()) {
        folder.remove_if_empty();
    }
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
