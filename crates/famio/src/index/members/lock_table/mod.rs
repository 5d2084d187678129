//! The lock table: the record locks of all processes of a file, in shared memory. It counts while one of them has the
//! *cover*, a lock of the kernel on the whole file, so that nobody else can lock any of it; otherwise the locks are the
//! kernel's. `file::locks` decides when.
//!
//! Each process has a row with its locks, which it alone writes. To lock for reading it writes its row, and then looks
//! at `state`; to lock for writing it takes the lock of the table, sets [`SLOW`], and then looks at all rows. So one of
//! two that conflict sees the other, and readers write nothing that others read, as long as nobody locks for writing.
//!
//! A process that is killed leaves nothing half done but its own row, which then counts no more. The lock of the table
//! is taken from it.

mod row;
#[cfg(test)]
mod tests;

use self::row::Row;
pub(crate) use self::row::{Holder, LOCKS, Region};
use super::control_page::MEMBERS;
use crate::error::{Error, Result};
use crate::map::guard;
use crate::sys::Word;
use crate::thread::Held;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::os::fd::AsFd;

/// Bytes of its file.
pub(crate) const SIZE: usize = 12288;
/// "FAMIOLCK".
const MAGIC: u64 = u64::from_le_bytes(*b"FAMIOLCK");

/// In [`Written::lock`]: a thread waits.
const WAITERS: u32 = 1 << 31;
const SPINS: u32 = 400;
/// How long a waiter sleeps until it looks whether the holder lives.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// Such sleeps until a wait is given up: a minute.
const ROUNDS: u32 = 12_000;
/// In [`Memory::state`]: a process has the cover.
const COVERED: u32 = 1;
/// In [`Memory::state`]: a process locks for writing, or changes what others rely on: each lock needs the lock of the
/// table.
const SLOW: u32 = 2;

/// What the processes share. Other processes write it: no value is used as an address or unchecked as an index.
#[repr(C)]
struct Memory {
    magic: AtomicU64,
    /// [`COVERED`] and [`SLOW`].
    state: AtomicU32,
    cover_place: AtomicU32,
    /// The number of the process with the cover.
    cover: AtomicU64,
    /// The rows from here on are not used.
    top: AtomicU32,
    /// Changes when the cover is taken, given up, or to be given up: a futex for the background.
    changes: AtomicU32,
    /// Not 0: a process needs its locks in the kernel.
    is_uncover_wanted: AtomicU32,
    /// The time before which nobody takes the cover (nanoseconds, monotonic).
    not_before: AtomicU64,
    written: Written,
    rows: [Row; MEMBERS],
}

/// What is written with each lock for writing: in a line of its own.
#[repr(C, align(128))]
struct Written {
    /// The process that changes the table ([`Holder::word`]); 0: none.
    lock: AtomicU32,
}

const _: () = assert!(size_of::<Memory>() <= SIZE && size_of::<Row>() == 128);

/// The table, mapped by a member.
///
/// Invariant: `memory` points to a mapping of [`SIZE`] bytes as long as the value lives.
#[derive(Debug)]
pub(crate) struct LockTable {
    memory: NonNull<Memory>,
    me: Holder,
}

// SAFETY: the memory has atomic words only.
unsafe impl Send for LockTable {}
// SAFETY: as above.
unsafe impl Sync for LockTable {}

/// Whether a process is gone: dead with all its threads, or no member any more.
pub(crate) type IsGone<'a> = &'a dyn Fn(Holder) -> bool;

