//! The control file of an atomic file, by which its processes find each other: a page that all of them map (`door`), and
//! bytes that they lock. It lies beside the file's journal, and only those can open it who may write the file: what it says and
//! who locks it is theirs to decide, and nobody else's. `journal::control` finds and makes it.

use super::control_page::{CHANGE, MAGIC, MEMBERS, Page, SESSION, SIZE, TRAVELS, UNOWNED};
use super::totals::Totals;
use crate::beside::is_beside_name;
use crate::error::{Error, Result};
use crate::sys::locks::{Lock, is_locked, try_lock, unlock};
use crate::sys::{InternalFd, namespaces, path_of, read_at, shm, write_at};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::Timespec;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The byte that the process locks which may change the file, or recovers it: its claim.
const CLAIM: Range<i64> = (1 << 20)..(1 << 20) + 1;
/// The byte that a process locks which attaches or detaches, for a moment.
const ATTACHING: Range<i64> = CLAIM.end..CLAIM.end + 1;

/// Tries and pauses before a lock counts as held: another process may have it for a moment.
const TRIES: u32 = 30;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Rounds of [`TRIES`] in which a process that attaches waits for another: about four seconds.
const ROUNDS: u32 = 130;

/// The process that may change a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its process id, in its own PID namespace.
    pub pid: u32,
    /// That is another one than this process's, as in a container: the number means nothing here.
    pub is_contained: bool,
}

impl Owner {
    /// Its process id, if that means something to this process.
    pub fn pid_here(self) -> Option<u32> {
        (!self.is_contained).then_some(self.pid)
    }

    pub(super) fn me() -> Self {
        Self { pid: rustix::process::getpid().as_raw_nonzero().get() as u32, is_contained: false }
    }

    /// Of this process.
    pub(super) fn word(self) -> u64 {
        u64::from(namespaces::of_process(self.pid)) << 32 | u64::from(self.pid)
    }

    fn of_word(word: u64) -> Option<Self> {
        let (pid, namespace) = (word as u32, (word >> 32) as u32);
        let is_contained = ![0, namespaces::of_process(Self::me().pid)].contains(&namespace);
        (pid != 0).then_some(Self { pid, is_contained })
    }
}

impl core::fmt::Display for Owner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let of = if self.is_contained { " of another PID namespace (a container)" } else { "" };
        write!(f, "process {}{of}", self.pid)
    }
}

/// An open control file.
pub(crate) struct Control {
    file: InternalFd,
}

/// This process attaches or detaches, and no other one does, until this is dropped.
pub(crate) struct Attaching<'a>(&'a Control);

