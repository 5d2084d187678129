//! Recovery of a file that took part in a transaction of several files but did not commit its part: a record in the
//! pool has the changes ([`journal::joint`](crate::journal::joint)).

use crate::error::{Error, Result};
use crate::journal::joint::{Folder, Part, Record, Step, find, find_all};
use crate::journal::pools::pool::journal_name_of;
use crate::journal::{Header, Pool, State};
use crate::pmem::Medium;
use std::os::fd::{AsFd, BorrowedFd};

/// The file is at epoch `committed` of its journal, which is still pending. If a record has a part that follows,
/// applies it to the file, durably, after calling `before`. Returns the number of bytes written.
pub(in crate::recovery) fn apply(
    pool: Option<&Pool>,
    file: BorrowedFd<'_>,
    header: &Header,
    committed: u64,
    medium: &dyn Medium,
    before: impl Fn() -> Result<()>,
) -> Result<u64> {
    let mut applied = 0;
    each_next(pool, file, header, committed, |record, part, from| {
        // The record is visible, so other files may have been or will be recovered from it: it must be durable.
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

/// An error for a process that only reads a file that [`apply`] would change: the file may have half of the part
/// already.
///
/// # Errors
/// `EIO`: [`apply`] would change it.
pub(in crate::recovery) fn refuse_unfinished(
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

/// Whether [`apply`] would change the file: a commit has happened that the journal does not have.
///
/// # Errors
/// As [`apply`].
pub(in crate::recovery) fn has_next(
    pool: Option<&Pool>,
    file: BorrowedFd<'_>,
    header: &Header,
    committed: u64,
) -> Result<bool> {
    let mut has_next = false;
    each_next(pool, file, header, committed, |_, _, _| {
        has_next = true;
        Ok(())
    })?;
    Ok(has_next)
}

/// Calls `visit` with each part that follows epoch `committed` of the journal, and with its record.
///
/// # Errors
/// `EIO`: such a part is in a record that other users could have written.
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

/// Removes records that no journal needs any more and whose process is gone. Best effort: a leftover does no harm.
pub(in crate::recovery) fn remove_old(pool: Option<&Pool>, file: BorrowedFd<'_>) {
    if let Some(pool) = pool
        && let Ok(Some(folder)) = find(pool, file)
    {
        remove_old_of(pool, &folder);
    }
}

/// As [`remove_old`], for all users.
pub(in crate::recovery) fn remove_all_old(pool: &Pool) {
    if let Ok(folders) = find_all(pool) {
        folders.iter().for_each(|folder| remove_old_of(pool, folder));
    }
}

fn remove_old_of(pool: &Pool, folder: &Folder<'_>) {
    let removed = folder.remove_old(|record| {
        let parts = Record::read(record)?.map_or(Ok(Vec::new()), |record| record.parts())?;
        Ok(parts.iter().all(|part| is_over(pool, part)))
    });
    // In a pool that the user has named, an empty folder may be something else.
    if removed.is_ok_and(|removed| removed > 0 || pool.is_beside()) {
        folder.remove_if_empty();
    }
}

/// Whether the journal of a part has ended. False if unknown.
fn is_over(pool: &Pool, part: &Part) -> bool {
    match pool.open_read_only(&journal_name_of(part.identity), None) {
        Ok(None) => true,
        Ok(Some(journal)) => Header::load(journal.as_fd()).is_ok_and(|(header, _)| {
            header.journal_id != part.journal || matches!(header.state, State::Clean | State::Creating)
        }),
        Err(_) => false,
    }
}
