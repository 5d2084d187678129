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

use super::control_page::MEMBERS;
use crate::error::{Error, Result};
use crate::map::guard;
use crate::sys::Word;
use crate::thread::Held;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::os::fd::AsFd;

/// Bytes of its file.
pub(crate) const SIZE: usize = 12288;
/// The most locks of a process in it.
pub(crate) const LOCKS: usize = 5;
/// "FAMIOLCK".
const MAGIC: u64 = u64::from_le_bytes(*b"FAMIOLCK");

/// In [`Memory::lock`]: a thread waits.
const WAITERS: u32 = 1 << 31;
const SPINS: u32 = 400;
/// How long a waiter sleeps until it looks whether the holder lives.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// Such sleeps until a wait is given up: a minute.
const ROUNDS: u32 = 12_000;
/// Looks at a row that is being written, until it counts as a lock of everything: its process is stopped.
const LOOKS: u32 = 10_000;

/// In [`Memory::state`]: a process has the cover.
const COVERED: u32 = 1;
/// In [`Memory::state`]: a process locks for writing, or changes what others rely on: each lock needs the lock of the
/// table.
const SLOW: u32 = 2;

/// The locks of one process.
#[repr(C, align(128))]
struct Row {
    /// The number of the process; 0: none has used the row yet.
    id: AtomicU64,
    /// Odd while its process writes it. Counts its calls.
    sequence: AtomicU32,
    /// How many locks it has.
    count: AtomicU32,
    /// A bit for each that is for writing.
    writes: AtomicU32,
    /// Calls that wait in the kernel.
    in_kernel: AtomicU32,
    /// The slot, plus one, of the process for whose lock it waits; 0: none.
    waits_for: AtomicU32,
    /// How many processes wait for a lock of this one. Too high after one was killed that did.
    waited_for: AtomicU32,
    /// Process id and PID namespace ([`Owner::word`](super::control::Owner::word)).
    process: AtomicU64,
    /// First and last byte of each.
    regions: [[AtomicI64; 2]; LOCKS],
    /// Counts releases while a process waits for one: a futex.
    releases: AtomicU32,
}

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

/// A process that has locks in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its slot.
    pub place: u32,
    /// Its number.
    pub id: u64,
}

/// Bytes of a lock, including the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub start: i64,
    pub last: i64,
    pub is_write: bool,
}

impl Holder {
    /// Bits of a slot, plus one, in [`word`](Self::word).
    const PLACE: u32 = 7;

    /// The slot, plus one, and the lower bits of the number. Not 0.
    #[inline]
    fn word(self) -> u32 {
        self.place + 1 | (self.id as u32) << Self::PLACE & !WAITERS
    }

    fn of_word(word: u32) -> Self {
        let place = (word & ((1 << Self::PLACE) - 1)).wrapping_sub(1);
        Self { place, id: u64::from((word & !WAITERS) >> Self::PLACE) }
    }

    /// Whether `id`, the number of the process in that slot, is this one's, as far as its lower bits tell.
    #[inline]
    pub fn may_be(self, id: u64) -> bool {
        (self.id ^ id) as u32 & (!WAITERS >> Self::PLACE) == 0
    }
}

impl Region {
    fn excludes(self, other: Self) -> bool {
        self.start <= other.last && other.start <= self.last && (self.is_write || other.is_write)
    }
}

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
        row.waited_for.store(0, Ordering::Relaxed);
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
        self.memory().state.fetch_or(SLOW, Ordering::SeqCst); // before a look at the rows
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
        let has_writes = |row: &Row| row.writes.load(Ordering::Relaxed) != 0;
        if !self.used().iter().any(has_writes) {
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
            row.writes.store(0, Ordering::Relaxed); // they slow nobody down any more
        }
        None
    }

    /// Whether the table has a lock of a living process other than this.
    pub fn has_others(&self) -> bool {
        let everything = Region { start: 0, last: i64::MAX, is_write: true };
        self.conflict(everything).is_some()
    }

    /// The process of a holder, as [`Owner`](super::control::Owner) stores it.
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
        // After the count: a release that does not see it is seen here.
        if row.find(|region| region.excludes(wanted), || (self.is_gone)(holder)).is_none() {
            self.table.end_wait(holder);
            return Wait::Over;
        }
        Wait::For(Word::shared(&row.releases, seen))
    }
}

