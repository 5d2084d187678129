//! The owner lock of a file that is not open as an atomic file in this process.

use super::found_file::FoundFile;
use crate::error::{Error, Result};
use crate::index::{Control, OwnerLock};
use crate::journal::{control, mark, path_of};
use crate::settings::Settings;
use crate::sys::InternalFd;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Acquires ownership of a file that is not open as an atomic file in this process. `make`: creates the control file
/// if there is none; otherwise returns `None` then.
///
/// # Errors
/// `EBUSY`: another process owns the file. `EACCES`: this process may not write the file, or its folder.
pub(crate) fn owner_lock(
    file: BorrowedFd<'_>,
    settings: &Settings,
    exclusive: bool,
    make: bool,
) -> Result<Option<OwnerLock>> {
    let pool = settings.pool.as_deref();
    owner_lock_by(
        exclusive,
        || if make { control::find_or_make(file, pool).map(Some) } else { control::find(file, pool) },
    )
}

/// As [`owner_lock`], for a file of which a walk knows more.
pub(super) fn owner_lock_given(
    file: BorrowedFd<'_>,
    given: FoundFile<'_>,
    settings: &Settings,
    exclusive: bool,
    make: bool,
) -> Result<Option<OwnerLock>> {
    for _ in 0..CLAIMS {
        match owner_lock_where(file, given, settings, exclusive, make)? {
            Taken::PoolRemoved => crate::sys::internal::undisturbed::renew(),
            Taken::Lock(owner_lock) => return Ok(owner_lock),
        }
    }
    Err(Error::new(libc::EAGAIN))
}

/// What came of an attempt.
enum Taken {
    /// Another process has removed the pool, perhaps with the mark: look again.
    PoolRemoved,
    Lock(Option<OwnerLock>),
}

fn owner_lock_where(
    file: BorrowedFd<'_>,
    given: FoundFile<'_>,
    settings: &Settings,
    exclusive: bool,
    make: bool,
) -> Result<Taken> {
    let mark = mark::get(file).ok().flatten();
    let path = given.path.map_or_else(|| path_of(file), |path| Ok(path.to_path_buf()))?;
    let pool = match given.pool(file, &path, mark.as_ref(), settings) {
        // The pool of the mark is gone, with its control files: there is nothing by which to own the file, and no
        // process can begin to use it while it has that mark.
        Err(e) if e.errno() == libc::ENOENT && mark.is_some() => return Ok(Taken::Lock(None)),
        Err(e) if e.errno() == libc::ENOENT => None,
        pool => pool?,
    };
    match &pool {
        Some(pool) if make => match owner_lock_by(exclusive, || control::find_or_make_in(pool, file))? {
            None => Ok(Taken::PoolRemoved),
            taken => Ok(Taken::Lock(taken)),
        },
        Some(pool) => match owner_lock_by(exclusive, || control::find_in(pool, file)) {
            // For a look only, so that a shared lock is enough.
            Err(e) if e.errno() == libc::EROFS => owner_lock_by(false, || control::find_to_read_in(pool, file)),
            taken => taken,
        }
        .map(Taken::Lock),
        // The walk knows the folder: without a pool there is no control file. The path may be too long to ask again.
        None if given.path.is_some() => Ok(Taken::Lock(None)),
        None => owner_lock(file, settings, exclusive, make).map(Taken::Lock),
    }
}

fn owner_lock_by(exclusive: bool, open: impl Fn() -> Result<Option<InternalFd>>) -> Result<Option<OwnerLock>> {
    for _ in 0..CLAIMS {
        let Some(control) = open()? else { return Ok(None) };
        let owner_lock = OwnerLock::take(Arc::new(Control::new(control)), exclusive)?;
        if owner_lock.control().has_name() {
            return Ok(Some(owner_lock));
        }
        owner_lock.leave(); // a last process removed it before this lock
    }
    Err(Error::new(libc::EAGAIN))
}

/// Control files removed at that very moment, after which this gives up.
const CLAIMS: u32 = 1000;
