//! Where processes that have the same atomic file open meet: a page in `/dev/shm`, named by the file's identity in this boot.
//!
//! One of them at a time has the file's *turn* (its [`Claim`](super::Claim)), and with it a session. The page says whether there
//! is a session, and whether the open epoch *travels*: lies in a file beside the page, between two turns. Who wants the turn
//! rings; who has it gives it.

mod epoch;
mod lab;
mod life;
mod maps;
mod page;
mod places;
mod positions;
mod watch;

pub(crate) use life::LIVES;
pub(crate) use maps::{KERNELS, STORES, SharedSize};
pub(crate) use page::{SESSION, TRAVELS};
pub(crate) use places::{Standing, Writer};
pub(crate) use positions::Positions;

use super::claim::{Unlocks, lock_soon, own_like};
use crate::error::{Error, Result};
use crate::sys::{InternalFd, internal};
use crate::thread::Mutex;
use InternalFd as OwnedFd;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use page::{CHANGE, MAGIC, NOBODYS, Page, SIZE, map};
use places::{MEMBERS, is_locked, lock};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::os::fd::BorrowedFd;

/// This process's door to one file.
///
/// Invariant: `page` points to a mapped page as long as the value lives, or is null, before it has come.
pub(crate) struct Door {
    page: AtomicPtr<Page>,
    /// `None`: it has left.
    file: Mutex<Option<OwnedFd>>,
    name: String,
    place: AtomicU32,
    id: AtomicU64,
    writes: AtomicU64,
    section: AtomicU64,
    maps: AtomicU64,
}

fn name_of(dev: u64, ino: u64) -> String {
    format!("/dev/shm/famio-{dev:x}-{ino:x}.door")
}

/// Rounds of about 30 ms in which one who comes waits for somebody who comes, leaves or sweeps: about a minute. That is a few
/// system calls of theirs, but they may have to wait for a processor, or for a disk.
const ROUNDS: u32 = 2000;

/// Those who come and those who leave, one after the other. `EAGAIN` after a minute: somebody has stopped there.
fn lock_door(file: &OwnedFd) -> rustix::io::Result<()> {
    for _ in 1..ROUNDS {
        match lock_soon(file, true) {
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            result => return result,
        }
    }
    lock_soon(file, true)
}

impl Door {
    /// That of the file `(dev, ino)`; this process has not come to it yet.
    pub fn of(dev: u64, ino: u64) -> Self {
        Self::named(name_of(dev, ino))
    }

    fn named(name: String) -> Self {
        Self {
            page: AtomicPtr::new(core::ptr::null_mut()),
            file: Mutex::new(None),
            name,
            place: AtomicU32::new(0),
            id: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            section: AtomicU64::new(0),
            maps: AtomicU64::new(0),
        }
    }

