//! The program has changed the file's owner or mode: changes those of journal, control file and shared memory with
//! them, so that exactly the users who may write the file now can use it.

use crate::error::Result;
use crate::file::AtomicFile;
use crate::journal::header::first_bytes;
use crate::journal::{Header, Identity, Pool, control, give_to_owner_of, give_to_writers_of, journal_name, mark};
use crate::sys::InternalFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

impl AtomicFile {
    /// Changes what this process may change. If it is killed before, recovery refuses the journal, and explains what
    /// to do.
    pub(crate) fn follow_owner_and_mode(&self) {
        let membership = &self.ownership.membership;
        let Some(control) = membership.control() else { return };
        let memory = [membership.epoch(), membership.shadow().map(|number| membership.shadow_path(number))];
        let _ = self.fds.with(false, |file| {
            let _ = give_to_writers_of(file, control.as_fd());
            let own = self
                .with_session(|session| session.engine.journal().file().run(|own| give_to_owner_of(file, own.as_fd())));
            memory.iter().flatten().filter_map(|path| memory_at(path)).for_each(|memory| {
                let _ = give_to_writers_of(file, memory.as_fd());
            });
            // A journal of another process, or one that is to be recovered.
            if matches!(own, Some(Ok(_))) { Ok(()) } else { give_journal(file, self.settings.pool.as_deref()) }
        });
    }

    /// In a forked child that is no member yet: as [`follow_owner_and_mode`](Self::follow_owner_and_mode), for journal
    /// and control file of its parent, which does not see the child's call. The child could not become a member before:
    /// it would not trust what belongs to a user who may not write the file. `fd`: any descriptor of the file.
    pub(crate) fn give_parents_files(&self, fd: BorrowedFd<'_>) {
        let pool = self.settings.pool.as_deref();
        let give =
            || if is_marked_journal(fd, pool)? { give_journal(fd, pool).and(give_control(fd, pool)) } else { Ok(()) };
        let _ = give(); // if this fails, the child's calls are refused, and say why
    }
}

/// Whether the journal is that of the file's mark: no other user has put it there.
fn is_marked_journal(file: BorrowedFd<'_>, pool: Option<&Path>) -> Result<bool> {
    let Some((mark, journal)) = mark::get(file)?.zip(open(file, pool, |journal| journal)?) else { return Ok(false) };
    let (bytes, length) = first_bytes(journal.as_fd())?;
    Ok(Header::read(&bytes[..length])?.0.journal_id == mark.journal_id)
}

fn give_journal(file: BorrowedFd<'_>, pool: Option<&Path>) -> Result<()> {
    match open(file, pool, |journal| journal)? {
        Some(journal) => give_to_owner_of(file, journal.as_fd()).map(drop),
        None => Ok(()),
    }
}

fn give_control(file: BorrowedFd<'_>, pool: Option<&Path>) -> Result<()> {
    match open(file, pool, |journal| control::name_beside(&journal))? {
        Some(control) => give_to_writers_of(file, control.as_fd()),
        None => Ok(()),
    }
}

/// Opens one of Famio's files in the pool of `file`, if it is there, whoever owns it. `name` makes its name from that
/// of the journal.
fn open(file: BorrowedFd<'_>, pool: Option<&Path>, name: impl Fn(String) -> String) -> Result<Option<InternalFd>> {
    let Some(pool) = Pool::find(file, pool)? else { return Ok(None) };
    pool.open_read_only(&name(journal_name(&Identity::of_fd(file)?)), None)
}

/// Opens a regular file with one name: in `/dev/shm` other users may make names, too.
fn memory_at(path: &str) -> Option<InternalFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let memory = crate::sys::internal::open(CWD, path, flags, Mode::empty()).ok()?;
    let stat = fstat(&memory).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1).then_some(memory)
}