impl LockTable {
    /// Maps the table in `file`, which has [`SIZE`] bytes, for the member `me`; `process` tells others its id.
    ///
    /// # Errors
    /// `EINVAL`: it is no table. Those of `mmap(2)`.
    pub fn map(file: impl AsFd, me: Holder, process: u64) -> Result<Self> {
        guard::install()?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping; the guard puts zeros in its place if another process cuts the file.
        let at = unsafe { rustix::mm::mmap(core::ptr::null_mut(), SIZE, protection, MapFlags::SHARED, file, 0) };
        let at = at.map_err(|e: Errno| Error::from(e))?;
        crate::sys::keep_from_children(at.cast(), SIZE);
        guard::stand_in_for(at as usize, SIZE);
        let memory = NonNull::new(at.cast()).ok_or(Error::new(libc::ENOMEM))?;
        let table = Self { memory, me };
        let memory = table.memory();
        let _ = memory.magic.compare_exchange(0, MAGIC, Ordering::AcqRel, Ordering::Relaxed);
        if memory.magic.load(Ordering::Acquire) != MAGIC || me.place as usize >= MEMBERS {
            return Err(Error::new(libc::EINVAL));
        }
        // What the last process in this slot left.
        let row = table.row();
        row.write(&[]);
        row.in_kernel.store(0, Ordering::Relaxed);
        row.waits_for.store(0, Ordering::Relaxed);
        row.process.store(process, Ordering::Relaxed);
        row.id.store(me.id, Ordering::Release);
        memory.top.fetch_max(me.place + 1, Ordering::AcqRel);
        Ok(table)
    }

    fn memory(&self) -> &Memory {
        // SAFETY: the invariant; every bit pattern is valid for atomic words.
        unsafe { self.memory.as_ref() }
    }

    fn row(&self) -> &Row {
        &self.memory().rows[self.me.place as usize % MEMBERS]
    }

    /// This process.
    pub fn me(&self) -> Holder {
        self.me
    }

    /// Whether a process had the cover a moment ago.
    #[inline]
    pub fn is_covered(&self) -> bool {
        self.memory().state.load(Ordering::Acquire) & COVERED != 0
    }

    /// The process that had the cover a moment ago.
    pub fn cover(&self) -> Option<Holder> {
        let memory = self.memory();
        let (place, id) = (memory.cover_place.load(Ordering::Relaxed), memory.cover.load(Ordering::Relaxed));
        self.is_covered().then_some(Holder { place, id })
    }

    /// Counts what the background is to look at.
    pub fn change_count(&self) -> u32 {
        self.memory().changes.load(Ordering::SeqCst)
    }

    /// The word that has another value than `seen` when the background is to look at the table again.
    pub fn changes(&self, seen: u32) -> Word {
        Word::shared(&self.memory().changes, seen)
    }

    /// A number that changes with each lock call of any process.
    pub fn calls(&self) -> u32 {
        let sum = |sum: u32, row: &Row| sum.wrapping_add(row.sequence.load(Ordering::Relaxed));
        self.memory().rows.iter().fold(0, sum)
    }

    /// Whether locks for reading need no lock of the table now: a process has the cover, which `is_gone` finds alive,
    /// and nobody locks for writing.
    #[inline]
    fn is_quick(&self, is_gone: IsGone<'_>) -> bool {
        let memory = self.memory();
        memory.state.load(Ordering::SeqCst) == COVERED
            && !is_gone(Holder {
                place: memory.cover_place.load(Ordering::Relaxed),
                id: memory.cover.load(Ordering::Relaxed),
            })
    }

    /// Makes `regions`, all for reading, the locks of this process, without the lock of the table. False: it needs
    /// that lock; others may see these locks until then.
    #[inline]
    pub fn set_quickly(&self, regions: &[Region], is_gone: IsGone<'_>) -> bool {
        if regions.len() > LOCKS || !self.is_quick(is_gone) {
            return false;
        }
        self.row().write(regions);
        // After the row: a process that locks for writing sets `SLOW`, and then looks at the rows.
        fence(Ordering::SeqCst);
        self.is_quick(is_gone)
    }

    /// Leaves this process `regions` of its locks, which are all for reading, without the lock of the table. False:
    /// they are not in the table now.
    #[inline]
    pub fn release_quickly(&self, regions: &[Region]) -> bool {
        if regions.len() > LOCKS || !self.is_covered() {
            return false;
        }
        self.take_back(regions);
        true
    }

    /// After [`set_quickly`](Self::set_quickly) failed: this process has `regions`, as before.
    pub fn take_back(&self, regions: &[Region]) {
        self.row().write(regions);
        fence(Ordering::SeqCst);
        self.tell_waiting();
    }

