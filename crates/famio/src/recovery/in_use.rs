//! `famio ps`: what the processes that use a file share of it, read piece by piece from outside. No lock is taken, nothing is mapped, and
//! the file itself is not opened.

use super::Owner;
use super::forget::place_of;
use crate::error::{Error, Result};
use crate::index::{Control, DeadArena, lease, policy_name};
use crate::journal::header::Kind;
use crate::journal::pool::SUFFIX as JOURNAL;
use crate::journal::reach::{is_regular, look, open_looked_at};
use crate::journal::{control, lock};
use core::sync::atomic::Ordering;
use rustix::fs::{OFlags, fstat};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A file that processes have open as an atomic one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Device and inode of its control file.
    pub control: (u64, u64),
    /// Its journal, if it has one: since the first write.
    pub journal: Option<PathBuf>,
    /// Of the journal: `in place` or `records`.
    pub kind: Option<&'static str>,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// The process that may change the file now.
    pub owner: Option<Owner>,
    /// How often that right went from one process to another.
    pub hand_overs: u32,
    /// What the processes' session says, if there is one that this process may read.
    pub session: Option<Session>,
}

/// A session, at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The last commit.
    pub epoch: u64,
    /// Writes since then.
    pub writes: u64,
    /// Bytes of those writes.
    pub bytes: u64,
    /// Where a write goes; `None` for journals of records, which have no choice.
    pub policy: Option<&'static str>,
    /// The processes have the write lease on the file.
    pub has_lease: bool,
}

/// Whether a name is that of a control file.
pub fn is_control_name(name: &str) -> bool {
    name.strip_suffix(control::SUFFIX)
        .is_some_and(|stem| crate::journal::pool::is_journal_name(&format!("{stem}{JOURNAL}")))
}

/// Looks at the control file at `path`, and at what it leads to.
///
/// # Errors
/// `ENOENT`: it is not there any more. `EACCES`.
pub fn in_use(path: &Path) -> Result<InUse> {
    let stem = path.to_str().and_then(|path| path.strip_suffix(control::SUFFIX)).ok_or(Error::new(libc::EINVAL))?;
    let journal_path = PathBuf::from(format!("{stem}{JOURNAL}"));
    let (place, name) = place_of(&journal_path)?;
    let looked = look(place.pool.folder(), control::name_beside(&name).as_bytes())?;
    if !is_regular(&fstat(&looked)?) {
        return Err(Error::with(libc::EINVAL, "not a regular file"));
    }
    let control = Control::new(open_looked_at(looked.as_fd(), OFlags::RDONLY)?);
    let header = place.header(&name).ok();
    let kind = header.as_ref().map(|(header, _)| header.kind);
    let is_living = header.as_ref().is_some_and(|(_, journal)| lock::is_in_session(journal)) || control.is_claimed();
    let session = match control.open_arena() {
        Ok(Some(arena)) if is_living => DeadArena::open(arena)?.map(|arena| {
            let shared = arena.shared();
            let load = |word: &core::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
            Session {
                // As the journal counts, and recovery will.
                epoch: load(if kind == Some(Kind::Records) { &shared.recorded } else { &shared.committed }),
                writes: load(&shared.epoch_writes),
                bytes: load(&shared.epoch_bytes),
                policy: (kind == Some(Kind::InPlace)).then(|| policy_name(shared.policy.load(Ordering::Relaxed))),
                has_lease: shared.lease.load(Ordering::Relaxed) == lease::HELD,
            }
        }),
        _ => None,
    };
    let size = |fd: &crate::sys::InternalFd| fstat(fd).map_or(0, |stat| stat.st_size as u64);
    Ok(InUse {
        control: control.identity(),
        kind: kind.map(Kind::name),
        journal_bytes: header.as_ref().map_or(0, |(_, journal)| size(journal)),
        journal: header.map(|_| journal_path),
        owner: control.owner(),
        hand_overs: control.hand_overs(),
        session,
    })
}