    /// Whether a process has a session of the file `(dev, ino)`, died with one, or has left an open epoch: a look from outside.
    pub fn is_in_use(dev: u64, ino: u64) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(door) = rustix::fs::openat(CWD, &*name_of(dev, ino), flags, Mode::empty()) else { return false };
        let mut words = [0u8; 16];
        let word = |at: usize, words: &[u8; 16]| u64::from_ne_bytes(core::array::from_fn(|i| words[at + i]));
        matches!(rustix::io::pread(&door, &mut words, 0), Ok(16))
            && word(offset_of!(Page, magic), &words) == MAGIC
            && word(offset_of!(Page, state), &words) & (SESSION | TRAVELS) != 0
    }

    /// Whether no process has come to it since it was swept.
    pub fn is_unknown(&self) -> bool {
        matches!(rustix::fs::lstat(&*self.name), Err(rustix::io::Errno::NOENT))
    }

    /// Whether this process has ever come.
    #[inline]
    pub fn has_come(&self) -> bool {
        !self.page.load(Ordering::Acquire).is_null()
    }

    /// Whether this process is at the door. Who is not, can't tell who of the others lives.
    pub fn is_here(&self) -> bool {
        self.file.lock().is_some()
    }

    /// Comes to the door, whose page is owned like `like`; or back, after [`leave`](Self::leave). `has_journal`: whether a crash
    /// left one, asked by the first to come: the page that says so may have been swept. Nothing, if it is here.
    ///
    /// `EBUSY`: too many processes have it open.
    pub fn come(&self, like: BorrowedFd<'_>, mut has_journal: impl FnMut() -> Result<bool>) -> Result<()> {
        let mut here = self.file.lock();
        if here.is_some() {
            return Ok(());
        }
        let name = &self.name;
        let failed = |e: Error| e.context(format_args!("opening {name}, where processes meet"));
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = internal::open(CWD, &**name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
            lock_door(&file).map_err(|e| failed(e.into()))?;
            let unlocks = Unlocks(&file);
            let stat = rustix::fs::fstat(&file)?;
            if stat.st_nlink == 0 {
                continue; // its last process removed it between our open and our lock
            }
            own_like(&file, &stat, like)?;
            if (stat.st_size as usize) < SIZE {
                rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SIZE as u64)
                    .map_err(|e| failed(e.into()))?;
            }
            // In the place of the page that was here before: somebody may be looking at it.
            let old = self.page.load(Ordering::Acquire);
            self.page.store(map(&file, old).map_err(failed)?.as_ptr(), Ordering::Release);
            self.come_in(&file, &mut has_journal)?;
            drop(unlocks);
            *here = Some(file);
            return Ok(());
        }
    }

    fn come_in(&self, file: &OwnedFd, has_journal: &mut dyn FnMut() -> Result<bool>) -> Result<()> {
        let page = self.page();
        if page.magic.load(Ordering::Acquire) != MAGIC || !is_locked(file, 0, MEMBERS as i64) {
            // Of processes that are all gone: what they had not committed goes with them.
            let left = has_journal()?;
            self.remove_unfinished();
            self.forget_epoch();
            self.forget_shadow();
            // A journal is as a session that somebody died with: who comes next does not read before it is recovered.
            let state = (self.state() & !(SESSION | TRAVELS)) | if left { SESSION } else { 0 };
            page.state.store(state + CHANGE, Ordering::Release);
            page.members.iter().for_each(|member| member.id.store(0, Ordering::Relaxed));
            page.unknown_stores.store(0, Ordering::Relaxed);
            page.places.store(0, Ordering::Relaxed);
            page.stuck.store(0, Ordering::Relaxed);
            page.magic.store(MAGIC, Ordering::Release);
        }
        self.take_place(file)
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped as long as the door (its invariant), or null; made of atomic words, for which every bit pattern is
        // valid.
        unsafe { self.page.load(Ordering::Acquire).as_ref() }.unwrap_or(&NOBODYS)
    }

    /// A number that was not given out yet.
    pub fn number(&self) -> u64 {
        self.page().numbers.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// [`SESSION`], [`TRAVELS`], and a count of changes.
    #[inline]
    pub fn state(&self) -> u64 {
        self.page().state.load(Ordering::Acquire)
    }

    /// There is a session now, or no longer. By who has the turn.
    pub fn set_session(&self, there: bool) {
        let holder = if there { self.place.load(Ordering::Acquire) + 1 } else { 0 };
        self.page().holder.store(holder, Ordering::Release);
        self.change(SESSION, there);
        if there {
            self.give(); // who watches is to watch this process
        }
    }

    fn change(&self, bit: u64, there: bool) {
        let state = self.state();
        let next = if there { state | bit } else { state & !bit };
        self.page().state.store(next + CHANGE, Ordering::SeqCst);
    }

    /// How often turns were given until now: for [`wait`](Self::wait).
    pub fn given(&self) -> u32 {
        self.page().given.load(Ordering::SeqCst)
    }

    /// Tells who has the turn that somebody wants it.
    pub fn ring(&self) {
        let bell = &self.page().bell;
        bell.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(bell, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Waits until a turn is given after `given` was seen, or for `patience`.
    pub fn wait(&self, given: u32, patience: Timespec) {
        let _ = futex::wait(&self.page().given, futex::Flags::empty(), given, Some(&patience));
    }

    /// The turn is given: whoever waits may look.
    pub fn give(&self) {
        let given = &self.page().given;
        given.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(given, futex::Flags::empty(), i32::MAX as u32);
    }

    /// The word that rings.
    pub fn bell(&self) -> &AtomicU32 {
        &self.page().bell
    }

    /// Whose turn it is can't give it (its process id), or can again (0).
    pub fn set_stuck(&self, pid: u32) {
        self.page().stuck.store(pid, Ordering::SeqCst);
    }

    /// The process that can't give the turn; 0: none.
    pub fn stuck(&self) -> u32 {
        self.page().stuck.load(Ordering::SeqCst)
    }

    /// Leaves, unless this is the last process and the epoch travels, or there are stores that nobody has looked for: then somebody
    /// has to commit that first. Whether it left.
    pub fn leave(&self) -> bool {
        let mut here = self.file.lock();
        let Some(file) = here.as_ref() else { return true };
        let locked = lock_soon(file, true).is_ok();
        let others = self.others_at(file);
        if !others && (self.state() & TRAVELS != 0 || self.shadow().is_some() && self.unknown_stores() != 0) {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            return false;
        }
        let place = self.place.load(Ordering::Acquire);
        self.leave_maps();
        self.page().members[place as usize].id.store(0, Ordering::Release);
        LIVES.remove(&self.page().members[place as usize].life);
        if locked && !others {
            self.remove_unfinished();
            self.forget_shadow();
            let _ = rustix::fs::unlinkat(CWD, &*self.name, AtFlags::empty());
        }
        // By name, not by closing: a forked child may hold a duplicate.
        lock(file, libc::F_UNLCK, place);
        let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        *here = None;
        true
    }

    /// In a forked child: the place is the parent's.
    pub fn forget(&self) {
        // Its page did not come along.
        self.page.store(core::ptr::null_mut(), Ordering::Release);
        if let Some(mut here) = self.file.try_lock() {
            *here = None;
        }
    }
}

/// Removes a door that no process is at, with what travelled last: its processes are all gone, and nobody asks any more, or
/// who does makes another, and finds the journal that they may have left by itself. One that is new may be somebody's who is
/// just coming.
pub(super) fn sweep_door(name: &core::ffi::CStr) {
    let Some(key) = name.to_str().ok().and_then(|name| name.strip_prefix("famio-")?.strip_suffix(".door")) else {
        return;
    };
    let path = format!("/dev/shm/famio-{key}.door");
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = internal::open(CWD, &*path, flags, Mode::empty()) else { return };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let _unlocks = Unlocks(&file);
    let is_ours = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink == 1 && stat.st_size as usize == SIZE);
    if !is_ours || is_locked(&file, 0, MEMBERS as i64) {
        return;
    }
    if let Ok(page) = map(&file, core::ptr::null_mut()) {
        let (page, name) = (AtomicPtr::new(page.as_ptr()), path);
        let [id, writes, section, maps] = [const { AtomicU64::new(0) }; 4];
        let door = Door { page, file: Mutex::new(None), name, place: AtomicU32::new(0), id, writes, section, maps };
        door.remove_unfinished();
        door.forget_epoch();
        door.forget_shadow();
        let _ = rustix::fs::unlinkat(CWD, &*door.name, AtFlags::empty());
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(page) = NonNull::new(*self.page.get_mut()) {
            LIVES.remove(&self.page().members[self.place.load(Ordering::Acquire) as usize].life);
            // SAFETY: ours, and no reference into it outlives the door.
            let _ = unsafe { rustix::mm::munmap(page.as_ptr().cast(), SIZE) };
        }
    }
}

#[cfg(test)]
mod tests;
