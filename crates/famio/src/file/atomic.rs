//! The atomic file as a caller has it: opened, attached at its first write, closed clean or handed back to the kernel.

use super::background::Left;
use super::lease::Lease;
use super::plain::PlainReads;
use super::registry::{files, inherited};
use super::session::Session;
use super::{Access, Descriptors, Position, UserBuf, attach};
use crate::error::{Error, Result};
use crate::index::Claim;
use crate::journal::has_lost_its_name;
use crate::recovery;
use crate::settings::Settings;
use crate::sys::{check, syscall};
use crate::thread::{Guard, Mutex};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// Nothing was written yet: no journal, no index; reads go to the kernel.
const PLAIN: u8 = 0;
/// There is a session.
const ATTACHED: u8 = 1;
/// Handed back: every call goes to the kernel.
const DEMOTED: u8 = 2;
/// The process forked, and this is the child: the file is the parent's.
const DISOWNED: u8 = 3;

const LOST: &[u8] =
    b": handed back to the kernel because the name that it was opened by is gone; open it by its other name";

/// One file of this process. Everything written to it between two SYNCs is durable as a whole or, after a crash, gone as a
/// whole; what a SYNC survives depends on the domain (`docs/guarantees.md`).
///
/// All calls take `&self` and may be made from any thread.
pub struct AtomicFile {
    device: u64,
    inode: u64,
    path: CString,
    pub(super) settings: Settings,
    pub(super) fds: Descriptors,
    state: AtomicU8,
    session: AtomicPtr<Session>,
    inner: Mutex<Inner>,
    plain: PlainReads,
    pub(super) lease: Lease,
}

struct Inner {
    /// All sessions that this file has had, the current one last: calls may still be inside an older one.
    #[allow(clippy::vec_box, reason = "calls hold pointers to them")]
    sessions: Vec<Box<Session>>,
    claim: Option<Claim>,
}

