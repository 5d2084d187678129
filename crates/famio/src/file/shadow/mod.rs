//! Files that the program maps shared. In place of the file, the program maps a **shadow**: memory with the file's
//! present bytes. At a SYNC the shadow is compared with the file, and what differs is written to the open epoch, a
//! granule at a time. So no store of the program reaches the file before its epoch is committed, on any domain. There
//! is no signal handler, and no store or system call fails that would not fail on a file (docs/mapping.md).
//!
//! While a file has a shadow, reads come from it, and every write goes to the file and to the shadow under one lock.
// Cycle: loads, mapped_range: a map carries its map-ahead, which is begun for a map

mod after_exec;
mod copies;
mod cow;
mod isolated;
mod loads;
mod mapped_range;
mod maps;
mod places;
mod ranges;
pub(super) mod request;
mod shared;
mod stores;
mod switch_maps;
mod unattached;
mod watch;

use super::atomic::disowned;
pub(crate) use copies::{Bytes, copy, file_at, is_mapped_at, string_length};
pub(crate) use isolated::may_drop_copies;
pub(crate) use maps::{
    Mapped, Part, discard, discard_telling, map, msync, outside_private, parts, protect, remap, too_large,
};
pub(crate) use ranges::{
    any, any_private, disown, files, forget_inherited, is_mapped, may_have_map, may_have_stores, may_lose_page_tables,
    may_touch, touches,
};
pub(crate) use request::MapRequest;

pub(super) use crate::file::state::shadow_slot::Slot;

use super::atomic::AtomicFile;
use super::session::Session;
use super::{Access, UserBuf};
use crate::error::{Error, Result};
use crate::file::state::shadow_memory::Shadow;
use crate::file::state::shadow_pages::{PAGE, PIECE, check_size, fill, fill_by, is_zeros, put_but_zeros, size_limit};
use crate::index::follow_up;
use crate::journal::has_lost_its_name;
use crate::rule::{Rule, holds};
use crate::sys::{InternalFd, high_duplicate};
use core::ops::Range;
use core::sync::atomic::Ordering;
use rustix::fs::OFlags;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

const UNKEPT: &[u8] =
    b": closed, but mapped, and no descriptor is left to keep it open: its maps do not follow it, and what is stored in them from now on is lost";

/// Before a fork: a child shares the maps, and the parent commits what the child stores.
pub(crate) fn before_fork() {
    if any() {
        ranges::lock().before_fork();
    }
}

/// Runs `work` with a piece of memory for bytes of the range.
fn in_piece(range: &Range<u64>, work: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
    // On the heap: the stack may be small, and `work` needs some of it.
    work(&mut vec![0; PIECE.min(range.end.saturating_sub(range.start) as usize)])
}

