//! The file of shares, by system calls: opened with care, since any user of the pool may have put it there.

use super::arithmetic::{Process, Shares};
use super::format::{DECIDING, FILE_MAX, Head, LEFT, SIZE_MIN, SLOT, SLOTS, Slot, held};
use crate::error::{Error, Result};
use crate::journal::pools::access;
use crate::journal::pools::pool::Pool;
use crate::journal::pools::reach::{look, open_looked_at};
use crate::sys::locks::{Lock, is_locked, try_lock, unlock};
use crate::sys::{InternalFd, file_size_limit, high_duplicate, read_at, write_at};
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, statat};
use rustix::io::Errno;
use rustix::thread::nanosleep;
use rustix::time::Timespec;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// The file's name in its pool.
pub(super) const NAME: &str = "famio.pool";
/// Its name while it is made.
const UNFINISHED: &str = "famio.pool.new";

/// How often the lock is tried, and the time between: 20 ms in all.
const TRIES: u32 = 100;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };

/// The file of shares of one pool.
pub(super) struct Ledger {
    pub(super) file: InternalFd,
    /// Its folder, which may get another name meanwhile.
    pool: Pool,
}

/// The number of a process without a slot: it counts for itself, and not for others.
pub(super) const NOWHERE: usize = usize::MAX;

/// What it says.
pub(super) struct State {
    pub head: Head,
    /// The slots in use, with their numbers.
    pub slots: Vec<(usize, Slot)>,
}

impl State {
    /// The processes, for the arithmetic: those that have something or want it, and `mine`.
    fn processes(&self, mine: Option<usize>) -> Vec<Process> {
        let process = |slot: &Slot| Process {
            application: slot.application,
            weight: slot.weight,
            used: slot.used,
            wants: slot.wants,
            journals: slot.journals.into(),
        };
        let counts = |(number, slot): &&(usize, Slot)| Some(*number) == mine || slot.used > 0 || slot.wants > 0;
        self.slots.iter().filter(counts).map(|(_, slot)| process(slot)).collect()
    }

    /// The bytes of all processes.
    pub fn used(&self) -> u64 {
        self.slots.iter().fold(0, |sum, (_, slot)| sum.saturating_add(slot.used))
    }

    /// Calls `work` with the shares; the slot `mine` counts in any case.
    pub fn shares<R>(&self, mine: Option<usize>, work: impl FnOnce(&Shares<'_>) -> R) -> R {
        work(&Shares { size: self.head.size, left: self.head.left, processes: &self.processes(mine) })
    }
}

/// Whether the file can come from a user who may decide on the pool.
fn is_trusted(file: &Stat, folder: &Stat) -> bool {
    let is_file = crate::journal::pools::reach::is_regular(file) && file.st_nlink == 1;
    is_file && [0, folder.st_uid, rustix::process::geteuid().as_raw()].contains(&file.st_uid)
}

/// Gives a notice once per pool and process. `said` has a bit per pool, by a hash: if two pools share a bit, only the
/// first is reported.
fn tell_once(pool: &Pool, said: &AtomicU64, what: &[u8]) {
    let path = pool.path().as_os_str().as_bytes();
    let bit = 1 << (xxh3_64(path) % 64);
    if said.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        crate::sys::notice_parts(&[path, what]);
    }
}

impl Ledger {
    /// As [`open`](Self::open), for a process that makes a journal. A process that may not use the file treats the pool
    /// as one without a size, and says so. Users who may make journals but not write the file get access only through
    /// the folder's access list; a file of their own would not help others.
    pub fn open_to_use(pool: &Pool) -> Result<Option<Self>> {
        static TOLD: AtomicU64 = AtomicU64::new(0);
        match Self::open(pool, OFlags::RDWR) {
            // `EAGAIN`: somebody who may open it has taken a lease, which would keep all others out.
            Err(e) if [libc::EACCES, libc::EPERM, libc::EROFS, libc::EAGAIN].contains(&e.errno()) => {
                let what = b": this process may not write to its famio.pool, so that its journals do not count there";
                tell_once(pool, &TOLD, what);
                Ok(None)
            }
            opened => opened,
        }
    }

    /// The file of a pool; `None`: the pool has no size.
    ///
    /// # Errors
    /// `EACCES`: this process may not use it.
    pub fn open(pool: &Pool, access: OFlags) -> Result<Option<Self>> {
        static TOLD: AtomicU64 = AtomicU64::new(0);
        let named = |e: Error| e.context(pool.path().join(NAME).display());
        // Without a descriptor, since most pools have no size.
        if matches!(statat(pool.folder(), NAME, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT)) {
            return Ok(None);
        }
        let looked = match look(pool.folder(), NAME) {
            Ok(looked) => looked,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(named(e.into())),
        };
        if !is_trusted(&fstat(&looked)?, &fstat(pool.folder())?) {
            tell_once(pool, &TOLD, b": its famio.pool is not its owner's; the pool counts as one without a size");
            return Ok(None);
        }
        let file = open_looked_at(looked.as_fd(), access).map_err(named)?;
        file.set_name(pool.path().join(NAME).into_os_string().into_encoded_bytes(), false)?;
        let pool = Pool::of_folder(high_duplicate(pool.folder())?, pool.path().to_path_buf(), None);
        Ok(Some(Self { file, pool }))
    }

    /// The pool's path when it was opened.
    pub(super) fn path(&self) -> &Path {
        self.pool.path()
    }