impl AtomicFile {
    /// Makes the file behind `fd` atomic in this process: a descriptor of the program's own, open for what `access` says,
    /// without `O_APPEND`. A journal that a crash left is recovered first. The same file gives the same `AtomicFile`.
    ///
    /// # Errors
    /// `EBUSY`: another process has it. `EIO`: its journal can't be used; the message names both files. `EOPNOTSUPP`: its
    /// file system is not supported. `EINVAL`: not a regular file, or settings that would weaken durability unsaid.
    pub fn open(fd: BorrowedFd<'_>, access: Access, path: &CStr, settings: &Settings) -> Result<Arc<Self>> {
        let stat = rustix::fs::fstat(fd)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(Error::with(libc::EINVAL, format!("{}: not a regular file", path.to_string_lossy())));
        }
        let named = |e: Error| e.context(path.to_string_lossy());
        let (device, inode) = (stat.st_dev, stat.st_ino);
        // Held to the end: two threads that open the same file get the same one, recovered once.
        let mut files = files();
        if let Some(file) = files.iter().find(|f| (f.device, f.inode) == (device, inode)) {
            file.reopen(fd, access).map_err(named)?;
            return Ok(file.clone());
        }
        crate::map::guard::install()?;
        let mut claim = Claim::take(fd, device, inode, access == Access::Write).map_err(named)?;
        if let Err(e) = recovery::at_open(fd, access == Access::Write, &mut claim, settings) {
            claim.leave();
            return Err(named(e));
        }
        let file = Arc::new(Self {
            device,
            inode,
            path: path.to_owned(),
            settings: settings.clone(),
            fds: Descriptors::default(),
            state: AtomicU8::new(PLAIN),
            session: AtomicPtr::new(core::ptr::null_mut()),
            inner: Mutex::new(Inner { sessions: Vec::new(), claim: Some(claim) }),
            plain: PlainReads::default(),
            lease: Lease::default(),
        });
        file.fds.add(fd.as_raw_fd(), access);
        files.push(file.clone());
        Ok(file)
    }

    fn reopen(&self, fd: BorrowedFd<'_>, access: Access) -> Result<()> {
        if self.state.load(Ordering::Acquire) == DISOWNED {
            return Err(disowned());
        }
        if access == Access::Write
            && let Some(claim) = &mut self.inner().claim
        {
            claim.upgrade()?;
        }
        self.fds.add(fd.as_raw_fd(), access);
        Ok(())
    }

    fn inner(&self) -> Guard<'_, Inner> {
        self.inner.lock()
    }

    /// The atomic file of this process with that device and inode, if it is open.
    pub fn find(device: u64, inode: u64) -> Option<Arc<Self>> {
        files().iter().find(|f| (f.device, f.inode) == (device, inode)).cloned()
    }

    /// The path that it was first opened by: for messages.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// Device and inode.
    pub fn key(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// One more descriptor of the program's leads to this file, and may be used.
    pub fn add_descriptor(&self, fd: RawFd, access: Access) {
        self.fds.add(fd, access);
    }

    /// The program is about to close `fd`: to be called before the kernel closes it. With the last one the file is
    /// committed, settled and closed clean.
    ///
    /// # Errors
    /// Those of that last commit; the descriptor is gone all the same.
    pub fn remove_descriptor(&self, fd: RawFd) -> Result<()> {
        if !self.is_disowned() && !self.fds.is_last(fd) {
            self.lease_leaves(fd);
        }
        let result = if self.fds.is_last(fd) && self.state.load(Ordering::Acquire) != DISOWNED {
            let mut files = files();
            if self.fds.is_last(fd) {
                files.retain(|f| !core::ptr::eq(&**f, self));
                let closed = self.close_session();
                if closed.is_err()
                    && let Some(session) = self.session()
                {
                    // Who claims the file next recovers it: nothing of ours, the background least, may touch it then.
                    session.arena.shared().closed.store(1, Ordering::Release);
                }
                if let Some(claim) = self.inner().claim.take() {
                    claim.release();
                }
                closed
            } else {
                Ok(())
            }
        } else {
            Ok(())
        };
        self.fds.remove(fd, self.state.load(Ordering::Acquire) == ATTACHED);
        result
    }

    /// The session, if there is one.
    #[inline]
    fn session(&self) -> Option<&Session> {
        // SAFETY: points to a box in `inner.sessions`, which is only emptied with the file.
        unsafe { self.session.load(Ordering::Acquire).as_ref() }
    }

    /// Calls `work` with the session, if the file is attached.
    pub(super) fn with_session<T>(&self, work: impl FnOnce(&Session) -> T) -> Option<T> {
        (self.state.load(Ordering::Acquire) == ATTACHED).then(|| self.session()).flatten().map(work)
    }

    /// Whether this is a forked child, and the file the parent's.
    pub(super) fn is_disowned(&self) -> bool {
        self.state.load(Ordering::Acquire) == DISOWNED
    }

    /// The session for a write; made at the first.
    #[inline]
    fn session_for_write(&self) -> Result<Option<&Session>> {
        match self.state.load(Ordering::Acquire) {
            DEMOTED => Ok(None),
            DISOWNED => Err(disowned()),
            ATTACHED if let Some(session) = self.session() => Ok(Some(session)),
            _ => self.attach(),
        }
    }

    #[cold]
    fn attach(&self) -> Result<Option<&Session>> {
        let mut inner = self.inner();
        if self.state.load(Ordering::Acquire) == PLAIN {
            if self.fds.with(true, |fd| Ok(rustix::fs::fstat(fd)?.st_nlink == 0))? {
                // A file without a name does not outlive a crash: there is nothing to protect.
                self.state.store(DEMOTED, Ordering::Release);
                return Ok(None);
            }
            // Given up before an exec that failed: taken again, with an arena of its own.
            let mut arena = None;
            if inner.claim.is_none() {
                let take = |fd: BorrowedFd<'_>| Claim::take(fd, self.device, self.inode, true);
                inner.claim = Some(self.fds.with(true, take).map_err(|e| e.context(self.path.to_string_lossy()))?);
            } else {
                arena = inner.sessions.last().map(|session| session.arena.clone());
            }
            let Some(claim) = &inner.claim else { return Err(Error::new(libc::EBADF)) };
            let session = match attach::attach(&self.fds, claim, &self.settings, arena) {
                Err(e) if e.errno() == libc::ESTALE && self.fds.with(true, |fd| Ok(has_lost_its_name(fd)))? => {
                    // Its other names are not known: there is no folder to find a journal by after a crash.
                    crate::sys::notice_parts(&[self.path.to_bytes(), LOST]);
                    self.state.store(DEMOTED, Ordering::Release);
                    return Ok(None);
                }
                result => result.map_err(|e| e.context(self.path.to_string_lossy()))?,
            };
            let session = Box::new(session);
            self.session.store(core::ptr::from_ref(&*session).cast_mut(), Ordering::Release);
            inner.sessions.push(session);
            self.state.store(ATTACHED, Ordering::Release);
            super::background::start();
            self.with_session(|session| self.lease.begin(session));
        }
        drop(inner);
        match self.session() {
            None if !self.is_demoted() => Err(Error::new(libc::ESTALE)),
            session => Ok(session),
        }
    }

    /// No locks of ours may be held by this thread: a signal handler that interrupted a call of ours must not wait for it.
    #[inline]
    fn may_lock() -> Result<()> {
        if crate::thread::current().locks_held.get() == 0 { Ok(()) } else { Err(Error::new(libc::EDEADLK)) }
    }

    /// Calls `work` with the session, anew if the journal was closed meanwhile; `kernel` when the file is handed back.
    #[inline]
    fn writing<T>(&self, mut work: impl FnMut(&Session) -> Result<T>, kernel: impl FnOnce() -> Result<T>) -> Result<T> {
        Self::may_lock()?;
        loop {
            match self.session_for_write()? {
                None => return kernel(),
                Some(session) => match work(session) {
                    Err(e) if e.errno() == libc::ESTALE => core::hint::spin_loop(),
                    result => return result,
                },
            }
        }
    }

    /// Reads into `bufs` from `offset`; fewer bytes at the end of the file.
    ///
    /// # Errors
    /// `EFAULT`: a bad buffer. `EIO`: the file was cut by somebody else, or its medium is bad. Else the kernel's.
    ///
    /// # Safety
    /// The buffers may be overwritten; bad ones are an error, not a crash.
    pub unsafe fn read(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        if let (ATTACHED, Some(session)) = (self.state.load(Ordering::Acquire), self.session()) {
            // SAFETY: the caller's promise.
            match unsafe { session.read(&self.fds, offset, bufs) } {
                // Closed and attached again meanwhile.
                Err(e) if e.errno() == libc::ESTALE => {}
                result => return result,
            }
            // SAFETY: the caller's promise.
            return unsafe { self.read(offset, bufs) };
        }
        if self.state.load(Ordering::Acquire) == DISOWNED {
            return Err(disowned());
        }
        if self.state.load(Ordering::Acquire) == PLAIN
            // SAFETY: the caller's promise.
            && let Some(read) = unsafe { self.plain.read(&self.fds, offset, bufs) }
        {
            return Ok(read);
        }
        self.fds.with(false, |fd| {
            // SAFETY: the kernel checks the buffers.
            check(unsafe { syscall(libc::SYS_preadv, vector(fd, bufs, offset)) })
        })
    }

    /// Writes `bufs`; part of the open epoch until the next [`sync`](Self::sync). Gives where it wrote, and how much.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`: no room in the file system or the journal; what was committed is intact. `EFBIG`. `EFAULT`: a
    /// bad buffer. `EIO`: an earlier flush failed.
    ///
    /// # Safety
    /// The buffers may be read; bad ones are an error, not a crash.
    pub unsafe fn write(&self, at: Position, bufs: &[UserBuf]) -> Result<(u64, usize)> {
        self.writing(
            // SAFETY: the caller's promise.
            |session| unsafe { session.write(&self.fds, at, bufs) },
            || {
                let offset = match at {
                    Position::At(offset) => offset,
                    Position::End => self.size(),
                };
                self.fds.with(true, |fd| {
                    // SAFETY: the kernel checks the buffers.
                    let n = check(unsafe { syscall(libc::SYS_pwritev, vector(fd, bufs, offset)) })?;
                    Ok((offset, n))
                })
            },
        )
    }

    /// The logical size in bytes, with what was not committed yet.
    pub fn size(&self) -> u64 {
        match (self.state.load(Ordering::Acquire), self.session()) {
            (ATTACHED, Some(session)) => session.arena.shared().size(),
            _ => self.fds.with(false, |fd| Ok(rustix::fs::fstat(fd)?.st_size as u64)).unwrap_or(0),
        }
    }

    /// Sets the size; part of the open epoch. Growing shows zeros.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn set_size(&self, size: u64) -> Result<()> {
        self.writing(
            |session| session.set_size(&self.fds, size),
            || self.fds.with(true, |fd| Ok(rustix::fs::ftruncate(fd, size)?)),
        )
    }

    /// SYNC: everything written before the call is durable when it returns, as a whole.
    ///
    /// # Errors
    /// `EIO`: the flush failed; nothing of the epoch is durable, no more writes are taken.
    pub fn sync(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            PLAIN | DEMOTED => self.fds.with(false, |fd| Ok(rustix::fs::fdatasync(fd)?)),
            DISOWNED => Err(disowned()),
            _ => {
                Self::may_lock()?;
                match self.session() {
                    // Closed meanwhile: closing commits.
                    Some(session) => match session.sync(&self.fds) {
                        Err(e) if e.errno() == libc::ESTALE => Ok(()),
                        result => {
                            if self.lease.is_due(session) {
                                self.lease.ask(session);
                            }
                            result
                        }
                    },
                    None => Ok(()),
                }
            }
        }
    }

    /// When the file was last changed, where that is not yet on its inode.
    pub fn modified(&self) -> Option<libc::timespec> {
        let session = (self.state.load(Ordering::Acquire) == ATTACHED).then(|| self.session()).flatten()?;
        let [seconds, nanos] = session.arena.shared().modified.each_ref().map(|word| word.load(Ordering::Relaxed));
        (seconds != 0).then_some(libc::timespec { tv_sec: seconds as i64, tv_nsec: nanos as i64 })
    }

    /// Commits, settles, closes the journal clean, and leaves the file to the kernel: from here on it is an ordinary file.
    ///
    /// # Errors
    /// Those of the commit or of the journal's end; the file stays atomic then, and may take no more writes.
    pub fn demote(&self) -> Result<()> {
        self.leave(DEMOTED)
    }

    /// Whether the file was handed back.
    pub fn is_demoted(&self) -> bool {
        self.state.load(Ordering::Acquire) == DEMOTED
    }

    /// Commits, settles and closes the journal clean, as before a change of the file's name; the next write attaches anew.
    ///
    /// # Errors
    /// Those of the commit or of the journal's end; the journal stays then, and the file may take no more writes.
    pub fn settle(&self) -> Result<()> {
        self.close_session()
    }

    /// Commits, settles and closes the journal clean; the next write attaches anew.
    pub(super) fn close_session(&self) -> Result<()> {
        self.leave(PLAIN)
    }

    fn leave(&self, to: u8) -> Result<()> {
        let inner = self.inner();
        let state = self.state.load(Ordering::Acquire);
        if state == ATTACHED
            && let Some(session) = self.session()
        {
            Self::may_lock()?;
            self.lease.rest();
            let closed = session.close(&self.fds);
            self.lease_ends(closed.is_ok());
            closed.map_err(|e| e.context(self.path.to_string_lossy()))?;
            self.plain.forget_size();
            self.session.store(core::ptr::null_mut(), Ordering::Release);
        }
        if state != DISOWNED {
            self.state.store(to, Ordering::Release);
        }
        drop(inner);
        Ok(())
    }

    /// One round of settling, by the background.
    pub(super) fn settle_some(&self) -> Result<Left> {
        match self.session() {
            Some(session) if self.state.load(Ordering::Acquire) == ATTACHED => session.settle_some(&self.fds),
            _ => Ok(Left::Nothing),
        }
    }
}

