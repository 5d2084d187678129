//! The table of internal descriptors: the library's numbers, and the file of each. Lock-free except for moves, and
//! without allocation: it is used in signal handlers and under a program's allocator.

use super::opening::{self, Named};
use super::passing::{self, Passing};
use super::{numbers, undisturbed};
use crate::error::{Error, Result};
use crate::fast_path::NUMBERS;
use crate::sys::{check, identity, syscall};
use crate::thread::Held;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering::*};
use rustix::fs::{CWD, Mode, OFlags};
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// Internal descriptors that a process can have, and their numbers. Untouched static pages take no memory.
const ENTRIES: usize = u16::MAX as usize;

/// In [`Entry::place`]: no descriptor of this process.
const LOST: u64 = 0;

/// Where an entry is in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryId(u16);

/// One internal descriptor. `owners` is 0 if the entry is free, 1 in transition, `n + 1` with `n` owners.
pub(super) struct Entry {
    owners: AtomicU32,
    /// The number plus one; the lowest bit says which of `users` counts the users of this number.
    place: AtomicU64,
    users: [AtomicU32; 2],
    device: AtomicU64,
    inode: AtomicU64,
    /// The stretch (`undisturbed`) in which it was last confirmed under its present number.
    confirmed: AtomicU64,
    /// A forked child keeps it open.
    kept: AtomicBool,
    /// It holds a lock on the whole file (`flock`), which a descriptor opened again needs, too.
    locked: AtomicBool,
    /// The name by which the file is opened again if the program closed the descriptor unseen; null: none.
    name: AtomicPtr<CString>,
}

static TABLE: [Entry; ENTRIES] = [const {
    Entry {
        owners: AtomicU32::new(0),
        place: AtomicU64::new(LOST),
        users: [AtomicU32::new(0), AtomicU32::new(0)],
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
        confirmed: AtomicU64::new(0),
        kept: AtomicBool::new(false),
        locked: AtomicBool::new(false),
        name: AtomicPtr::new(core::ptr::null_mut()),
    }
}; ENTRIES];

/// The entry of a number, plus one; 0: the number is not internal.
static NUMBERED: [AtomicU16; NUMBERS] = [const { AtomicU16::new(0) }; NUMBERS];

/// Entries at or above this one were never used.
static TOP: AtomicU32 = AtomicU32::new(0);

/// Where the search for a free entry begins.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Held by the thread that changes a descriptor's number. A word, since a forked child has to free it.
static CHANGING: AtomicBool = AtomicBool::new(false);

