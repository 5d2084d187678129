//! Where processes that have the same atomic file open meet: a page in `/dev/shm`, named by the file's identity in this boot.
//!
//! One of them at a time has the file's *turn* (its [`Claim`](super::Claim)), and with it a session. The page says whether there
//! is a session, and whether the open epoch *travels*: lies in a file beside the page, between two turns. Who wants the turn
//! rings; who has it gives it.

use super::claim::{lock_soon, own_like};
use crate::error::{Error, Result};
use crate::sys::{check, high_duplicate, syscall};
use crate::thread::Mutex;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Processes that may have one file open at a time.
pub(crate) const MEMBERS: usize = 64;
/// "FAMIODR2".
const MAGIC: u64 = u64::from_le_bytes(*b"FAMIODR2");
const SIZE: usize = 4096;

/// In [`Page::state`]: a process has a session, or died with one.
pub(crate) const SESSION: u64 = 1;
/// In [`Page::state`]: the open epoch travels.
pub(crate) const TRAVELS: u64 = 2;
const CHANGE: u64 = 4;

/// One process, while its place is locked.
#[repr(C)]
struct Member {
    /// Names the process, never twice; 0: it has left, and what it wrote is everybody's.
    id: AtomicU64,
    /// Which of its tenures runs: what it wrote in earlier ones is everybody's.
    tenure: AtomicU64,
    /// 1: it can commit.
    writes: AtomicU64,
}

/// What all processes see. Plain words: no value is trusted as an address.
#[repr(C)]
struct Page {
    magic: AtomicU64,
    /// [`SESSION`], [`TRAVELS`], and above them a count of changes. Changed only by who has the turn.
    state: AtomicU64,
    /// The number of the file in which the epoch travels.
    epoch: AtomicU64,
    /// Not 0: the number of a file that is being written, or removed: it is to go if that came to no end.
    unfinished: AtomicU64,
    /// The last number that was given out, to a process or a file.
    numbers: AtomicU64,
    /// Counts those who came and want the turn.
    bell: AtomicU32,
    /// Counts the turns that were given.
    given: AtomicU32,
    /// Not 0: whose turn it is can't give it; its process id.
    stuck: AtomicU32,
    spare: AtomicU32,
    members: [Member; MEMBERS],
}

const _: () = assert!(size_of::<Page>() <= SIZE);

/// In the place of a page before this process has come: nobody else looks at it.
static NOBODYS: Page = {
    // SAFETY: zeros are a valid page.
    unsafe { core::mem::zeroed() }
};

/// Who wrote something of an open epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    /// Its place.
    pub place: u32,
    /// Its number.
    pub id: u64,
    /// Its tenure then.
    pub tenure: u64,
}

/// What is known of a [`Writer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its tenure is over: what it wrote stays.
    Over,
    /// It lives, and may still take back what it wrote by dying.
    Open,
    /// It died in that tenure: what it wrote is rolled back.
    Dead,
}

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
}

fn name_of(dev: u64, ino: u64) -> String {
    format!("/dev/shm/famio-{dev:x}-{ino:x}.door")
}

impl Door {
    /// That of the file `(dev, ino)`; this process has not come to it yet.
    pub fn of(dev: u64, ino: u64) -> Self {
        Self {
            page: AtomicPtr::new(core::ptr::null_mut()),
            file: Mutex::new(None),
            name: name_of(dev, ino),
            place: AtomicU32::new(0),
            id: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// Whether this process has ever come.
    #[inline]
    pub fn has_come(&self) -> bool {
        !self.page.load(Ordering::Acquire).is_null()
    }

    /// Comes to the door, whose page is owned like `like`; or back, after [`leave`](Self::leave). `has_journal`: whether a crash
    /// left one, asked by the first to come; its argument: nobody was here before who may have died. Nothing, if it is here.
    ///
    /// `EBUSY`: too many processes have it open.
    pub fn come(&self, like: BorrowedFd<'_>, mut has_journal: impl FnMut(bool) -> Result<bool>) -> Result<()> {
        let mut here = self.file.lock();
        if here.is_some() {
            return Ok(());
        }
        let name = &self.name;
        let failed = |e: Error| e.context(format_args!("opening {name}, where processes meet"));
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let low = rustix::fs::openat(CWD, &**name, flags, Mode::RUSR | Mode::WUSR).map_err(|e| failed(e.into()))?;
            let file = high_duplicate(low.as_fd())?;
            drop(low);
            // Those who come and those who leave, one after the other.
            lock_soon(&file, true).map_err(|e| failed(e.into()))?;
            let stat = rustix::fs::fstat(&file)?;
            if stat.st_nlink == 0 {
                continue; // its last process removed it between our open and our lock
            }
            own_like(&file, &stat, like)?;
            let fresh = (stat.st_size as usize) < SIZE;
            if fresh {
                rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SIZE as u64)
                    .map_err(|e| failed(e.into()))?;
            }
            // In the place of the page that was here before: somebody may be looking at it.
            let old = self.page.load(Ordering::Acquire);
            self.page.store(map(&file, old).map_err(failed)?.as_ptr(), Ordering::Release);
            let came = self.come_in(&file, fresh, &mut has_journal);
            let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
            came?;
            *here = Some(file);
            return Ok(());
        }
    }