    #[inline]
    fn tell_waiting(&self) {
        if self.row().waited_for.load(Ordering::SeqCst) != 0 {
            let releases = &self.row().releases;
            releases.fetch_add(1, Ordering::SeqCst);
            let _ = futex::wake(releases, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// The table for this thread alone. `None`: another process has stopped in it.
    #[inline]
    pub fn lock<'a>(&'a self, is_gone: IsGone<'a>) -> Option<Locked<'a>> {
        let held = Held::of_file();
        let word = &self.memory().written.lock;
        if word.compare_exchange(0, self.me.word(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow(is_gone)?;
        }
        self.memory().state.fetch_or(SLOW, Ordering::SeqCst);
        fence(Ordering::SeqCst); // before a look at the rows
        Some(Locked { table: self, is_gone, _held: held })
    }

    #[cold]
    fn lock_slow(&self, is_gone: IsGone<'_>) -> Option<()> {
        let word = &self.memory().written.lock;
        let me = self.me.word();
        for _ in 0..SPINS {
            core::hint::spin_loop();
            if word.load(Ordering::Relaxed) == 0
                && word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Some(());
            }
        }
        let mut rounds = 0;
        while rounds < ROUNDS {
            let seen = word.fetch_or(WAITERS, Ordering::Relaxed) | WAITERS;
            let is_free = seen == WAITERS || is_gone(Holder::of_word(seen));
            if is_free {
                if word.compare_exchange(seen, me | WAITERS, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Some(());
                }
                continue;
            }
            let waited = futex::wait(word, futex::Flags::empty(), seen, Some(&PATIENCE));
            rounds += u32::from(waited == Err(Errno::TIMEDOUT));
        }
        None
    }

    /// A lock call of this process is about to wait in the kernel (`is`), or has.
    pub fn set_waits_in_kernel(&self, is: bool) {
        let step = |calls: u32| if is { calls.checked_add(1) } else { calls.checked_sub(1) };
        let _ = self.row().in_kernel.fetch_update(Ordering::SeqCst, Ordering::Relaxed, step);
    }

    /// The process does not wait for a lock of `holder` any more.
    pub fn end_wait(&self, holder: Holder) {
        self.row().waits_for.store(0, Ordering::Release);
        if let Some(row) = self.memory().rows.get(holder.place as usize) {
            let fewer = |waiting: u32| waiting.checked_sub(1);
            let _ = row.waited_for.fetch_update(Ordering::SeqCst, Ordering::Relaxed, fewer);
        }
    }
}

impl Drop for LockTable {
    fn drop(&mut self) {
        guard::end_stand_in(self.memory.as_ptr() as usize);
        // SAFETY: ours (the invariant), and no reference into it is left.
        let _ = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), SIZE) };
    }
}

/// What a process that has to wait for a lock does.
pub(crate) enum Wait {
    /// It sleeps on this word until [`LockTable::end_wait`].
    For(Word),
    /// Not any more.
    Over,
    /// The holder waits for this process, perhaps through others.
    InCircle,
}

/// The table while this thread alone uses it.
pub(crate) struct Locked<'a> {
    table: &'a LockTable,
    is_gone: IsGone<'a>,
    _held: Held,
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        let memory = self.table.memory();
        let has_writes = |(place, row): (usize, &Row)| {
            let holder = || Holder { place: place as u32, id: row.id.load(Ordering::Acquire) };
            row.writes.load(Ordering::Relaxed) != 0 && !(self.is_gone)(holder())
        };
        if !self.used().iter().enumerate().any(has_writes) {
            memory.state.fetch_and(!SLOW, Ordering::Release);
        }
        // A swap, not a store: on x86 a locked instruction also drains the holder's non-temporal stores, which come
        // before the release of its lock on the file.
        if memory.written.lock.swap(0, Ordering::Release) & WAITERS != 0 {
            let _ = futex::wake(&memory.written.lock, futex::Flags::empty(), 1);
        }
    }
}

