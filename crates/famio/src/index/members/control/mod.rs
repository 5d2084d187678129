//! The control file of an atomic file, by which its processes find each other: a page that all of them map
//! (`membership`), and bytes that they lock. It lies beside the file's journal. Only processes that may write the file
//! can open it, so its contents and its locks are theirs alone. `journal::control` finds and makes it.

mod owner;
mod removal;
#[cfg(test)]
mod test_control;

pub use self::owner::Owner;
#[cfg(test)]
pub(in crate::index) use self::test_control::{TestControl, for_test};

use super::control_page::{HAS_IMAGE, MAGIC, MEMBERS, MOVED, Page, SESSION, SIZE, UNOWNED};
use crate::error::{Error, Result};
use crate::index::calls::totals::Totals;
use crate::sys::locks::{Lock, is_locked, try_lock, unlock};
use crate::sys::{InternalFd, path_of, read_at, shm, write_at};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd};

/// The owner lock: the byte that a process locks while it may change the file, or recovers it.
const OWNER_LOCK: Range<i64> = (1 << 20)..(1 << 20) + 1;
/// The byte that a process locks for the moment in which it attaches or detaches.
const ATTACHING: Range<i64> = OWNER_LOCK.end..OWNER_LOCK.end + 1;

/// The byte that processes lock while they recover the file by a session.
const RECOVERING: Range<i64> = ATTACHING.end..ATTACHING.end + 1;

/// Tries, and the pause after each, before a lock counts as held: another process may have it for a moment.
const TRIES: u32 = 30;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Rounds of [`TRIES`] in which a process that attaches waits for another: about four seconds.
const ROUNDS: u32 = 130;

/// An open control file.
pub(crate) struct Control {
    file: InternalFd,
}

/// Keeps other processes from attaching and detaching until it is dropped.
pub(crate) struct Attaching<'a>(&'a Control);

impl Drop for Attaching<'_> {
    fn drop(&mut self) {
        unlock(&self.0.file, ATTACHING);
    }
}

/// See [`Control::recovering`].
pub(crate) struct Recovering<'a>(&'a Control);