    fn come_in(&self, file: &OwnedFd, fresh: bool, has_journal: &mut dyn FnMut(bool) -> Result<bool>) -> Result<()> {
        let page = self.page();
        if page.magic.load(Ordering::Acquire) != MAGIC || !is_locked(file, 0, MEMBERS as i64) {
            // Of processes that are all gone: what they had not committed goes with them.
            let left = has_journal(fresh)?;
            self.remove_unfinished();
            self.forget_epoch();
            // A journal is as a session that somebody died with: who comes next does not read before it is recovered.
            let state = (self.state() & !(SESSION | TRAVELS)) | if left { SESSION } else { 0 };
            page.state.store(state + CHANGE, Ordering::Release);
            page.members.iter().for_each(|member| member.id.store(0, Ordering::Relaxed));
            page.stuck.store(0, Ordering::Relaxed);
            page.magic.store(MAGIC, Ordering::Release);
        }
        let travels = self.state() & TRAVELS != 0;
        // The place of one who died is kept while what it wrote may have to be rolled back.
        let may_take = |member: &Member| !travels || member.id.load(Ordering::Acquire) == 0;
        let place =
            (0..MEMBERS).find(|&place| may_take(&page.members[place]) && lock(file, libc::F_WRLCK, place as u32));
        let Some(place) = place else {
            return Err(Error::with(libc::EBUSY, format!("{MEMBERS} processes have it open already ({})", self.name)));
        };
        let id = self.number();
        page.members[place].tenure.store(1, Ordering::Relaxed);
        page.members[place].writes.store(self.writes.load(Ordering::Acquire), Ordering::Relaxed);
        page.members[place].id.store(id, Ordering::Release);
        self.place.store(place as u32, Ordering::Release);
        self.id.store(id, Ordering::Release);
        Ok(())
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
        self.change(SESSION, there);
    }

    fn change(&self, bit: u64, there: bool) {
        let state = self.state();
        let next = if there { state | bit } else { state & !bit };
        self.page().state.store(next + CHANGE, Ordering::SeqCst);
    }

    /// The path of the travelling epoch, if it travels.
    pub fn epoch(&self) -> Option<String> {
        (self.state() & TRAVELS != 0).then(|| self.epoch_path(self.page().epoch.load(Ordering::Acquire)))
    }

    /// The path of a travelling epoch with that number.
    pub fn epoch_path(&self, number: u64) -> String {
        format!("{}.{number}", self.name.trim_end_matches(".door").to_owned() + ".epoch")
    }

    /// The epoch travels in the file with that number from now on, which is complete. By who has the turn.
    pub fn set_epoch(&self, number: u64) {
        let page = self.page();
        let old = page.epoch.swap(number, Ordering::AcqRel);
        if self.state() & TRAVELS != 0 {
            page.unfinished.store(old, Ordering::Release);
        }
        self.change(TRAVELS, true);
        self.remove_unfinished();
    }

    /// The number of a file for an epoch that is about to be written. By who has the turn.
    pub fn begin_epoch(&self) -> u64 {
        self.remove_unfinished();
        let number = self.number();
        self.page().unfinished.store(number, Ordering::Release);
        number
    }