impl core::fmt::Debug for AtomicFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AtomicFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The arguments of `preadv` and `pwritev`: on 64-bit Linux the offset is one word, the next is ignored.
fn vector(fd: BorrowedFd<'_>, bufs: &[UserBuf], offset: u64) -> [usize; 6] {
    [fd.as_raw_fd() as usize, bufs.as_ptr() as usize, bufs.len(), offset as usize, 0, 0]
}

fn disowned() -> Error {
    Error::with(
        libc::EBUSY,
        "an atomic file belongs to the process that opened it; a forked child has to open it itself",
    )
}

/// Closes every file of the process clean: commits, settles, takes the journals away. For a clean exit and before `exec`; a
/// later write attaches again. Gives the first error; the other files are closed all the same.
pub fn close_all() -> Result<()> {
    let all: Vec<_> = files().clone();
    let mut result = Ok(());
    for file in all {
        let closed = file.close_session();
        if result.is_ok() {
            result = closed;
        }
    }
    result
}

/// Gives every claim up as well, after [`close_all`]: nothing of ours is left in `/dev/shm`. For the end of the process, and
/// before `exec`.
pub fn release_all() {
    for file in files().iter() {
        if let Some(claim) = file.inner().claim.take() {
            claim.release();
        }
    }
}

/// In a forked child: every file that the parent had open answers `EBUSY` from now on, and nothing of the parent's is
/// touched. The child may open them itself once the parent has closed them.
pub fn disown_all() {
    for file in inherited() {
        file.state.store(DISOWNED, Ordering::Release);
        file.fds.forget();
        // Closing our copies leaves the parent's lock alone; keeping them would outlive the parent.
        if let Some(mut inner) = file.inner.try_lock() {
            inner.claim = None;
            inner.sessions.iter().for_each(|session| session.arena.forget_file());
        }
    }
}