impl Drop for Recovering<'_> {
    fn drop(&mut self) {
        unlock(&self.0.file, RECOVERING);
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Control {
    /// Another open file description of the same file.
    pub(in crate::index) fn open_again(&self) -> Result<InternalFd> {
        self.file.open_again(OFlags::RDWR)
    }

    /// `file` has at least [`SIZE`] bytes, and its permissions were checked.
    pub fn new(file: InternalFd) -> Self {
        Self { file }
    }

    /// What a new file holds: a [key](Self::key).
    ///
    /// # Errors
    /// Those of `getrandom(2)`.
    pub fn first_page() -> Result<Box<[u8; SIZE]>> {
        let mut page = Box::new([0; SIZE]); // the caller's stack may be small
        page[offset_of!(Page, key)..][..8].copy_from_slice(&random()?.to_ne_bytes());
        Ok(page)
    }

    /// Its device and inode.
    pub fn identity(&self) -> (u64, u64) {
        self.file.identity()
    }

    /// Whether the file still has its name, so that other processes find it.
    pub fn has_name(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 1)
    }

    /// Its path, for messages.
    pub fn path(&self) -> String {
        path_of(self.file.as_fd()).map_or("a control file".into(), |path| path.display().to_string())
    }

    /// Waits until no other process attaches or detaches. `EAGAIN` after some seconds: a process has stopped there.
    pub fn attaching(&self) -> Result<Attaching<'_>> {
        for _ in 0..ROUNDS {
            if lock_soon(&self.file, ATTACHING, Lock::Exclusive)? {
                return Ok(Attaching(self));
            }
        }
        Err(Error::with(libc::EAGAIN, format!("{}: another process does not end its attach", self.path())))
    }

    /// As [`attaching`](Self::attaching), but waits only briefly.
    pub fn try_attaching(&self) -> Option<Attaching<'_>> {
        matches!(lock_soon(&self.file, ATTACHING, Lock::Exclusive), Ok(true)).then_some(Attaching(self))
    }

    /// Tries to take the owner lock; briefly again if `soon`.
    pub(in crate::index) fn lock_owner_lock(&self, how: Lock, soon: bool) -> Result<bool> {
        if soon { lock_soon(&self.file, OWNER_LOCK, how) } else { try_lock(&self.file, OWNER_LOCK, how) }
    }

    pub(in crate::index) fn unlock_owner_lock(&self) {
        unlock(&self.file, OWNER_LOCK);
    }

    /// Whether another open description has the owner lock, in a way that excludes this process.
    pub fn is_owned(&self) -> bool {
        is_locked(&self.file, OWNER_LOCK, Lock::Shared)
    }

    /// Whether a process is attached, through another open description than this one.
    pub fn has_members(&self) -> bool {
        is_anybody(self)
    }

    /// Until the end of what it returns, other processes see that this one recovers the file, though it is attached.
    pub fn recovering(&self) -> Recovering<'_> {
        let _ = try_lock(&self.file, RECOVERING, Lock::Shared);
        Recovering(self)
    }

    /// Whether a process says so.
    pub fn says_it_recovers(&self) -> bool {
        is_locked(&self.file, RECOVERING, Lock::Exclusive)
    }

    /// Whether the process that has the file recovers it, as far as can be seen: it is not attached, or says so.
    pub fn is_being_recovered(&self) -> bool {
        self.says_it_recovers() || !self.has_members()
    }

    /// The owner; `None`: there is none, or its identity is unknown.
    pub fn owner(&self) -> Option<Owner> {
        let word = self.word(offset_of!(Page, owner));
        Owner::of_word(word).filter(|_| self.is_owned())
    }

    /// Whether the members share memory in another folder than this process.
    pub fn is_elsewhere(&self) -> bool {
        let of = [offset_of!(Page, shm), offset_of!(Page, shm_inode)].map(|at| self.word(at));
        self.word(offset_of!(Page, magic)) == MAGIC && of != <[u64; 2]>::from(shm::identity()) && is_anybody(self)
    }

    /// The error of a process that finds that.
    pub fn kept_out(&self) -> Error {
        let what = format!(
            "in use as an atomic file by processes that share memory in another folder than {}, perhaps in another container; \
             give all of them one folder on tmpfs by the setting shm (FAMIO_SHM, famio run --shm DIR); its control file is {}",
            shm::folder(),
            self.path()
        );
        Error::with(libc::EBUSY, what)
    }

    /// Whether a process has a session or is about to move a growing file into one, died with one, or left an open
    /// epoch.
    pub fn is_in_use(&self) -> bool {
        // In this order: the announcement ends when the session has begun.
        const { assert!(offset_of!(Page, magic) == 0 && offset_of!(Page, state) == 8) };
        let is_announced = self.word(offset_of!(Page, grows_no_more)) != 0;
        let [magic, state] = self.words(0);
        magic == MAGIC && (is_announced || state & (SESSION | HAS_IMAGE) != 0)
    }

    /// Whether there is a session, and a process is attached; not if the file has another control file now.
    pub fn has_living_session(&self) -> bool {
        let [magic, state] = self.words(0);
        magic == MAGIC && state & (SESSION | MOVED) == SESSION && is_anybody(self)
    }

    /// The file.
    pub fn into_file(self) -> InternalFd {
        self.file
    }

    /// A value that changes with each session that begins or ends.
    pub fn changes(&self) -> u64 {
        self.word(offset_of!(Page, state))
    }

    /// Whether there is a session that no process owns at this moment.
    pub fn has_unowned_session(&self) -> bool {
        let unowned = SESSION | UNOWNED;
        self.is_in_use() && self.word(offset_of!(Page, state)) & unowned == unowned && is_anybody(self)
    }

    /// How often ownership was handed over on request since the file was made. It wraps around. 0 if another process
    /// has cut the file.
    pub fn hand_overs(&self) -> u32 {
        let mut word = [0; 4];
        let _ = read_at(&self.file, offset_of!(Page, hand_overs) as u64, &mut word);
        u32::from_ne_bytes(word)
    }

    /// Whether there is a hand-over image that is kept though all processes were killed.
    pub fn has_kept_epoch(&self) -> bool {
        let [state, kept, epoch] =
            [offset_of!(Page, state), offset_of!(Page, kept), offset_of!(Page, epoch)].map(|at| self.word(at));
        self.is_in_use() && state & HAS_IMAGE != 0 && kept != 0 && epoch >= kept
    }

    /// The path of the hand-over image, if there is one.
    pub(in crate::index) fn epoch_path(&self) -> String {
        let (key, number) = (self.word(offset_of!(Page, key)), self.word(offset_of!(Page, epoch)));
        Page::path(self.identity(), key, number, "epoch")
    }

    /// The path of the last session's arena, in the folder of shared memory; `None`: there is none.
    pub(in crate::index) fn arena_path(&self) -> Option<String> {
        const { assert!(offset_of!(Page, arena) == offset_of!(Page, key) + 8) };
        let [key, number] = self.words(offset_of!(Page, key));
        (number != 0).then(|| Page::path(self.identity(), key, number, "arena"))
    }

    /// Opens the arena of the last session for reading. `None`: there is none.
    ///
    /// # Errors
    /// `EACCES`: it belongs to another user.
    pub fn open_arena(&self) -> Result<Option<InternalFd>> {
        let Some(path) = self.arena_path() else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match crate::sys::openat(CWD, &*path, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// Asks the session not to write back for this many nanoseconds, if this process may.
    pub fn hold_write_backs(&self, nanoseconds: u64) {
        self.set_until(offset_of!(Totals, hold), nanoseconds);
    }

    /// Keeps the next SYNC from ending, and all threads from writing, for this many nanoseconds; 0: no longer.
    pub fn freeze(&self, nanoseconds: u64) {
        self.set_until(offset_of!(Totals, freeze), nanoseconds);
    }

    fn set_until(&self, word: usize, nanoseconds: u64) {
        let Some(path) = self.arena_path() else { return };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(arena) = crate::sys::openat(CWD, &*path, flags, Mode::empty()) else { return };
        let mut magic = [0; 8];
        let is_arena = read_at(&arena, 0, &mut magic).is_ok_and(|length| length == 8);
        if is_arena && u64::from_ne_bytes(magic) == crate::index::shared::MAGIC {
            let until = if nanoseconds > 0 { crate::sys::monotonic_now() + nanoseconds } else { 0 };
            let at = offset_of!(crate::index::Shared, totals) + word;
            // Without the hold, as without the permission, the caller sees by the session's counts what changed
            // meanwhile.
            let _ = write_at(&arena, at as u64, &until.to_ne_bytes());
        }
    }

    pub(in crate::index) fn set_owner(&self, owner: Owner) {
        self.set_word(offset_of!(Page, owner), owner.word());
    }

    pub(in crate::index) fn set_arena(&self, number: u64) {
        self.set_word(offset_of!(Page, arena), number);
    }

    /// A random number for the names of what belongs to this file, so that other users cannot guess them.
    pub(in crate::index) fn key(&self) -> Result<u64> {
        match self.word(offset_of!(Page, key)) {
            0 => {
                let key = random()?;
                self.set_word(offset_of!(Page, key), key);
                Ok(key)
            }
            key => Ok(key),
        }
    }

    /// A word of the page; 0 if another process has cut the file.
    fn word(&self, at: usize) -> u64 {
        self.words::<1>(at)[0]
    }

    /// As [`word`](Self::word), of several that follow each other.
    fn words<const N: usize>(&self, at: usize) -> [u64; N] {
        let mut words = [[0; 8]; N];
        let _ = read_at(&self.file, at as u64, words.as_flattened_mut()); // after an error, zeros
        words.map(u64::from_ne_bytes)
    }

    fn set_word(&self, at: usize, word: u64) {
        if crate::sys::file_size_limit() >= SIZE as u64 {
            // Fails only without memory for the page; a reader then finds the old word, as after a kill just before.
            let _ = write_at(&self.file, at as u64, &word.to_ne_bytes());
            return;
        }
        // A write could raise SIGXFSZ; a store cannot.
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new map of a page that the file still has (looked at just before, unless it is cut in between);
        // unmapped at once.
        unsafe {
            let Ok(page) = rustix::mm::mmap(core::ptr::null_mut(), SIZE, access, kind, self.file.as_fd(), 0) else {
                return;
            };
            if self.has_page() {
                page.cast::<u8>().add(at).cast::<AtomicU64>().as_ref().inspect(|to| to.store(word, Ordering::Release));
            }
            let _ = rustix::mm::munmap(page, SIZE);
        }
    }

    fn has_page(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_size >= SIZE as i64)
    }
}

/// A random number that cannot be guessed; not 0.
pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if length == bytes.len() { Ok(u64::from_ne_bytes(bytes).max(1)) } else { Err(Error::new(libc::EIO)) }
}

fn lock_soon(file: &InternalFd, bytes: Range<i64>, how: Lock) -> Result<bool> {
    for _ in 1..TRIES {
        if try_lock(file, bytes.clone(), how)? {
            return Ok(true);
        }
        let _ = rustix::thread::nanosleep(&PAUSE);
    }
    try_lock(file, bytes, how)
}

/// Whether any process is attached, through another open description than this one.
pub(in crate::index) fn is_anybody(control: &Control) -> bool {
    is_locked(control, 0..MEMBERS as i64, Lock::Exclusive)
}

/// A control file with its own name, for tests.
#[cfg(test)]
mod tests;
