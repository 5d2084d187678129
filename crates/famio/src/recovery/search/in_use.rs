//! `famio ps`: the shared state of the processes that use a file, read piece by piece from outside. Takes no lock,
//! maps nothing, and does not open the file itself.

use super::forget::place_of;
use crate::error::{Error, Result};
use crate::index::{BUCKETS, Control, DeadArena, Histogram, bound, lease, policy_name};
use crate::journal::header::Kind;
use crate::journal::pools::pool::SUFFIX as JOURNAL;
use crate::journal::pools::reach::{is_regular, look, open_looked_at};
use crate::journal::{Marked, control, lock, mark};
use crate::recovery::Owner;
use core::sync::atomic::Ordering;
use rustix::fs::{CWD, Mode, OFlags, fstat};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A file that processes have open as an atomic one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Device and inode of its control file.
    pub control: (u64, u64),
    /// Its journal; there is one from the first write on.
    pub journal: Option<PathBuf>,
    /// Kind of the journal: `in place`, `records` or `tiered`.
    pub kind: Option<&'static str>,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// The process that owns the file now.
    pub owner: Option<Owner>,
    /// How often ownership has passed from one process to another.
    pub hand_overs: u32,
    /// The state of the processes' session, if there is one that this process may read.
    pub session: Option<Session>,
}

/// A snapshot of a file that grows without a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growing {
    /// Committed bytes.
    pub committed: u64,
    /// Bytes in the file.
    pub size: u64,
}

/// A snapshot of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The last commit.
    pub epoch: u64,
    /// Writes since then.
    pub writes: u64,
    /// Bytes of those writes.
    pub bytes: u64,
    /// Where writes go; `None` unless the journal is one in place: the others have no choice.
    pub policy: Option<&'static str>,
    /// The processes have the write lease on the file.
    pub has_lease: bool,
    /// Totals since the arena was made, which is at most the time since the first write of the processes that have
    /// the file open.
    pub totals: Totals,
}

/// Totals up to the last SYNC. They may be slightly low if several threads wrote at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// SYNCs that committed something.
    pub syncs: u64,
    /// SYNCs that failed.
    pub failed_syncs: u64,
    /// Writes by calls.
    pub writes: u64,
    /// Reads by calls.
    pub reads: u64,
    /// Bytes of those writes.
    pub written_bytes: u64,
    /// Bytes that went to the journal.
    pub journal_bytes: u64,
    /// Bytes that went to the file.
    pub file_bytes: u64,
    /// Blocks that were copied from the journal to the file.
    pub write_backs: u64,
    /// Durations of SYNCs: every 16th is measured for a journal in place, each for a journal of records.
    pub sync_times: Times,
    /// Durations of writes: every 256th is measured.
    pub write_times: Times,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// For each bucket: its upper bound in nanoseconds, exclusive (`None`: no bound), and the number of calls.
    pub buckets: Vec<(Option<u64>, u64)>,
    /// Sum of all durations, in nanoseconds.
    pub sum: u64,
}

impl Times {
    /// Calls that were measured.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    fn of(histogram: &Histogram) -> Self {
        let bucket = |at: usize| (bound(at), histogram.buckets[at].load(Ordering::Relaxed));
        Self { buckets: (0..BUCKETS).map(bucket).collect(), sum: histogram.sum.load(Ordering::Relaxed) }
    }
}

/// The upper bounds of the buckets of [`Times`], in nanoseconds; the last bucket has none.
pub fn bounds_of_times() -> impl Iterator<Item = Option<u64>> {
    (0..BUCKETS).map(bound)
}

/// Whether a name is that of a control file.
pub fn is_control_name(name: &str) -> bool {
    name.strip_suffix(control::SUFFIX)
        .is_some_and(|stem| crate::journal::pools::pool::is_journal_name(&format!("{stem}{JOURNAL}")))
}

/// The state of a file whose mark says that it grows without a journal. The process may have been killed. Opens the
/// path with `O_PATH` only.
pub fn growing(path: &Path) -> Option<Growing> {
    let file = crate::sys::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let Ok(Some(Marked::Growing(mark))) = mark::of_looked_at(file.as_fd()) else { return None };
    Some(Growing { committed: mark.new, size: fstat(&file).ok()?.st_size as u64 })
}

/// Reads the control file at `path`, and what it leads to.
///
/// # Errors
/// `EINVAL`: not the path of a control file. `ENOENT`: it has been removed. Others: the kernel's.
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
    let is_living = header.as_ref().is_some_and(|(_, journal)| lock::is_in_session(journal)) || control.is_owned();
    let session = match control.open_arena() {
        Ok(Some(arena)) if is_living => DeadArena::open(arena)?.map(|arena| {
            let shared = arena.shared();
            let load = |word: &core::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
            let open = shared.counts.sums();
            Session {
                // Counted as in the journal, and as recovery will count.
                epoch: match kind {
                    Some(Kind::Records) => load(&shared.recorded),
                    Some(Kind::Tiered) => load(&shared.recorded) + 1,
                    _ => load(&shared.committed),
                },
                writes: open.writes,
                bytes: open.bytes,
                policy: (kind == Some(Kind::InPlace)).then(|| policy_name(shared.policy.load(Ordering::Relaxed))),
                has_lease: shared.lease.load(Ordering::Relaxed) == lease::HELD,
                totals: Totals {
                    syncs: load(&shared.totals.syncs),
                    failed_syncs: load(&shared.totals.failed_syncs),
                    writes: load(&shared.totals.writes),
                    reads: load(&shared.totals.reads),
                    written_bytes: load(&shared.totals.written),
                    journal_bytes: load(&shared.totals.journal),
                    file_bytes: shared.totals.file_bytes(),
                    write_backs: load(&shared.totals.write_backs),
                    sync_times: Times::of(&shared.totals.sync_times),
                    write_times: Times::of(&shared.totals.write_times),
                },
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