impl Locked<'_> {
    fn memory(&self) -> &Memory {
        self.table.memory()
    }

    fn used(&self) -> &[Row] {
        &self.memory().rows[..(self.memory().top.load(Ordering::Relaxed) as usize).min(MEMBERS)]
    }

    pub fn table(&self) -> &LockTable {
        self.table
    }

    /// The process with the cover, which may be gone.
    #[inline]
    pub fn cover(&self) -> Option<Holder> {
        self.table.cover()
    }

    /// This process has the cover.
    pub fn set_cover(&self) {
        let (memory, me) = (self.memory(), self.table.me);
        memory.is_uncover_wanted.store(0, Ordering::Relaxed);
        memory.cover_place.store(me.place, Ordering::Relaxed);
        memory.cover.store(me.id, Ordering::Relaxed);
        memory.state.fetch_or(COVERED, Ordering::SeqCst);
        self.announce();
    }

    /// Nobody has the cover, and takes it before that time (nanoseconds, monotonic).
    pub fn end_cover(&self, not_before: u64) {
        self.memory().not_before.store(not_before, Ordering::Relaxed);
        self.memory().state.fetch_and(!COVERED, Ordering::SeqCst);
        self.announce();
    }

    /// The process with the cover is to give it up.
    pub fn want_uncover(&self) {
        if self.memory().is_uncover_wanted.swap(1, Ordering::AcqRel) == 0 {
            self.announce();
        }
    }

    pub fn is_uncover_wanted(&self) -> bool {
        self.memory().is_uncover_wanted.load(Ordering::Acquire) != 0
    }

    fn announce(&self) {
        let changes = &self.memory().changes;
        changes.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(changes, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Whether the cover may be taken: it is time, and no process waits in the kernel for a lock, as it would then
    /// for the cover.
    pub fn may_cover(&self, now: u64) -> bool {
        let waits = |(place, row): (usize, &Row)| {
            let holder = Holder { place: place as u32, id: row.id.load(Ordering::Acquire) };
            row.in_kernel.load(Ordering::SeqCst) != 0 && !(self.is_gone)(holder)
        };
        self.memory().not_before.load(Ordering::Relaxed) <= now && !self.used().iter().enumerate().any(waits)
    }

    /// The first lock of another process that excludes `wanted`, and its process.
    #[inline]
    pub fn conflict(&self, wanted: Region) -> Option<(Holder, Region)> {
        for (place, row) in self.used().iter().enumerate() {
            let holder = Holder { place: place as u32, id: row.id.load(Ordering::Acquire) };
            if holder.id == self.table.me.id {
                continue;
            }
            let Some(region) = row.find(|region| region.excludes(wanted), || (self.is_gone)(holder)) else { continue };
            if !(self.is_gone)(holder) {
                return Some((holder, region));
            }
        }
        None
    }

    /// Whether the table has a lock of a living process other than this.
    pub fn has_others(&self) -> bool {
        let everything = Region { start: 0, last: i64::MAX, is_write: true };
        self.conflict(everything).is_some()
    }

    /// The process of a holder, as the control page has it of an owner.
    pub fn process(&self, of: Holder) -> u64 {
        self.memory().rows.get(of.place as usize).map_or(0, |row| row.process.load(Ordering::Relaxed))
    }

    /// Makes `regions`, at most [`LOCKS`], the locks of this process; `released`: it has given up something.
    #[inline]
    pub fn set_own(&self, regions: &[Region], released: bool) {
        self.table.row().write(regions);
        if released {
            fence(Ordering::SeqCst);
            self.table.tell_waiting();
        }
    }

    /// This process waits until `holder` has no lock that excludes `wanted`.
    pub fn wait_for(&self, holder: Holder, wanted: Region) -> Wait {
        let (memory, me) = (self.memory(), self.table.me.place);
        let mut at = holder.place;
        for _ in 0..MEMBERS {
            if at == me {
                return Wait::InCircle;
            }
            let Some(row) = memory.rows.get(at as usize) else { break };
            let Some(next) = row.waits_for.load(Ordering::Acquire).checked_sub(1) else { break };
            if (self.is_gone)(Holder { place: at, id: row.id.load(Ordering::Acquire) }) {
                break;
            }
            at = next;
        }
        let Some(row) = memory.rows.get(holder.place as usize) else { return Wait::Over };
        self.table.row().waits_for.store(holder.place + 1, Ordering::Release);
        let seen = row.releases.load(Ordering::SeqCst);
        row.waited_for.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // After the count: a release that does not see it is seen here.
        if row.find(|region| region.excludes(wanted), || (self.is_gone)(holder)).is_none() {
            self.table.end_wait(holder);
            return Wait::Over;
        }
        Wait::For(Word::shared(&row.releases, seen))
    }
}
