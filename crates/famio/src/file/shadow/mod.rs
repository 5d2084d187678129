//! Files that the program maps shared: a **shadow**, memory with the file's bytes as they are now, is what it maps in place of
//! the file. What it stores there is compared with the file at a SYNC, and what differs is written to the open epoch, a granule
//! at a time. So no store of the program's reaches the file before its epoch is committed, on any domain; there is no signal
//! handler, and no store or system call fails that would not on a file (design, "Mapped regions").
//!
//! While a file has a shadow, reads come from it, and every write goes to the file and to the shadow under one lock.

mod maps;
mod memory;
mod ranges;
mod stores;
mod watch;

pub(crate) use maps::{MapRequest, Mapped, discard, map, msync, protect, remap};
pub(crate) use ranges::{any, disown, files, may_touch, touches};

pub(super) use memory::Shadow;

use super::atomic::AtomicFile;
use super::session::{SHADOWED, Session};
use super::{Access, UserBuf};
use crate::error::{Error, Result};
use crate::sys::high_duplicate;
use core::ops::Range;
use core::sync::atomic::Ordering;
use memory::fill;
pub(super) use memory::told;
use rustix::fs::OFlags;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

const UNKEPT: &[u8] =
    b": closed, but mapped, and no descriptor is left to keep it open: what is stored in its maps from now on is lost";

/// Before a fork: a child shares the maps, and what it stores is the parent's to commit.
pub(crate) fn before_fork() {
    if any() {
        ranges::lock().all().for_each(watch::end);
    }
}

/// Whether the program has maps of this file that are not the kernel's.
pub(crate) fn is_mapped(key: (u64, u64)) -> bool {
    ranges::has(key, |range| range.shadow)
}

impl AtomicFile {
    /// The shadow, when it has all bytes.
    #[inline]
    pub(super) fn shadow(&self) -> Option<&Shadow> {
        if !self.shadowed.load(Ordering::Acquire) {
            return None;
        }
        self.shadow.get().map(|shadow| &**shadow).filter(|shadow| shadow.filled.load(Ordering::Acquire))
    }

    fn set_shadow(&self, made: Shadow) -> &Shadow {
        let shadow = self.shadow.get_or_init(|| Box::new(made));
        self.shadowed.store(true, Ordering::SeqCst);
        shadow
    }

    /// From now on who changes the file is told that it has a shadow, if it has one. Nobody ends or begins a session meanwhile.
    pub(super) fn tell_of_shadow(&self, session: &Session) {
        if self.shadow.get().is_some() {
            session.arena.shared().mapped.fetch_or(1, Ordering::Release);
        }
    }

    /// The shadow, made now if there is none; attaches the file. `None`: it was handed back.
    fn need_shadow(&self) -> Result<Option<&Shadow>> {
        if self.shadow().is_none() {
            // By attaching, if there are maps of the file itself.
            let Some(session) = self.session_for_write()? else { return Ok(None) };
            if self.shadow().is_none() {
                let made = Shadow::new(self.size())?;
                let shadow = self.set_shadow(made);
                let _changing = shadow.lock();
                // What changes the file from here on waits for that lock. What came in before has left then, and is seen.
                if let Some(session) = &self.inner().session {
                    self.tell_of_shadow(session);
                }
                drop(session.close_gate(&self.fds)?);
                drop(session);
                if !shadow.filled.load(Ordering::Acquire) {
                    shadow.resize(self.size())?;
                    self.copy_to(shadow, 0..u64::MAX)?;
                    shadow.filled.store(true, Ordering::Release);
                }
            }
        }
        Ok(self.shadow())
    }

    /// As [`need_shadow`](Self::need_shadow), for a map: nobody knows what of it the program relies on, so nothing of it is
    /// rolled back.
    fn need_shadow_for_good(&self) -> Result<Option<&Shadow>> {
        if self.need_shadow()?.is_some() {
            self.leave_dead_behind()?;
            self.rely_on(0..u64::MAX);
        }
        self.need_shadow()
    }

    /// A session has taken up what others wrote, and nobody is in it yet: the shadow shows that, too.
    pub(super) fn show_in_shadow(&self, session: &Session) -> Result<()> {
        let Some(shadow) = self.shadow() else { return Ok(()) };
        let size = session.arena.shared().size();
        shadow.resize(size)?;
        fill(shadow.memory()?, 0..size, |at, piece| {
            // SAFETY: the piece is ours.
            unsafe { session.read(&self.fds, at, &[UserBuf::of(piece)]) }
        })
    }

    /// Other processes may change the file: before its next map the shadow is to be filled again. It has none.
    pub(super) fn shadow_is_stale(&self) {
        if let Some(shadow) = self.shadow.get() {
            shadow.filled.store(false, Ordering::SeqCst);
        }
    }