fn is_writable(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

impl AtomicFile {
    /// The shadow, if it has all bytes.
    #[inline]
    pub(super) fn shadow(&self) -> Option<&Shadow> {
        if !self.shadowed.load(Ordering::Acquire) {
            return None;
        }
        self.shadow.get().filter(|shadow| shadow.filled.load(Ordering::Acquire))
    }

    /// From now on changes of the file also update the shadow, if there is one. No thread ends or begins a session
    /// meanwhile.
    pub(super) fn enable_shadow_follow_up(&self, session: &Session) {
        if self.shadow.get().is_some() {
            session.arena.shared().follow_up.fetch_or(follow_up::SHADOW, Ordering::Release);
        }
    }

    /// The shadow, made now if there is none; attaches the file. `None`: it was demoted.
    fn need_shadow(&self) -> Result<Option<&Shadow>> {
        let _in_progress = self.ownership.begin_map();
        while self.shadow().is_none() {
            self.roll_back_dead()?; // impossible under the locks below
            let _changing = self.shadow.lock();
            // Attaching makes it, if the file itself is mapped, or other processes map it.
            let Some(session) = self.session_for_write()? else { return Ok(None) };
            if self.shadow().is_some() {
                break;
            }
            let inner = self.inner();
            let Some(of) = &inner.session else { continue };
            let shadow = match self.shadow.get() {
                Some(stale) if self.is_to_stay(stale) => stale,
                _ => self.new_shadow_or_cow(self.size())?,
            };
            // Later changes of the file wait for the lock. Earlier ones are complete then, and are seen.
            self.enable_shadow_follow_up(of);
            drop(inner);
            drop(session.close_gate(&self.fds)?);
            drop(session);
            match shadow.cow_maps() {
                Some(cow) => self.follow_in_maps(shadow, cow, 0..u64::MAX, self.size())?,
                None => {
                    shadow.resize(self.size())?;
                    self.copy_to(shadow, 0..u64::MAX)?;
                }
            }
            shadow.filled.store(true, Ordering::Release);
            self.share_shadow();
        }
        Ok(self.shadow())
    }

    /// Whether this shadow, which has to be filled, is to be used again: others have never seen it, or this process
    /// has maps of it.
    fn is_to_stay(&self, stale: &Shadow) -> bool {
        let fits = stale.cow_maps().is_some() || check_size(self.size(), self.map_limit()).is_ok();
        stale.number().is_none() && fits || is_mapped(self.key())
    }

    /// Before a map in which the program may store, in a file of a group: what is stored in memory that processes share
    /// is the owner's to commit. So this process has ownership, and keeps it as long as it has such maps; until they
    /// are in the list, the caller keeps it.
    fn own_for_stores(&self) -> Result<()> {
        if self.settings.group.is_none() {
            return Ok(());
        }
        self.roll_back_dead()?; // that gives up ownership
        drop(self.inner()); // a hand-over that has not seen that it is kept is over then
        Ok(self.session_for_write().map(drop)?)
    }

    /// As [`need_shadow`](Self::need_shadow), for a map.
    fn need_shadow_for_good(&self) -> Result<Option<&Shadow>> {
        if self.need_shadow()?.is_some() {
            self.roll_back_dead()?;
            self.end_tenures_if_stored_to();
        }
        self.need_shadow()
    }

    /// A session has taken up what others wrote, and no thread is inside yet: copies that to the shadow.
    pub(super) fn show_in_shadow(&self, session: &Session) -> Result<()> {
        match self.shadow() {
            Some(shadow) if !self.has_shared_shadow() => self.fill_from(shadow, session),
            _ => Ok(()), // a shared shadow has it already
        }
    }

    /// Copies the session's bytes to the shadow. No thread is inside the session yet.
    fn fill_from(&self, shadow: &Shadow, session: &Session) -> Result<()> {
        let size = session.arena.shared().size();
        if shadow.cow_maps().is_some() {
            // With maps, no other process had the file; without maps, there is nothing to show the bytes in.
            shadow.set_size(size);
            return Ok(());
        }
        shadow.resize(size)?;
        fill(shadow.memory()?, 0..size, |at, piece| {
            // SAFETY: our piece.
            Ok(unsafe { session.read(&self.fds, at, &[UserBuf::of(piece)]) }?)
        })
    }

    /// Other processes may change the file: before its next map a shadow of this process alone is to be filled again.
    /// It has no maps.
    pub(super) fn shadow_is_stale(&self) {
        if let Some(shadow) = self.shadow.get()
            && !self.has_shared_shadow()
            && holds(Rule::MapsAreFilledAnew)
        {
            shadow.filled.store(false, Ordering::SeqCst);
        }
    }

    /// Before the file is attached: its maps become maps of the shadow. No thread writes to it yet.
    pub(super) fn shadow_for_maps(&self) -> Result<()> {
        if !ranges::has(self.key(), |range| !range.shadow) {
            return Ok(());
        }
        if self.shadow().is_none() {
            let size = self.fds.stat()?.st_size as u64;
            let shadow = match self.shadow.get() {
                Some(stale) if self.is_to_stay(stale) => stale,
                _ => self.new_shadow_or_cow(size)?,
            };
            if let Some(cow) = shadow.cow_maps() {
                shadow.set_size(size);
                self.find_ground(shadow, cow);
                shadow.filled.store(true, Ordering::Release);
                self.make_maps_private(shadow, cow)?;
                self.publish_maps();
                return Ok(());
            }
            shadow.resize(size)?;
            let read =
                |fd: BorrowedFd<'_>| fill(shadow.memory()?, 0..size, |at, piece| Ok(rustix::io::pread(fd, piece, at)?));
            self.fds.with(false, read)?;
            shadow.filled.store(true, Ordering::Release);
        }
        // Not full: there was no memory for it.
        let shadow = self.shadow().ok_or(Error::new(libc::ENOMEM))?;
        if let Some(cow) = shadow.cow_maps() {
            self.make_maps_private(shadow, cow)?;
            self.publish_maps();
            return Ok(());
        }
        switch_maps::replace(self.key(), |writable| shadow.descriptor(writable))?;
        self.publish_maps();
        Ok(())
    }

    /// Copies part of the file to the shadow, as far as the file goes. The caller holds the shadow's lock.
    fn copy_to(&self, shadow: &Shadow, range: Range<u64>) -> Result<()> {
        let range = range.start..range.end.min(shadow.size());
        // SAFETY: our piece.
        let read = |at, piece: &mut [u8]| unsafe { self.read_file(at, &[UserBuf::of(piece)]) };
        if range.end.saturating_sub(range.start) > PIECE as u64 {
            return fill(shadow.memory()?, range, read);
        }
        let (next_data, put) = (|at| shadow.next_data(at), |at, bytes: &[u8]| shadow.put(at, bytes));
        in_piece(&range, |piece| fill_by(range.clone(), piece, read, next_data, put))
    }

    /// As [`copy_to`](Self::copy_to), of a range that has just got these bytes.
    fn put_in(&self, shadow: &Shadow, range: Range<u64>, bytes: &[u8]) -> Result<()> {
        let there = range.end.min(shadow.size()).saturating_sub(range.start).min(bytes.len() as u64) as usize;
        let (next_data, put) = (|at| shadow.next_data(at), |at, bytes: &[u8]| shadow.put(at, bytes));
        put_but_zeros(range.start, &bytes[..there], &mut 0, next_data, put)
    }

    /// As [`copy_to`](Self::copy_to), of a range that begins in the shadow or at its end, and makes it longer.
    fn copy_to_end(&self, shadow: &Shadow, range: Range<u64>) -> Result<()> {
        let mut at = shadow.size();
        self.copy_to(shadow, range.start..at)?;
        in_piece(&(at..range.end), |piece| {
            while at < range.end {
                let want = piece.len().min((range.end - at) as usize);
                // SAFETY: our piece.
                let got = unsafe { self.read_file(at, &[UserBuf::of(&mut piece[..want])]) }?;
                // Whole pages of zeros take no memory. The rest of the last page may have stores of the program.
                if got == 0 || at.is_multiple_of(PAGE as u64) && is_zeros(&piece[..got]) {
                    break;
                }
                shadow.put_at_end(at, &piece[..got])?;
                at += got as u64;
            }
            Ok(())
        })?;
        shadow.resize(range.end)?;
        self.copy_to(shadow, at..range.end)
    }

    /// The file's size. For the owner: without a session the kernel's file is complete.
    fn size_past_shadow(&self) -> u64 {
        self.with_session(|session| session.arena.shared().size()).unwrap_or_else(|| self.kernels_size())
    }

    /// The file's bytes have changed: updates the shadow. The caller holds its lock. `bytes`: what the range has now,
    /// if that is known; otherwise it is read.
    pub(super) fn follow(&self, shadow: &Shadow, range: Range<u64>, bytes: Option<&[u8]>) -> Result<()> {
        let followed = (|| {
            let (old, size) = (shadow.size(), self.size_past_shadow());
            if self.outgrow(shadow, size)? {
                return Ok(());
            }
            if let Some(cow) = shadow.cow_maps() {
                return self.follow_in_maps(shadow, cow, range, size);
            }
            if old < size && range.start <= old && range.end == size {
                return self.copy_to_end(shadow, range);
            }
            // What is new beyond the old end is zeros, except in the range.
            shadow.resize(size)?;
            match bytes {
                Some(bytes) => self.put_in(shadow, range, bytes),
                None => self.copy_to(shadow, range),
            }
        })();
        followed.map_err(|e: Error| {
            // File and shadow differ: better back to the last SYNC than a commit of bytes that no process wrote.
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
            return Err(disowned());
        }
        self.look_after_dead()?;
        if let Some(cow) = shadow.cow_maps() {
            // SAFETY: the caller's promise.
            return unsafe { self.read_beside_maps(shadow, cow, offset, bufs) };
        }
        // SAFETY: the caller's promise.
        let read = unsafe { shadow.read(|| self.shadow.lock(), offset, bufs) };
        match self.shadow() {
            // The shadow may have given up its memory meanwhile (`cow`).
            Some(now) if now.cow_maps().is_some() => {
                // SAFETY: the caller's promise.
                unsafe { self.read_shadow(now, offset, bufs) }
            }
            _ => read,
        }
    }

    /// The program closes its last descriptor. If it has the file mapped, keeps a descriptor of ours, so that its
    /// stores are not lost and later writes of others show.
    pub(super) fn keep_for_maps(&self, fd: RawFd) {
        if !ranges::has(self.key(), |_| true) {
            return;
        }
        // SAFETY: the program's descriptor, which it closes after this.
        let Ok(keeper) = high_duplicate(unsafe { BorrowedFd::borrow_raw(fd) }) else {
            crate::sys::notice_parts(&[self.path.to_bytes(), UNKEPT]);
            return;
        };
        self.keep(&mut self.keeper.lock(), keeper);
        if !ranges::has(self.key(), |_| true) {
            let _ = self.maps_are_gone(); // another thread unmapped the last map meanwhile, and found no descriptor
        }
    }

    /// The program closes a descriptor. If the descriptor that is kept for maps has lost its name since (a link), keeps
    /// the closed one instead: the journal is found by its name.
    pub(super) fn keep_better_for_maps(&self, fd: RawFd) {
        let mut kept = self.keeper.lock();
        let Some(old) = &*kept else { return };
        // SAFETY: the program's descriptor, which it closes after this.
        let new = unsafe { BorrowedFd::borrow_raw(fd) };
        if !has_lost_its_name(old.as_fd()) || has_lost_its_name(new) || is_writable(old.as_fd()) && !is_writable(new) {
            return;
        }
        let Ok(new) = high_duplicate(new) else { return };
        let Some(old) = self.keep(&mut kept, new) else { return };
        self.lease_leaves(old.as_raw_fd());
        self.fds.leave(old);
    }

    /// Keeps `new`, and returns what was kept before.
    fn keep(&self, kept: &mut Option<InternalFd>, new: InternalFd) -> Option<InternalFd> {
        new.keep_in_children();
        let access = if is_writable(new.as_fd()) { Access::Write } else { Access::Read };
        self.fds.add(new.as_raw_fd(), access);
        kept.replace(new)
    }

    /// Whether a map of the program is, or may become, writable, or was unmapped with stores that are still to be
    /// taken: this needs a writable descriptor.
    pub(super) fn may_be_stored_to(&self) -> bool {
        ranges::has(self.key(), |range| range.may_store) || self.has_last_stores()
    }

    /// Bytes of the file that are mapped; those mapped twice count twice.
    pub(super) fn mapped_bytes(&self) -> u64 {
        if any() { ranges::lock().of(self.key()).map(|range| (range.end - range.start) as u64).sum() } else { 0 }
    }

    /// A map of the file was unmapped. With the last one the descriptor that was kept for it is closed.
    fn maps_are_gone(&self) -> Result<()> {
        self.publish_maps();
        if ranges::has(self.key(), |_| true) {
            return Ok(());
        }
        let Some(keeper) = self.keeper.lock().take() else { return Ok(()) };
        self.close_ours(keeper)
    }

    /// Closes a descriptor of the library that stood in for one of the program.
    ///
    /// # Errors
    /// Those of [`remove_descriptor`](Self::remove_descriptor).
    pub(crate) fn close_ours(&self, ours: InternalFd) -> Result<()> {
        if self.fds.begin_close_is_last(ours.as_raw_fd()) {
            let removed = self.remove_descriptor(ours.as_raw_fd());
            if self.is_demoted() {
                core::mem::forget(ours); // the kernel's descriptors may have locks now, which a close would drop
            }
            return removed;
        }
        // The program has opened the file again, and may hold locks that a close would drop.
        self.fds.leave(ours);
        Ok(())
    }
}

impl AtomicFile {
    /// The most bytes of a shadow in memory.
    pub(super) fn map_limit(&self) -> u64 {
        self.settings.map_memory.unwrap_or_else(size_limit)
    }
}