struct Changing(#[allow(dead_code, reason = "a signal handler sees by it that it must not wait")] Held);

impl Changing {
    fn try_lock() -> Option<Self> {
        let held = Held::of_process();
        (!CHANGING.swap(true, Acquire)).then_some(Self(held))
    }

    fn lock() -> Self {
        loop {
            if let Some(locked) = Self::try_lock() {
                return locked;
            }
            rustix::thread::sched_yield();
        }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        CHANGING.store(false, Release);
    }
}

fn number_of(place: u64) -> Option<RawFd> {
    (place != LOST).then(|| (place >> 1) as RawFd - 1)
}

/// The entry of a number.
fn numbered(number: RawFd) -> Option<usize> {
    let slot = NUMBERED.get(usize::try_from(number).ok()?)?;
    usize::from(slot.load(Acquire)).checked_sub(1)
}

/// Whether a number is in the table: for a search for a free one.
pub(super) fn is_taken(number: RawFd) -> bool {
    numbered(number).is_some()
}

fn close_number(number: RawFd) {
    // SAFETY: the caller has made sure that the number is the library's own, or not in use.
    unsafe { syscall(libc::SYS_close, [number as usize, 0, 0, 0, 0, 0]) };
    numbers::note_closed(number);
}

fn borrow(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: never -1. The kernel is asked whether it is open; nothing is written through it before.
    unsafe { BorrowedFd::borrow_raw(number) }
}

impl Entry {
    fn identity(&self) -> (u64, u64) {
        (self.device.load(Relaxed), self.inode.load(Relaxed))
    }

    /// Whether the number still leads to the file for which it was opened: the program may have closed or replaced it
    /// by a system call that no hook sees.
    fn fits(&self, number: RawFd) -> bool {
        identity(borrow(number)).is_ok_and(|found| found == self.identity())
    }

    /// As [`fits`](Self::fits), for its present number. While nobody can change that, the kernel is asked once.
    fn still_fits(&self, number: RawFd) -> bool {
        let now = undisturbed::now();
        if now.is_some_and(|now| self.confirmed.load(Relaxed) == now) {
            return true;
        }
        let fits = self.fits(number);
        if let Some(now) = now.filter(|_| fits) {
            self.confirmed.store(now, Relaxed);
        }
        fits
    }

    /// The program has closed or replaced the descriptor, so the number is the program's. The caller holds
    /// [`CHANGING`].
    fn lose(&self, number: RawFd) {
        NUMBERED[number as usize].store(0, Release);
        self.confirmed.store(0, Relaxed);
        self.place.store(LOST, SeqCst);
    }

    /// Gives the descriptor another number; returns the side of users of the old one. The caller holds [`CHANGING`].
    fn publish(&'static self, index: usize, number: RawFd) -> usize {
        NUMBERED[number as usize].store(index as u16 + 1, Release);
        passing::lower_to(number);
        self.confirmed.store(0, Relaxed);
        let side = self.place.load(Relaxed) & 1;
        self.place.store((number as u64 + 1) << 1 | (side ^ 1), SeqCst);
        side as usize
    }

    fn wait_for_users(&self, side: usize) {
        // The users are inside a system call.
        while self.users[side].load(SeqCst) != 0 {
            rustix::thread::sched_yield();
        }
    }

    /// Opens the file again by its name, after the descriptor was lost. The caller holds [`CHANGING`].
    fn open_anew(&'static self, index: usize) -> Result<()> {
        // SAFETY: set once before the entry was shared, freed with its last owner; the caller is one.
        let name = unsafe { self.name.load(Acquire).as_ref() }.ok_or(lost())?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let _passing = Passing::begin();
        let _standard = numbers::occupy_standard();
        let path = name.as_c_str();
        let way = Named { at: CWD, path, flags, mode: Mode::empty(), made: Default::default() };
        let (opened, found) = opening::high(&way)?;
        if found != self.identity() {
            return Err(lost());
        }
        if self.locked.load(Relaxed) {
            rustix::fs::flock(&opened, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        }
        let number = opened.into_raw_fd();
        self.publish(index, number);
        Ok(())
    }
}

#[cold]
fn lost() -> Error {
    Error::with(libc::EBADF, "the program closed a descriptor of the library")
}

/// Puts an open descriptor with a high number into the table. It leads to the file with this device and inode, unless
/// the program has replaced it.
pub(super) fn register(high: OwnedFd, (device, inode): (u64, u64)) -> Result<EntryId> {
    let number = high.as_raw_fd();
    if number as usize >= NUMBERS {
        return Err(Error::new(libc::EMFILE));
    }
    let free = |entry: &Entry| entry.owners.compare_exchange(0, 1, AcqRel, Relaxed).is_ok();
    let start = NEXT.load(Relaxed) as usize % ENTRIES;
    let index = (start..ENTRIES).chain(0..start).find(|&index| free(&TABLE[index])).ok_or(Error::new(libc::EMFILE))?;
    NEXT.store(index as u32 + 1, Relaxed);
    TOP.fetch_max(index as u32 + 1, AcqRel);
    let entry = &TABLE[index];
    entry.device.store(device, Relaxed);
    entry.inode.store(inode, Relaxed);
    entry.kept.store(false, Relaxed);
    // If the program freed the number unseen, it may still be another entry's, which finds that out by itself.
    entry.publish(index, high.into_raw_fd());
    // Its identity was asked for in the same stretch, if there is one.
    entry.confirmed.store(undisturbed::now().unwrap_or(0), Relaxed);
    entry.owners.store(2, Release);
    Ok(EntryId(index as u16))
}

/// Another owner of the descriptor with this number, if it is internal.
pub(super) fn share(number: RawFd) -> Option<EntryId> {
    let index = numbered(number)?;
    let entry = &TABLE[index];
    let mut owners = entry.owners.load(Acquire);
    while owners >= 2 {
        match entry.owners.compare_exchange(owners, owners + 1, AcqRel, Acquire) {
            Ok(_) if number_of(entry.place.load(SeqCst)) == Some(number) => return Some(EntryId(index as u16)),
            Ok(_) => {
                release(EntryId(index as u16));
                return None;
            }
            Err(now) => owners = now,
        }
    }
    None
}

pub(super) fn set_name(id: EntryId, name: CString, locked: bool) {
    let entry = &TABLE[id.0 as usize];
    let _changing = Changing::lock();
    entry.locked.store(locked, Relaxed);
    let old = entry.name.swap(Box::into_raw(Box::new(name)), AcqRel);
    if !old.is_null() {
        // SAFETY: made by `Box::into_raw` here; readers hold `CHANGING`.
        drop(unsafe { Box::from_raw(old) });
    }
}

pub(super) fn release(id: EntryId) {
    let entry = &TABLE[id.0 as usize];
    if entry.owners.fetch_sub(1, AcqRel) != 2 {
        return;
    }
    let _changing = Changing::lock();
    if let Some(number) = number_of(entry.place.load(SeqCst)) {
        // Only if it has not become the program's meanwhile.
        let ours = numbered(number) == Some(id.0 as usize) && entry.still_fits(number);
        if numbered(number) == Some(id.0 as usize) {
            NUMBERED[number as usize].store(0, Release);
        }
        entry.place.store(LOST, SeqCst);
        if ours {
            close_number(number);
        }
    }
    let name = entry.name.swap(core::ptr::null_mut(), AcqRel);
    if !name.is_null() {
        // SAFETY: made by `Box::into_raw` in `set_name`, and this is the last owner.
        drop(unsafe { Box::from_raw(name) });
    }
    entry.owners.store(0, Release);
}

/// Keeps it open in forked children: a close would drop locks that the child takes.
pub(super) fn keep_in_children(id: EntryId) {
    TABLE[id.0 as usize].kept.store(true, Relaxed);
}

pub(super) fn identity_of(id: EntryId) -> (u64, u64) {
    TABLE[id.0 as usize].identity()
}

/// Begins to use the descriptor under its present number, which is confirmed. Returns the number, and the side for
/// [`end_use`].
pub(super) fn begin_use(id: EntryId) -> Result<(RawFd, usize)> {
    let entry = &TABLE[id.0 as usize];
    loop {
        let place = entry.place.load(SeqCst);
        let Some(number) = number_of(place) else {
            let _changing = Changing::lock();
            if entry.place.load(SeqCst) == LOST {
                entry.open_anew(id.0 as usize)?;
            }
            continue;
        };
        let side = (place & 1) as usize;
        entry.users[side].fetch_add(1, SeqCst);
        if entry.place.load(SeqCst) == place && entry.still_fits(number) {
            return Ok((number, side));
        }
        end_use(id, side);
        let _changing = Changing::lock();
        if entry.place.load(SeqCst) == place && !entry.fits(number) {
            entry.lose(number);
        }
    }
}

/// Whether the number still leads to the file.
pub(super) fn is_at(id: EntryId, number: RawFd) -> bool {
    let entry = &TABLE[id.0 as usize];
    if number_of(entry.place.load(SeqCst)) == Some(number) { entry.still_fits(number) } else { entry.fits(number) }
}

pub(super) fn end_use(id: EntryId, side: usize) {
    TABLE[id.0 as usize].users[side].fetch_sub(1, SeqCst);
}

/// The number of the descriptor, which is confirmed.
pub(super) fn confirmed(id: EntryId) -> Option<RawFd> {
    let (number, side) = begin_use(id).ok()?;
    end_use(id, side);
    Some(number)
}

/// Gives the descriptor another file. It must not be in use.
pub(super) fn replace(id: EntryId, new: OwnedFd, (device, inode): (u64, u64)) -> Result<()> {
    let entry = &TABLE[id.0 as usize];
    let _changing = Changing::lock();
    let old = number_of(entry.place.load(SeqCst));
    let ours = old.filter(|&number| entry.fits(number));
    let side = entry.publish(id.0 as usize, new.into_raw_fd());
    entry.wait_for_users(side);
    entry.device.store(device, SeqCst);
    entry.inode.store(inode, SeqCst);
    if let Some(old) = old {
        NUMBERED[old as usize].store(0, Release);
    }
    ours.into_iter().for_each(close_number);
    Ok(())
}

/// Whether `number` is an internal descriptor now. One that the program has closed or replaced unseen no longer is.
#[cold]
pub(super) fn is_internal(number: RawFd) -> bool {
    let Some(index) = numbered(number) else { return false };
    let entry = &TABLE[index];
    if number_of(entry.place.load(SeqCst)) != Some(number) {
        return false;
    }
    if entry.fits(number) {
        return true;
    }
    // Best effort: a signal handler may have interrupted the holder of the lock.
    if let Some(_changing) = Changing::try_lock()
        && number_of(entry.place.load(SeqCst)) == Some(number)
        && !entry.fits(number)
    {
        entry.lose(number);
    }
    false
}

/// Calls `visit` for each internal descriptor in `first..=last`, in order.
pub(super) fn each(first: RawFd, last: RawFd, mut visit: impl FnMut(RawFd)) {
    let first = first.max(passing::lowest()).max(0) as usize;
    let last = (i64::from(last.max(-1)) + 1) as usize;
    for (number, slot) in NUMBERED.iter().enumerate().take(last.min(NUMBERS)).skip(first) {
        if slot.load(Relaxed) != 0 && is_internal(number as RawFd) {
            visit(number as RawFd);
        }
    }
}

/// Moves the internal descriptor away from `number`, which the program wants; returns its new number. The old number
/// stays open until the caller closes or replaces it, but the library no longer uses it. `EMFILE`: no other number is
/// free, and the file cannot be opened again later.
pub(super) fn move_away(number: RawFd) -> Result<Option<RawFd>> {
    let _changing = Changing::lock();
    let _passing = Passing::begin();
    let Some(index) = numbered(number) else { return Ok(None) };
    let entry = &TABLE[index];
    if number_of(entry.place.load(SeqCst)) != Some(number) || !entry.fits(number) {
        return Ok(None);
    }
    match numbers::high_duplicate(borrow(number)) {
        Ok(new) => {
            let new = new.into_raw_fd();
            let side = entry.publish(index, new);
            entry.wait_for_users(side);
            NUMBERED[number as usize].store(0, Release);
            Ok(Some(new))
        }
        // It is opened again when it is needed and a number is free.
        Err(_) if !entry.name.load(Acquire).is_null() => {
            let side = entry.place.load(SeqCst) & 1;
            entry.lose(number);
            entry.wait_for_users(side as usize);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// In a forked child, whose other threads are gone.
pub(super) fn begin_child() {
    undisturbed::begin_child();
    numbers::begin_child();
    passing::begin_child();
    CHANGING.store(false, Release);
    let used = TABLE.iter().take(TOP.load(Acquire) as usize);
    used.flat_map(|entry| &entry.users).for_each(|users| users.store(0, SeqCst));
}

/// In a forked child: closes the parent's descriptors, except those of data files, which go with what keeps them.
pub(super) fn forget_parents() {
    for (index, entry) in TABLE.iter().enumerate().take(TOP.load(Acquire) as usize) {
        let Some(number) = number_of(entry.place.load(SeqCst)) else { continue };
        if numbered(number) != Some(index) || entry.kept.load(Relaxed) {
            continue;
        }
        let ours = entry.fits(number);
        NUMBERED[number as usize].store(0, Release);
        entry.place.store(LOST, SeqCst);
        // The child must not open the parent's names.
        entry.name.store(core::ptr::null_mut(), Release);
        if ours {
            close_number(number);
        }
    }
}

/// Whether the kernel knows this number at all.
pub(super) fn is_open(number: RawFd) -> bool {
    // SAFETY: no memory is passed.
    check(unsafe { syscall(libc::SYS_fcntl, [number as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) }).is_ok()
}