impl Drop for Attaching<'_> {
    fn drop(&mut self) {
        unlock(&self.0.file, ATTACHING);
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Control {
    /// An open file description of its own of the same file.
    pub(super) fn open_again(&self) -> Result<InternalFd> {
        self.file.open_again(OFlags::RDWR)
    }

    /// An open file of at least [`SIZE`] bytes, whose rights were checked.
    pub fn new(file: InternalFd) -> Self {
        Self { file }
    }

    /// Its device and inode.
    pub fn identity(&self) -> (u64, u64) {
        self.file.identity()
    }

    /// Whether a process that comes by its name finds this very file.
    pub fn has_name(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 1)
    }

    /// Where it is, for messages.
    pub fn path(&self) -> String {
        path_of(self.file.as_fd()).map_or("a control file".into(), |path| path.display().to_string())
    }

    /// Waits until no other process attaches or detaches. `EAGAIN` after some seconds: one has stopped there.
    pub fn attaching(&self) -> Result<Attaching<'_>> {
        for _ in 0..ROUNDS {
            if lock_soon(&self.file, ATTACHING, Lock::Exclusive)? {
                return Ok(Attaching(self));
            }
        }
        Err(Error::with(libc::EAGAIN, format!("{}: another process does not end its attach", self.path())))
    }

    /// As [`attaching`](Self::attaching), if that is so soon.
    pub fn try_attaching(&self) -> Option<Attaching<'_>> {
        matches!(lock_soon(&self.file, ATTACHING, Lock::Exclusive), Ok(true)).then_some(Attaching(self))
    }

    /// Takes the claim's byte.
    pub(super) fn lock_claim(&self, how: Lock, soon: bool) -> Result<bool> {
        if soon { lock_soon(&self.file, CLAIM, how) } else { try_lock(&self.file, CLAIM, how) }
    }

    pub(super) fn unlock_claim(&self) {
        unlock(&self.file, CLAIM);
    }

    /// Whether another description has the claim, so that nobody can have it with us.
    pub fn is_claimed(&self) -> bool {
        is_locked(&self.file, CLAIM, Lock::Shared)
    }

    /// The process that has the claim; `None`: nobody has it, or it can't be told.
    pub fn owner(&self) -> Option<Owner> {
        let word = self.word(offset_of!(Page, claimant));
        Owner::of_word(word).filter(|_| self.is_claimed())
    }

    /// Whether processes have the file open that share memory in another folder than this one.
    pub fn is_elsewhere(&self) -> bool {
        let of = [offset_of!(Page, shm), offset_of!(Page, shm_inode)].map(|at| self.word(at));
        self.word(offset_of!(Page, magic)) == MAGIC && of != <[u64; 2]>::from(shm::identity()) && is_anybody(self)
    }

    /// The error of who finds that.
    pub fn kept_out(&self) -> Error {
        let what = format!(
            "in use as an atomic file by processes that share memory in another folder than {}, perhaps in another container; \
             give all of them one folder on tmpfs by the setting shm (FAMIO_SHM, famio run --shm DIR); its control file is {}",
            shm::folder(),
            self.path()
        );
        Error::with(libc::EBUSY, what)
    }

    /// Whether a process has a session, died with one, or has left an open epoch.
    pub fn is_in_use(&self) -> bool {
        Page::is_in_use(self.word(offset_of!(Page, magic)), self.word(offset_of!(Page, state)))
    }

    /// Changes with each session that begins or ends.
    pub fn changes(&self) -> u64 {
        self.word(offset_of!(Page, state))
    }

    /// Whether processes that have the file open have a session that none of them owns at this moment.
    pub fn has_unowned_session(&self) -> bool {
        let unowned = SESSION | UNOWNED;
        self.is_in_use() && self.word(offset_of!(Page, state)) & unowned == unowned && is_anybody(self)
    }

    /// How often a process gave its turn to another one since the file was made. It wraps around.
    pub fn hand_overs(&self) -> u32 {
        let mut word = [0; 4];
        let _ = read_at(&self.file, offset_of!(Page, hand_overs) as u64, &mut word);
        u32::from_ne_bytes(word)
    }

    /// Whether an open epoch travels that stays, though all processes were killed.
    pub fn has_kept_epoch(&self) -> bool {
        let [state, kept, epoch] =
            [offset_of!(Page, state), offset_of!(Page, kept), offset_of!(Page, epoch)].map(|at| self.word(at));
        self.is_in_use() && state & TRAVELS != 0 && kept != 0 && epoch >= kept
    }

    /// Nothing travels any more. By who has the claim, and wants the file without it.
    pub fn drop_epoch(&self) {
        let state = self.word(offset_of!(Page, state));
        if self.is_in_use() && state & TRAVELS != 0 {
            self.set_word(offset_of!(Page, state), (state & !TRAVELS).wrapping_add(CHANGE));
            self.set_word(offset_of!(Page, kept), 0);
            let (key, number) = (self.word(offset_of!(Page, key)), self.word(offset_of!(Page, epoch)));
            let path = Page::path(self.identity(), key, number, "epoch");
            let _ = rustix::fs::unlinkat(CWD, &*path, AtFlags::empty());
        }
    }

    /// The name of the arena whose number it has, in the folder of shared memory; `None`: there is none.
    pub(in crate::index) fn arena_path(&self) -> Option<String> {
        let number = self.word(offset_of!(Page, arena));
        (number != 0).then(|| Page::path(self.identity(), self.word(offset_of!(Page, key)), number, "arena"))
    }

    /// Opens the arena of the last session, for reading. `None`: there is none.
    ///
    /// # Errors
    /// `EACCES`: it is another user's.
    pub fn open_arena(&self) -> Result<Option<InternalFd>> {
        let Some(path) = self.arena_path() else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match crate::sys::openat(CWD, &*path, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// Asks the processes of the session not to write back for so many nanoseconds, where this process may.
    pub fn hold_write_backs(&self, nanoseconds: u64) {
        self.set_until(offset_of!(Totals, hold), nanoseconds);
    }

    /// Lets the next SYNC of the session end in so many nanoseconds at the earliest, and nobody write meanwhile; 0: no longer.
    pub fn freeze(&self, nanoseconds: u64) {
        self.set_until(offset_of!(Totals, freeze), nanoseconds);
    }

    fn set_until(&self, word: usize, nanoseconds: u64) {
        let Some(path) = self.arena_path() else { return };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(arena) = crate::sys::openat(CWD, &*path, flags, Mode::empty()) else { return };
        let mut magic = [0; 8];
        let is_arena = read_at(&arena, 0, &mut magic).is_ok_and(|length| length == 8);
        if is_arena && u64::from_ne_bytes(magic) == super::shared::MAGIC {
            let until = if nanoseconds > 0 { crate::sys::monotonic_now() + nanoseconds } else { 0 };
            let at = offset_of!(super::Shared, totals) + word;
            let _ = write_at(&arena, at as u64, &until.to_ne_bytes());
        }
    }

    pub(super) fn set_claimant(&self, owner: Owner) {
        self.set_word(offset_of!(Page, claimant), owner.word());
    }

    /// It names no arena from now on; the one that it named is removed, if this process may.
    pub(super) fn forget_arena(&self) {
        if let Some(path) = self.arena_path() {
            let _ = rustix::fs::unlinkat(CWD, &*path, AtFlags::empty());
            self.set_arena(0);
        }
    }

    /// As [`forget_arena`](Self::forget_arena), of an arena that has nothing to say any more. Where this process may not remove it
    /// (it is another user by now, or has another root) it stays named, for the next one that may.
    pub(super) fn remove_arena(&self) {
        let Some(path) = self.arena_path() else { return };
        let removed = rustix::fs::unlinkat(CWD, &*path, AtFlags::empty());
        if matches!(removed, Ok(()) | Err(Errno::NOENT)) && !shm::is_gone() {
            self.set_arena(0);
        }
    }

    pub(super) fn set_arena(&self, number: u64) {
        self.set_word(offset_of!(Page, arena), number);
    }

    /// A random number that makes the names of what belongs to this file such that nobody else can guess them.
    pub(super) fn key(&self) -> Result<u64> {
        match self.word(offset_of!(Page, key)) {
            0 => {
                let key = random()?;
                self.set_word(offset_of!(Page, key), key);
                Ok(key)
            }
            key => Ok(key),
        }
    }

    /// A word of the page. Of a file that another process has made shorter: 0.
    fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        let _ = read_at(&self.file, at as u64, &mut word);
        u64::from_ne_bytes(word)
    }

    fn set_word(&self, at: usize, word: u64) {
        if crate::sys::file_size_limit() >= SIZE as u64 {
            let _ = write_at(&self.file, at as u64, &word.to_ne_bytes());
            return;
        }
        // A write would be a SIGXFSZ; a store is not.
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new map, of at least a page as long as nobody cuts the file, which is looked at just before; unmapped at once.
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

    /// Takes its name away, and that of the `.famio/` around it, if nothing else is in there. By the last process, while no
    /// other one attaches. Best effort: one that stays is used again, or removed by the next.
    pub(super) fn remove_name(&self) {
        let Ok(path) = path_of(self.file.as_fd()) else { return };
        let Ok(own) = rustix::fs::fstat(&self.file) else { return };
        let same = rustix::fs::lstat(&path).is_ok_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino));
        if same && rustix::fs::unlinkat(CWD, &path, AtFlags::empty()).is_ok() {
            remove_folder(&path);
        }
    }

    /// Where it was before it got another name: takes the `.famio/` away, if nothing else is in there.
    pub fn remove_folder_at(&self, old: &Path) {
        remove_folder(old);
    }

    /// After a recovery: the file goes if no process is attached, and none has a claim; and with it what killed processes shared.
    pub fn remove_if_unused(&self) {
        let Some(_attaching) = self.try_attaching() else { return };
        let is_needed = self.arena_path().is_some() || self.has_kept_epoch();
        if !is_needed && !is_locked(&self.file, 0..CLAIM.end, Lock::Exclusive) {
            self.remove_shared_memory();
            self.remove_name();
        }
    }

    /// Removes the epoch and the shared shadow that it names, which no process has any more.
    fn remove_shared_memory(&self) {
        if self.word(offset_of!(Page, magic)) != MAGIC {
            return;
        }
        let key = self.word(offset_of!(Page, key));
        let named = [
            (offset_of!(Page, epoch), "epoch"),
            (offset_of!(Page, unfinished), "epoch"),
            (offset_of!(Page, shadow), "shadow"),
        ];
        for (number, what) in named.map(|(at, what)| (self.word(at), what)) {
            if number != 0 {
                let path = Page::path(self.identity(), key, number, what);
                let _ = rustix::fs::unlinkat(CWD, &*path, AtFlags::empty());
            }
        }
    }

    /// As [`remove_if_unused`](Self::remove_if_unused), of one in `folder` beside which no journal lies: an arena that it names has
    /// nothing to say.
    pub fn remove_unused_from(&self, folder: BorrowedFd<'_>, name: &CStr) {
        let Some(_attaching) = self.try_attaching() else { return };
        if !self.has_kept_epoch() && !is_locked(&self.file, 0..CLAIM.end, Lock::Exclusive) {
            self.remove_arena();
            self.remove_shared_memory();
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    }
}