    /// By who has the turn, or is alone.
    fn remove_unfinished(&self) {
        let page = self.page();
        let number = page.unfinished.load(Ordering::Acquire);
        let travels = self.state() & TRAVELS != 0 && page.epoch.load(Ordering::Acquire) == number;
        if number != 0 && !travels {
            let _ = rustix::fs::unlinkat(CWD, &*self.epoch_path(number), AtFlags::empty());
        }
        page.unfinished.store(0, Ordering::Release);
    }

    /// Nothing travels any more. By who has the turn.
    pub fn forget_epoch(&self) {
        if self.state() & TRAVELS != 0 {
            let page = self.page();
            page.unfinished.store(page.epoch.load(Ordering::Acquire), Ordering::Release);
            self.change(TRAVELS, false);
            self.remove_unfinished();
        }
    }

    /// This process, as the writer of what it writes now.
    pub fn me(&self) -> Writer {
        let (place, id) = (self.place.load(Ordering::Acquire), self.id.load(Ordering::Acquire));
        let tenure = self.page().members[place as usize].tenure.load(Ordering::Acquire);
        Writer { place, id, tenure }
    }

    /// What this process wrote until now stays, whatever becomes of it.
    pub fn end_tenure(&self) {
        let place = self.place.load(Ordering::Acquire) as usize;
        self.page().members[place].tenure.fetch_add(1, Ordering::AcqRel);
    }