    /// Before the file is attached, with maps of it as it is: those get the shadow. Nobody writes to it yet.
    pub(super) fn shadow_for_maps(&self) -> Result<()> {
        if !ranges::has(self.key(), |range| !range.shadow) {
            return Ok(());
        }
        if self.shadow().is_none() {
            let size = self.fds.with(false, |fd| Ok(rustix::fs::fstat(fd)?.st_size as u64))?;
            let shadow = match self.shadow.get() {
                Some(stale) => stale,
                None => self.set_shadow(Shadow::new(size)?),
            };
            shadow.resize(size)?;
            let read =
                |fd: BorrowedFd<'_>| fill(shadow.memory()?, 0..size, |at, piece| Ok(rustix::io::pread(fd, piece, at)?));
            self.fds.with(false, read)?;
            shadow.filled.store(true, Ordering::Release);
        }
        // Not full: there was no memory for it.
        let shadow = self.shadow().ok_or(Error::new(libc::ENOMEM))?;
        maps::replace(self.key(), |writable| shadow.descriptor(writable))
    }

    /// Brings part of the file to the shadow, as far as the file reaches. Its lock is held.
    fn copy_to(&self, shadow: &Shadow, range: Range<u64>) -> Result<()> {
        let range = range.start..range.end.min(shadow.size());
        // SAFETY: the piece is ours.
        fill(shadow.memory()?, range, |at, piece| unsafe { self.read_file(at, &[UserBuf::of(piece)]) })
    }

    /// A change of the file's bytes: of the shadow as well, if there is one, which the session says (`SHADOWED`). `again` is
    /// `change` once more, for that case: so a caller can have its own change in line.
    #[inline(always)]
    pub(super) fn changing<T>(
        &self,
        change: impl FnOnce() -> Result<T>,
        again: impl FnOnce() -> Result<T>,
        changed: impl FnOnce(&T) -> Range<u64>,
    ) -> Result<T> {
        match change() {
            Err(e) if e.errno() == SHADOWED => self.change_both(again, changed),
            done => done,
        }
    }

    #[cold]
    #[inline(never)]
    fn change_both<T>(&self, change: impl FnOnce() -> Result<T>, changed: impl FnOnce(&T) -> Range<u64>) -> Result<T> {
        self.leave_dead_behind()?;
        let Some(shadow) = self.shadow.get() else {
            let _told = told();
            let done = change()?;
            self.rely_on(changed(&done));
            return Ok(done);
        };
        let _changing = shadow.lock();
        let done = change()?;
        let range = changed(&done);
        self.rely_on(range.clone());
        // Handed back by this very change: then its maps are the kernel's.
        if !self.is_demoted() {
            self.follow(shadow, range)?;
        }
        Ok(done)
    }

    fn follow(&self, shadow: &Shadow, range: Range<u64>) -> Result<()> {
        let old = shadow.size();
        let followed = shadow.resize(self.size()).and_then(|()| self.copy_to(shadow, range.start.min(old)..range.end));
        followed.map_err(|e| {
            // File and shadow differ: back to the last SYNC, rather than a commit of what nobody wrote.
            self.with_session(|session| session.arena.shared().poisoned.store(1, Ordering::Release));
            let why = format!("what was written could not be shown in its maps ({e}): no more writes are taken");
            Error::with(libc::EIO, why)
        })
    }

    /// Reads from the shadow.
    ///
    /// # Safety
    /// As [`AtomicFile::read`].
    #[cold]
    pub(super) unsafe fn read_shadow(&self, shadow: &Shadow, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        if self.is_disowned() {
            return Err(super::process::disowned());
        }
        // SAFETY: the caller's promise.
        unsafe { shadow.read(offset, bufs) }
    }

    /// The program closes its last descriptor: if it has the file mapped, one of ours stays, so that what it stores is not lost.
    pub(super) fn keep_for_maps(&self, fd: RawFd) {
        if !ranges::has(self.key(), |range| range.shadow || range.may_store) {
            return;
        }
        // SAFETY: the program's descriptor, which it closes after this.
        let Ok(keeper) = high_duplicate(unsafe { BorrowedFd::borrow_raw(fd) }) else {
            crate::sys::notice_parts(&[self.path.to_bytes(), UNKEPT]);
            return;
        };
        let writable = rustix::fs::fcntl_getfl(&keeper).is_ok_and(|flags| flags.contains(OFlags::RDWR));
        let access = if writable { Access::Write } else { Access::Read };
        self.fds.add(keeper.as_raw_fd(), access);
        *self.keeper.lock() = Some(keeper);
    }

    /// Whether a map of the program's is, or may become, writable: that takes a writable descriptor.
    pub(super) fn may_be_stored_to(&self) -> bool {
        ranges::has(self.key(), |range| range.may_store)
    }

    /// A map of the file is gone. With the last one the descriptor that was kept for it goes, too.
    fn maps_are_gone(&self) -> Result<()> {
        if ranges::has(self.key(), |_| true) {
            return Ok(());
        }
        let Some(keeper) = self.keeper.lock().take() else { return Ok(()) };
        if self.fds.is_last(keeper.as_raw_fd()) {
            return self.remove_descriptor(keeper.as_raw_fd());
        }
        // The program has opened the file again, and may hold locks that a close of ours would drop.
        self.fds.leave(keeper);
        Ok(())
    }
}