fn remove_folder(file: &Path) {
    let Some(folder) = file.parent() else { return };
    let is_beside = folder.file_name().is_some_and(is_beside_name);
    if is_beside {
        let _ = rustix::fs::unlinkat(CWD, folder, AtFlags::REMOVEDIR);
    }
}

/// A number that nobody can guess; not 0.
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

/// A control file with a name of its own, for tests.
/// Whether a process is at the file's control page, by whatever description but this one.
pub(super) fn is_anybody(control: &Control) -> bool {
    is_locked(control, 0..MEMBERS as i64, Lock::Exclusive)
}

#[cfg(test)]
pub(super) struct TestControl(std::path::PathBuf);

#[cfg(test)]
pub(super) fn for_test() -> TestControl {
    let path = format!("/dev/shm/famio-test-{}-{:x}.control", std::process::id(), random().unwrap());
    std::fs::write(&path, [0; SIZE]).unwrap();
    TestControl(path.into())
}

#[cfg(test)]
impl TestControl {
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Another description of it, made anew if it is gone.
    pub fn open(&self) -> InternalFd {
        let options = || std::fs::File::options().read(true).write(true).create(true).truncate(false).clone();
        InternalFd::adopt(options().open(&self.0).unwrap().into()).unwrap()
    }

    pub fn again(&self) -> Control {
        Control::new(self.open())
    }
}

#[cfg(test)]
impl Drop for TestControl {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_name_is_gone_or_another_files_is_known() {
        let file = for_test();
        let control = file.again();
        assert!(control.has_name());
        std::fs::remove_file(file.path()).unwrap();
        assert!(!control.has_name());
        let new = file.again();
        control.remove_name(); // not that of another file
        assert!(new.has_name() && !control.has_name());
        new.remove_name();
        assert!(!new.has_name());
    }

    #[test]
    fn it_goes_once_nobody_is_there() {
        let file = for_test();
        let (first, second) = (file.again(), file.again());
        assert!(first.lock_claim(Lock::Exclusive, false).unwrap());
        second.remove_if_unused();
        assert!(first.has_name());
        first.unlock_claim();
        second.remove_if_unused();
        assert!(!first.has_name());
    }
}