impl Row {
    /// Only its own process calls it, one thread at a time.
    #[inline]
    fn write(&self, regions: &[Region]) {
        let regions = &regions[..regions.len().min(LOCKS)];
        let odd = self.sequence.load(Ordering::Relaxed) | 1;
        self.sequence.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut writes = 0;
        for (at, (to, region)) in self.regions.iter().zip(regions).enumerate() {
            to[0].store(region.start, Ordering::Relaxed);
            to[1].store(region.last, Ordering::Relaxed);
            writes |= u32::from(region.is_write) << at;
        }
        self.writes.store(writes, Ordering::Relaxed);
        self.count.store(regions.len() as u32, Ordering::Relaxed);
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// The first lock that `is_wanted`. A row that is never whole counts as a lock of the whole file.
    #[inline]
    fn find(&self, is_wanted: impl Fn(Region) -> bool, is_gone: impl Fn() -> bool) -> Option<Region> {
        for look in 0..LOOKS {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence & 1 == 0 {
                let count = (self.count.load(Ordering::Relaxed) as usize).min(LOCKS);
                let writes = self.writes.load(Ordering::Relaxed);
                let region = |at: usize| {
                    let [start, last] = self.regions[at].each_ref().map(|word| word.load(Ordering::Relaxed));
                    Region { start, last, is_write: writes >> at & 1 != 0 }
                };
                let found = (0..count).map(region).find(|&region| is_wanted(region));
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == sequence {
                    return found;
                }
            } else if look % 64 == 63 {
                if is_gone() {
                    return None;
                }
                rustix::thread::sched_yield();
            }
            core::hint::spin_loop();
        }
        Some(Region { start: 0, last: i64::MAX, is_write: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::fd::OwnedFd;

    fn memory() -> OwnedFd {
        let file = memfd_create("famio-test-locks", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, SIZE as u64).unwrap();
        file
    }

    fn member(file: &OwnedFd, place: u32) -> LockTable {
        LockTable::map(file, Holder { place, id: u64::from(place) + 100 }, 7).unwrap()
    }

    fn nobody(_: Holder) -> bool {
        false
    }

    fn region(start: i64, last: i64, is_write: bool) -> Region {
        Region { start, last, is_write }
    }

    fn set(table: &LockTable, regions: &[Region]) {
        table.lock(&nobody).unwrap().set_own(regions, true);
    }

    const ALL: Region = Region { start: 0, last: i64::MAX, is_write: true };

    #[test]
    fn locks_exclude_those_of_others_only() {
        let file = memory();
        let (first, second) = (member(&file, 0), member(&file, 1));
        set(&first, &[region(0, 9, false), region(50, 59, true)]);
        let found = |wanted| second.lock(&nobody).unwrap().conflict(wanted).map(|(holder, there)| (holder.id, there));
        assert_eq!(found(region(5, 5, false)), None);
        assert_eq!(found(region(5, 5, true)), Some((100, region(0, 9, false))));
        assert_eq!(found(region(9, 50, false)), Some((100, region(50, 59, true))));
        assert_eq!(first.lock(&nobody).unwrap().conflict(region(0, 100, true)), None);
        set(&second, &[region(20, 29, true)]);
        set(&first, &[]);
        assert_eq!(found(ALL), None);
        assert!(first.lock(&nobody).unwrap().has_others() && !second.lock(&nobody).unwrap().has_others());
    }

    #[test]
    fn what_a_dead_process_held_is_free() {
        let file = memory();
        let (first, second) = (member(&file, 0), member(&file, 1));
        set(&first, &[region(0, 9, true)]);
        core::mem::forget(first.lock(&nobody)); // it is killed in the middle of a change
        first.row().sequence.fetch_add(1, Ordering::Relaxed);
        let is_gone = |holder: Holder| holder.place == 0;
        let locked = second.lock(&is_gone).unwrap();
        assert_eq!(locked.conflict(region(0, 9, true)), None);
        core::mem::forget(locked);
        let next = LockTable::map(&file, Holder { place: 1, id: 900 }, 7).unwrap();
        let is_gone = |holder: Holder| holder.place == 0 || !holder.may_be(900);
        assert!(!next.lock(&is_gone).unwrap().has_others(), "another process has the slot of a dead one");
        assert_eq!(next.memory().state.load(Ordering::Relaxed), 0, "no lock for writing is left");
    }

    #[test]
    fn a_row_that_stays_unfinished_counts_as_a_lock_of_everything() {
        let file = memory();
        let (first, second) = (member(&file, 0), member(&file, 1));
        first.row().sequence.fetch_add(1, Ordering::Relaxed); // its process is stopped there
        assert!(second.lock(&nobody).unwrap().conflict(region(3, 3, false)).is_some());
    }

    #[test]
    fn readers_need_no_lock_while_there_is_a_cover_and_nobody_writes() {
        let file = memory();
        let (first, second) = (member(&file, 0), member(&file, 1));
        let reads = [region(0, 9, false)];
        assert!(!second.set_quickly(&reads, &nobody), "the locks are the kernel's");
        first.lock(&nobody).unwrap().set_cover();
        assert!(!second.set_quickly(&reads, &|holder| holder.place == 0), "its process is dead");
        assert!(second.set_quickly(&reads, &nobody));
        assert!(first.lock(&nobody).unwrap().conflict(region(9, 9, true)).is_some());
        set(&first, &[region(20, 20, true)]);
        assert!(!second.set_quickly(&reads, &nobody), "there is a lock for writing");
        assert!(second.release_quickly(&[]));
        assert!(first.lock(&nobody).unwrap().conflict(ALL).is_none());
        set(&first, &[]);
        assert!(second.set_quickly(&reads, &nobody) && second.release_quickly(&[]));
        first.lock(&nobody).unwrap().end_cover(0);
        assert!(!second.release_quickly(&[]));
    }

    /// Of a reader and a writer of the same bytes at most one has its lock.
    #[test]
    fn a_quick_reader_and_a_writer_never_both_succeed() {
        let file = memory();
        let (reader, writer) = (member(&file, 0), member(&file, 1));
        writer.lock(&nobody).unwrap().set_cover();
        let value = AtomicU64::new(0); // odd while the writer has its lock
        let ends = std::sync::atomic::AtomicBool::new(false);
        let reads = std::thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let mut reads = 0;
                while !ends.load(Ordering::Relaxed) {
                    if reader.set_quickly(&[region(0, 9, false)], &nobody) {
                        assert_eq!(value.load(Ordering::Relaxed) & 1, 0);
                        reads += 1;
                    }
                    assert!(reader.release_quickly(&[]));
                }
                reads
            });
            let mut written = 0;
            while written < 20_000 {
                let locked = writer.lock(&nobody).unwrap();
                if locked.conflict(region(5, 5, true)).is_none() {
                    locked.set_own(&[region(5, 5, true)], false);
                    drop(locked);
                    value.fetch_add(1, Ordering::Relaxed);
                    value.fetch_add(1, Ordering::Relaxed);
                    set(&writer, &[]);
                    written += 1;
                }
            }
            ends.store(true, Ordering::Relaxed);
            reads.join().unwrap()
        });
        assert!(reads > 0);
    }