    /// Somebody relies on what `writer` wrote.
    pub fn rely_on(&self, writer: Writer) {
        if let Some(member) = self.page().members.get(writer.place as usize)
            && member.id.load(Ordering::Acquire) == writer.id
        {
            let (now, next) = (writer.tenure, writer.tenure + 1);
            let _ = member.tenure.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// What becomes of what `writer` wrote.
    pub fn standing(&self, writer: Writer) -> Standing {
        let Some(member) = self.page().members.get(writer.place as usize) else { return Standing::Over };
        let same =
            || member.id.load(Ordering::Acquire) == writer.id && member.tenure.load(Ordering::Acquire) == writer.tenure;
        match same() {
            false => Standing::Over,
            true if writer.id == self.id.load(Ordering::Acquire) || self.conflict(i64::from(writer.place), 1) => {
                Standing::Open
            }
            // Looked at again: it may have left cleanly in between.
            true if same() => Standing::Dead,
            true => Standing::Over,
        }
    }

    /// The places of those who have died, with their numbers.
    pub fn dead(&self) -> Vec<(usize, u64)> {
        let ids = self.page().members.iter().map(|member| member.id.load(Ordering::Acquire)).enumerate();
        let me = self.id.load(Ordering::Acquire);
        ids.filter(|&(place, id)| id != 0 && id != me && !self.conflict(place as i64, 1)).collect()
    }

    /// With the turn: their places are free. They were seen dead before what they wrote was rolled back: of one who dies later
    /// something may be left, which would count as everybody's.
    pub fn bury(&self, dead: &[(usize, u64)]) {
        for &(place, id) in dead {
            let _ = self.page().members[place].id.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// This process can commit what others wrote, or can't.
    pub fn set_writes(&self, can: bool) {
        let here = self.file.lock();
        self.writes.store(can.into(), Ordering::Release);
        if here.is_some() {
            let place = self.place.load(Ordering::Acquire) as usize;
            self.page().members[place].writes.store(can.into(), Ordering::Release);
        }
    }

    /// Whether others have the file open who can commit it.
    pub fn has_other_writers(&self) -> bool {
        let writes = |&(_, member): &(usize, &Member)| member.writes.load(Ordering::Acquire) != 0;
        self.page().members.iter().enumerate().filter(writes).any(|(place, _)| self.conflict(place as i64, 1))
    }

    /// Whether other processes have the file open.
    pub fn has_others(&self) -> bool {
        self.conflict(0, MEMBERS as i64)
    }

    fn conflict(&self, start: i64, len: i64) -> bool {
        self.file.lock().as_ref().is_some_and(|file| is_locked(file, start, len))
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

    /// Leaves, unless this is the last process and the epoch travels: then somebody has to commit it first. Whether it left.
    pub fn leave(&self) -> bool {
        let mut here = self.file.lock();
        let Some(file) = here.as_ref() else { return true };
        let locked = lock_soon(file, true).is_ok();
        let others = is_locked(file, 0, MEMBERS as i64);
        if !others && self.state() & TRAVELS != 0 {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            return false;
        }
        let place = self.place.load(Ordering::Acquire);
        self.page().members[place as usize].id.store(0, Ordering::Release);
        if locked && !others {
            self.remove_unfinished();
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
        if let Some(mut here) = self.file.try_lock() {
            *here = None;
        }
    }
}

/// Removes a door that no process is at, with what travelled last: its processes are all gone, and nobody asks any more, or
/// who does makes another. One that is new may be somebody's who is just coming.
pub(super) fn sweep_door(name: &core::ffi::CStr) {
    let Some(key) = name.to_str().ok().and_then(|name| name.strip_prefix("famio-")?.strip_suffix(".door")) else {
        return;
    };
    let path = format!("/dev/shm/famio-{key}.door");
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(CWD, &*path, flags, Mode::empty()) else { return };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let is_ours = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink == 1 && stat.st_size as usize == SIZE);
    if !is_ours || is_locked(&file, 0, MEMBERS as i64) {
        return;
    }
    if let Ok(page) = map(&file, core::ptr::null_mut()) {
        let (page, name) = (AtomicPtr::new(page.as_ptr()), path);
        let [id, writes] = [const { AtomicU64::new(0) }; 2];
        let door = Door { page, file: Mutex::new(None), name, place: AtomicU32::new(0), id, writes };
        if door.state() & SESSION != 0 {
            return; // there may be a journal: who has the file open already, but has not come yet, is to hear of it
        }
        door.remove_unfinished();
        door.forget_epoch();
        let _ = rustix::fs::unlinkat(CWD, &*door.name, AtFlags::empty());
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(page) = NonNull::new(*self.page.get_mut()) {
            // SAFETY: ours, and no reference into it outlives the door.
            let _ = unsafe { rustix::mm::munmap(page.as_ptr().cast(), SIZE) };
        }
    }
}

/// Locks a place for this process (`F_WRLCK`), if nobody has it, or gives it up (`F_UNLCK`). The lock is the open file
/// description's: it goes with the process, however that ends.
fn lock(file: &OwnedFd, kind: i32, place: u32) -> bool {
    let mut lock = region(kind, i64::from(place), 1);
    fcntl(file, libc::F_OFD_SETLK, &mut lock).is_ok()
}

/// Whether another process has one of these places.
fn is_locked(file: &OwnedFd, start: i64, len: i64) -> bool {
    let mut lock = region(libc::F_WRLCK, start, len);
    fcntl(file, libc::F_OFD_GETLK, &mut lock).is_ok() && i32::from(lock.l_type) != libc::F_UNLCK
}

fn fcntl(file: &OwnedFd, what: i32, lock: &mut libc::flock) -> Result<usize> {
    let args = [file.as_raw_fd() as usize, what as usize, core::ptr::from_mut(lock) as usize, 0, 0, 0];
    // SAFETY: `lock` is a valid `struct flock` that the kernel may write to.
    check(unsafe { syscall(libc::SYS_fcntl, args) })
}

fn region(kind: i32, start: i64, len: i64) -> libc::flock {
    // SAFETY: zeros are a valid `struct flock`; an open file description's lock needs `l_pid` to be 0.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_start, lock.l_len) = (kind as i16, libc::SEEK_SET as i16, start, len);
    lock
}

/// Maps the page, in the place of `old` unless that is null.
fn map(file: &OwnedFd, old: *mut Page) -> Result<NonNull<Page>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = if old.is_null() { MapFlags::SHARED } else { MapFlags::SHARED | MapFlags::FIXED };
    // SAFETY: a new mapping, or one in the place of ours, of a file of ours with memory behind it that nobody makes shorter.
    let at = unsafe { rustix::mm::mmap(old.cast(), SIZE, protection, flags, file, 0) };
    NonNull::new(at.map_err(|e: Errno| Error::from(e))?.cast()).ok_or(Error::new(libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(like: &OwnedFd, dev: u64, ino: u64) -> Door {
        let door = Door::of(dev, ino);
        door.come(like.as_fd(), |_| Ok(false)).unwrap();
        door
    }

    fn key() -> (OwnedFd, u64, u64) {
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let ino = rustix::fs::fstat(&file).unwrap().st_ino;
        (file, 0xfa311 + u64::from(std::process::id()), ino)
    }

    #[test]
    fn the_last_removes_it() {
        let (file, dev, ino) = key();
        let first = open(&file, dev, ino);
        let second = open(&file, dev, ino);
        assert!(first.has_others() && second.has_others());
        assert_ne!(first.me(), second.me());
        assert!(first.leave());
        assert!(!second.has_others());
        assert!(std::path::Path::new(&name_of(dev, ino)).exists());
        assert!(second.leave());
        assert!(!std::path::Path::new(&name_of(dev, ino)).exists());
    }

    #[test]
    fn a_writer_is_open_over_or_dead() {
        let (file, dev, ino) = key();
        let mine = open(&file, dev, ino);
        let other = open(&file, dev, ino);
        let wrote = other.me();
        assert_eq!((mine.standing(wrote), mine.standing(mine.me())), (Standing::Open, Standing::Open));
        other.end_tenure();
        assert_eq!(mine.standing(wrote), Standing::Over);
        let wrote = other.me();
        mine.rely_on(wrote);
        assert_eq!(mine.standing(wrote), Standing::Over);
        let (wrote, before) = (other.me(), mine.me());
        drop(other); // as a kill: nothing was said
        assert_eq!((mine.standing(wrote), mine.standing(before)), (Standing::Dead, Standing::Open));
        assert!(mine.leave());
    }

    #[test]
    fn what_travels_keeps_the_last_one_in_and_the_place_of_a_dead_one() {
        let (file, dev, ino) = key();
        let mine = open(&file, dev, ino);
        let other = open(&file, dev, ino);
        let number = other.number();
        std::fs::write(other.epoch_path(number), "x").unwrap();
        other.set_epoch(number);
        let wrote = other.me();
        drop(other);
        let third = open(&file, dev, ino);
        assert_eq!(third.standing(wrote), Standing::Dead);
        assert!(third.leave());
        assert!(!mine.leave());
        mine.forget_epoch();
        assert!(!std::path::Path::new(&mine.epoch_path(number)).exists());
        assert!(mine.leave());
    }

    fn left_door(dev: u64, ino: u64) -> OwnedFd {
        rustix::fs::openat(CWD, &*name_of(dev, ino), OFlags::RDWR, Mode::empty()).unwrap()
    }

    #[test]
    fn what_the_dead_left_is_swept() {
        let (file, dev, ino) = key();
        let mine = open(&file, dev, ino);
        let (left, kept) = (mine.number(), mine.number());
        let exists = |number| std::path::Path::new(&mine.epoch_path(number)).exists();
        mine.page().unfinished.store(left, Ordering::Release);
        std::fs::write(mine.epoch_path(left), "x").unwrap();
        std::fs::write(mine.epoch_path(kept), "x").unwrap();
        mine.page().epoch.store(kept, Ordering::Release);
        mine.change(TRAVELS, true);
        let name = std::ffi::CString::new(name_of(dev, ino).rsplit('/').next().unwrap()).unwrap();
        sweep_door(&name);
        assert!(exists(kept), "somebody is there");
        let all = [name_of(dev, ino), mine.epoch_path(kept), mine.epoch_path(left)];
        drop(mine); // as a kill
        let death = Door::of(dev, ino);
        death.page.store(map(&left_door(dev, ino), core::ptr::null_mut()).unwrap().as_ptr(), Ordering::Release);
        death.set_session(true);
        sweep_door(&name);
        assert!(std::path::Path::new(&all[0]).exists(), "there may be a journal");
        death.set_session(false);
        sweep_door(&name);
        assert!(all.iter().all(|path| !std::path::Path::new(path).exists()), "{all:?}");
    }

    #[test]
    fn who_comes_after_all_have_died_finds_nothing_of_theirs() {
        let (file, dev, ino) = key();
        let dead = open(&file, dev, ino);
        let number = dead.number();
        std::fs::write(dead.epoch_path(number), "x").unwrap();
        dead.set_epoch(number);
        dead.set_session(true);
        let path = dead.epoch_path(number);
        drop(dead);
        let next = open(&file, dev, ino);
        assert!(next.state() & (SESSION | TRAVELS) == 0 && !std::path::Path::new(&path).exists());
        assert!(next.leave());
    }
}