    /// All that it says. `None`: it was removed, or makes no sense, so that the pool has no size.
    pub(super) fn read(&self) -> Option<State> {
        let mut bytes = vec![0; FILE_MAX];
        let read = self.file.run(|file| {
            let is_there = fstat(file)?.st_nlink > 0;
            Ok(if is_there { read_at(file, 0, &mut bytes)? } else { 0 })
        });
        bytes.truncate(read.ok()?);
        let head = Head::of(&bytes)?;
        let slots = bytes.get(SLOTS..).unwrap_or_default().chunks_exact(SLOT).enumerate();
        Some(State { head, slots: slots.filter_map(|(number, slot)| Some((number, Slot::of(slot)?))).collect() })
    }

    /// Runs `work` while no other process decides. Who holds that lock for long is stopped, or means harm: without
    /// it, two that grow at once may both get the last bytes.
    pub(super) fn decide<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut locked = false;
        for _ in 0..TRIES {
            locked = matches!(try_lock(&self.file, DECIDING, Lock::Exclusive), Ok(true));
            if locked {
                break;
            }
            let _ = nanosleep(&PAUSE);
        }
        let done = work();
        if locked {
            unlock(&self.file, DECIDING);
        }
        done
    }

    /// Writes a slot; `None`: it is free. An error does not matter: it is written again with the next change.
    pub(super) fn put(&self, number: usize, slot: Option<&Slot>) {
        let bytes = slot.map_or([0; SLOT], Slot::bytes);
        let _ = self.file.run(|file| put_at(file, SLOTS + number * SLOT, &bytes));
    }

    /// Writes the bytes of journals whose processes are dead.
    pub(super) fn put_left(&self, left: u64) {
        // After an error the shares are too large by these bytes, until the next process that joins counts them again.
        let _ = self.file.run(|file| put_at(file, LEFT, &left.to_le_bytes()));
    }

    /// Takes a slot for this process. False: another one has it.
    pub(super) fn hold(&self, number: usize) -> bool {
        self.file.run(|file| try_lock(file, held(number), Lock::Exclusive)).unwrap_or(false)
    }

    pub(super) fn let_go(&self, number: usize) {
        unlock(&self.file, held(number));
    }

    /// Whether another process has the slot, and lives.
    pub(super) fn is_held(&self, number: usize) -> bool {
        is_locked(&self.file, held(number), Lock::Shared)
    }

    /// Bytes of all journals in the pool.
    pub(super) fn total(&self) -> Result<u64> {
        // By its path if the program has closed the folder.
        total(&self.pool).or_else(|_| total(&Pool::at(self.path(), None)?))
    }
}

/// Writes to the file of shares: not beyond the process's limit on file sizes, where the kernel would send `SIGXFSZ`.
fn put_at(file: impl AsFd, at: usize, bytes: &[u8]) -> Result<()> {
    if (at + bytes.len()) as u64 > file_size_limit() {
        return Err(Error::with(libc::EFBIG, "the limit on file sizes (ulimit -f) is too low"));
    }
    write_at(file, at as u64, bytes)
}

/// A journal that is not longer has no segments, and is not counted: it is just being made.
const WITHOUT_SEGMENTS: u64 = 8192;
/// The least that is reserved behind the end of a journal's file: its smallest segment.
const SEGMENT: u64 = 256 << 10;

/// Bytes of all journals in a pool: of their files, or of the space that is reserved behind their ends.
pub(super) fn total(pool: &Pool) -> Result<u64> {
    let mut total = 0u64;
    for name in pool.list()? {
        if let Ok(stat) = statat(pool.folder(), &*name, AtFlags::SYMLINK_NOFOLLOW) {
            let (size, space) = (stat.st_size as u64, (stat.st_blocks as u64).saturating_mul(512));
            // A little more, and what does not make whole segments, is the file system's own.
            let reserved = space / SEGMENT * SEGMENT;
            let bytes = if reserved > size { reserved } else { size };
            total = if bytes > WITHOUT_SEGMENTS { bytes.saturating_add(total) } else { total };
        }
    }
    Ok(total)
}

/// Sets the size of a pool, for all who use it; `None`: it has none from now on.
///
/// # Errors
/// `EINVAL`: the size is too small, or this is no pool that a user named. Those of writing to the pool.
pub fn set_pool_size(path: &Path, size: Option<u64>) -> Result<()> {
    let pool = Pool::at(path, None)?;
    let refused = |what: String| Err(Error::with(libc::EINVAL, format!("pool {}: {what}", pool.path().display())));
    if pool.is_beside() {
        return refused("the folder beside a file comes and goes with its journals; name a pool".into());
    }
    let Some(size) = size else { return pool.remove(NAME) };
    if size < SIZE_MIN {
        return refused(format!("a size of {size} bytes is too small; the least is {SIZE_MIN}"));
    }
    let head = Head { size, left: 0 }.bytes();
    match Ledger::open(&pool, OFlags::RDWR)? {
        // What is left of the dead stays as it is.
        Some(ledger) if ledger.read().is_some() => ledger.decide(|| {
            ledger.file.run(|file| {
                put_at(file, 0, &head[..LEFT])?;
                Ok(rustix::fs::fsync(file)?)
            })
        }),
        _ => make(&pool, &head),
    }
}

/// Makes the file, accessible exactly to the users who may make journals in the pool.
fn make(pool: &Pool, head: &[u8]) -> Result<()> {
    let named = |e: Errno| Error::from(e).context(pool.path().join(NAME).display());
    pool.remove(UNFINISHED)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = crate::sys::openat(pool.folder(), UNFINISHED, flags, Mode::RUSR | Mode::WUSR).map_err(named)?;
    access::give_to_writers_of(pool.folder(), file.as_fd())?;
    put_at(&file, 0, head)?;
    rustix::fs::fsync(&file)?;
    // One that makes no sense, or is not trusted, is in the way.
    pool.remove(NAME)?;
    pool.rename(UNFINISHED, NAME)?;
    Ok(rustix::fs::fsync(pool.folder())?)
}