    #[test]
    fn a_circle_of_waiting_processes_is_seen() {
        let file = memory();
        let tables: Vec<_> = (0..3).map(|place| member(&file, place)).collect();
        let bytes = |of: usize| region(of as i64, of as i64, true);
        (0..3).for_each(|of| set(&tables[of], &[bytes(of)]));
        let waits = |who: usize, whom: usize| {
            let wait = tables[who].lock(&nobody).unwrap().wait_for(tables[whom].me, bytes(whom));
            matches!(wait, Wait::For(_))
        };
        assert!(waits(0, 1) && waits(1, 2) && !waits(2, 0));
        tables[1].end_wait(tables[2].me);
        assert!(waits(2, 0));
        set(&tables[0], &[]);
        assert_eq!(tables[0].row().releases.load(Ordering::Relaxed), 1, "it has told who waits");
        let over = tables[1].lock(&nobody).unwrap().wait_for(tables[0].me, bytes(0));
        assert!(matches!(over, Wait::Over));
    }

    #[test]
    fn nobody_takes_the_cover_while_a_call_waits_in_the_kernel() {
        let file = memory();
        let (first, second) = (member(&file, 0), member(&file, 1));
        second.set_waits_in_kernel(true);
        assert!(!first.lock(&nobody).unwrap().may_cover(0));
        assert!(first.lock(&|holder| holder.place == 1).unwrap().may_cover(0));
        second.set_waits_in_kernel(false);
        let locked = first.lock(&nobody).unwrap();
        assert!(locked.may_cover(0) && !first.is_covered());
        locked.set_cover();
        assert!(second.is_covered() && locked.cover() == Some(first.me));
        locked.end_cover(5);
        assert!(!second.is_covered() && !locked.may_cover(4) && locked.may_cover(5));
    }

    #[test]
    fn threads_of_two_processes_change_it_one_at_a_time() {
        let file = memory();
        let tables = [member(&file, 0), member(&file, 1)];
        let sum = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for table in &tables {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            let _locked = table.lock(&nobody).unwrap();
                            sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        }
                    });
                }
            }
        });
        assert_eq!(sum.load(Ordering::Relaxed), 80_000);
    }
}
