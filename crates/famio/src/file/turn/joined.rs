//! Another process's session, for reading: its arena and journal, mapped read-only. The reader changes nothing and
//! takes no lock, and the session goes on meanwhile. It reads the present bytes, committed or not.
//!
//! What was read is valid if afterwards the block's sequence is the same, no thread had exclusive mode, and the
//! session was still open to others: the same checks as within one process, and one more.

use super::Turns;
use crate::error::{Error, Result};
use crate::file::context::{Context, Part};
use crate::file::session::{CALL_MAX, CLOSED};
use crate::file::{Descriptors, Home, UserBuf, inplace, records};
use crate::index::{Arena, BLOCK, Cell, Door, Index, Shared, also};
use crate::journal::control;
use crate::journal::inplace::View;
use crate::pmem::{Domain, medium};
use crate::settings::Settings;
use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::os::fd::AsFd;
use std::sync::Arc;

/// Looks at something that changes before the reader waits: at a session that begins or ends, and at a block that is
/// being written.
const LOOKS_AT_SESSION: u32 = 4;
const LOOKS: u32 = 64;
/// Looks at one block within one look at the session.
const SPINS: u32 = 1000;

/// A session that this process reads along.
///
/// Invariant: nothing is stored through it.
pub(in crate::file) struct Joined {
    arena: Arena,
    /// The number of the arena, and of the session in it.
    number: u64,
    generation: u64,
    home: Home,
    /// The journal, if it is an in-place one.
    journal: Option<View>,
    /// The journal is longer than its mapping.
    is_outgrown: AtomicBool,
}

/// The result of a look into another process's session.
pub(super) enum Look<T> {
    Done(T),
    /// It begins, ends, or changes what was looked at: look again in a moment.
    Changing,
    /// It cannot be read from this process, which has to acquire ownership to read.
    Unreachable,
}

impl Turns {
    /// Looks into the owner's session, as long as the owner lives.
    pub(super) fn look_into_session<T>(
        &self,
        fds: &Descriptors,
        settings: &Settings,
        mut look: impl FnMut(&Joined) -> Result<Look<T>>,
    ) -> Result<Look<T>> {
        let mut closed = 0;
        for _ in 0..LOOKS {
            if !self.door.has_living_holder() {
                return Ok(Look::Unreachable); // or it has just ended
            }
            match self.join(fds, settings)? {
                Look::Done(joined) => match joined.look(&self.door, &mut look) {
                    Ok(Look::Changing) => {}
                    looked => return looked,
                },
                Look::Changing if closed == LOOKS_AT_SESSION => break,
                Look::Changing => closed += 1,
                Look::Unreachable => return Ok(Look::Unreachable),
            }
            rustix::thread::sched_yield();
        }
        Ok(Look::Changing)
    }

    fn join(&self, fds: &Descriptors, settings: &Settings) -> Result<Look<Arc<Joined>>> {
        let mut here = self.joined.lock();
        if let Some(joined) = here.as_ref().filter(|joined| joined.is_current(&self.door)) {
            return Ok(Look::Done(joined.clone()));
        }
        let outgrown = here.take().filter(|joined| joined.arena.is_outgrown());
        let number = self.door.arena();
        if number == 0 {
            return Ok(Look::Changing);
        }
        match Joined::new(&self.door, number, fds, settings) {
            // The rest of the arena lies where only its owner finds it: on a disk.
            Ok(Some(joined))
                if outgrown.is_some_and(|old| old.number == number && old.arena.len() >= joined.arena.len()) =>
            {
                Ok(Look::Unreachable)
            }
            Ok(Some(joined)) => Ok(Look::Done(here.insert(Arc::new(joined)).clone())),
            Ok(None) => Ok(Look::Changing),
            // It may have just gone, or come; or a program in another root cannot find it.
            Err(e) if e.errno() == libc::ENOENT && self.unjoined.swap(number, Ordering::Relaxed) != number => {
                Ok(Look::Changing)
            }
            Err(_) => Ok(Look::Unreachable), // for example another user's
        }
    }

    /// Drops a session that is not read along any more.
    pub(super) fn leave_session(&self) {
        if let Some(mut here) = self.joined.try_lock()
            && here.as_ref().is_some_and(|joined| !joined.is_current(&self.door))
        {
            *here = None;
        }
    }

    /// In a forked child: its maps are not there.
    pub(in crate::file) fn forget_joined(&self) {
        if let Some(mut here) = self.joined.try_lock() {
            core::mem::forget(here.take());
        }
    }
}

impl Joined {
    /// `None`: there is no such session yet, or any more.
    fn new(door: &Door, number: u64, fds: &Descriptors, settings: &Settings) -> Result<Option<Self>> {
        let memory = door.open_arena(number)?;
        let Some(arena) = Arena::join(&memory)? else {
            // It was made just now; or all of it lies on a disk, since there was no room in memory.
            return if rustix::fs::fstat(&memory)?.st_size == 0 { Err(Error::new(libc::ENOENT)) } else { Ok(None) };
        };
        let (generation, journal) = {
            let shared = arena.shared();
            (shared.open.load(Ordering::Acquire), shared.journal.load(Ordering::Acquire))
        };
        if generation == 0 {
            return Ok(None);
        }
        if generation == CLOSED {
            return Err(Error::new(libc::EBUSY));
        }
        let journal = if journal == 0 { None } else { Some(open_journal(fds, settings)?) };
        let home = Home::new(fds, Domain::PageCache, false, medium(Domain::PageCache, false))?;
        door.set_read_along(true);
        let joined = Self { arena, number, generation, home, journal, is_outgrown: AtomicBool::new(false) };
        Ok(joined.is_current(door).then_some(joined))
    }

    fn shared(&self) -> &Shared {
        self.arena.shared()
    }

    /// Whether what was read until now belongs to the present session, and its arena has not outgrown its mapping.
    #[inline]
    fn is_current(&self, door: &Door) -> bool {
        fence(Ordering::Acquire);
        let shared = self.shared();
        shared.open.load(Ordering::Acquire) == self.generation
            && shared.journal.load(Ordering::Acquire) == self.journal.as_ref().map_or(0, View::inode)
            && door.arena() == self.number
            && !self.arena.is_outgrown()
            && !self.is_outgrown.load(Ordering::Relaxed)
    }

    fn look<T>(&self, door: &Door, look: impl FnOnce(&Self) -> Result<Look<T>>) -> Result<Look<T>> {
        let shared = self.shared();
        // A thread in exclusive mode defers writes and does not fence: its process ends that when it is asked for
        // ownership.
        if !shared.gate.is_nobodys() || shared.deferred.is_any() {
            return Ok(Look::Unreachable);
        }
        if shared.released.load(Ordering::Acquire) != 0 {
            return Ok(Look::Unreachable);
        }
        // If the owner has mapped the file without shared memory, no other process sees its stores.
        if shared.also.load(Ordering::Acquire) & also::SHADOW != 0 && door.shadow().is_none() {
            return Ok(Look::Unreachable);
        }
        // Changes of a dead process are to be rolled back first.
        if shared.also.load(Ordering::Acquire) & also::OTHERS != 0 && door.has_dead() {
            return Ok(Look::Unreachable);
        }
        // A transaction is seen as a whole or not at all.
        let transactions = shared.transactions.load(Ordering::Acquire);
        if transactions & 1 == 1 {
            return Ok(Look::Changing);
        }
        let looked = look(self);
        fence(Ordering::Acquire);
        if !shared.gate.is_nobodys()
            || shared.transactions.load(Ordering::Relaxed) != transactions
            || !self.is_current(door)
        {
            return Ok(Look::Changing);
        }
        looked
    }

    /// The logical size, with uncommitted changes.
    pub(super) fn size(&self) -> u64 {
        self.shared().size()
    }

    /// Reads into the caller's buffers at `offset`; fewer bytes at the end of the file, or if a buffer is bad.
    ///
    /// # Safety
    /// The buffers may be overwritten; they may be bad.
    pub(super) unsafe fn read(&self, fds: &Descriptors, offset: u64, bufs: &[UserBuf]) -> Result<Look<usize>> {
        let room = self.size().saturating_sub(offset).min(CALL_MAX as u64) as usize;
        let mut done = 0;
        for buf in bufs {
            let len = buf.len.min(room - done);
            let mut used = 0;
            while used < len {
                let (at, dst) = (offset + (done + used) as u64, buf.base.wrapping_add(used));
                // SAFETY: the caller's promise.
                match unsafe { self.read_some(fds, at, dst, len - used) } {
                    Ok(Look::Done(n)) => used += n,
                    Ok(_) => return Ok(Look::Changing),
                    Err(e) if done + used == 0 => return Err(e),
                    Err(_) => return Ok(Look::Done(done + used)),
                }
            }
            done += used;
        }
        Ok(Look::Done(done))
    }

    /// Reads from one block, or from several without a cell.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn read_some(&self, fds: &Descriptors, at: u64, dst: *mut u8, len: usize) -> Result<Look<usize>> {
        let cx = Context { arena: &self.arena, home: &self.home, fds, me: 0, solo: false, generation: self.generation };
        let (block, start) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
        let index = Index::new(&self.arena);
        if let Some(cell) = index.lookup(block) {
            let len = len.min(BLOCK - start);
            // SAFETY: the caller's promise.
            return unsafe { self.read_block(&cx, cell, Part { block, start, dst, len }) }
                .map(|look| look.map(|()| len));
        }
        let blocks = (start + len).div_ceil(BLOCK) as u64;
        let run = index.absent_run(block, blocks) as usize * BLOCK;
        let len = len.min(run.saturating_sub(start).max(1));
        self.cover(&cx, at + len as u64)?;
        let readable = self.readable(&cx);
        // SAFETY: the caller's promise.
        let read = unsafe { cx.read_home(at, dst, len, readable) };
        fence(Ordering::Acquire);
        if !index.is_absent(block, (start + len).div_ceil(BLOCK) as u64) {
            return Ok(Look::Done(0)); // written for the first time meanwhile, perhaps in the file itself: again, by its cell
        }
        match read {
            Ok(()) => Ok(Look::Done(len)),
            // A checkpoint cut the file while we read.
            Err(e) if e.errno() == libc::EIO && self.readable(&cx) != readable => Ok(Look::Changing),
            Err(e) => Err(e),
        }
    }

    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn read_block(&self, cx: &Context<'_>, cell: &Cell, part: Part) -> Result<Look<()>> {
        self.cover(cx, part.block * BLOCK as u64 + (part.start + part.len) as u64)?;
        for _ in 0..SPINS {
            if let Some(seen) = cell.begin_read() {
                // In exclusive mode, a sequence number says nothing about the block's bytes.
                if !cx.shared().gate.is_nobodys() {
                    break;
                }
                // SAFETY: the caller's promise; a journal's blocks lie in its mapping.
                let copied = unsafe { self.copy_block(cx, cell, part) };
                if !cx.shared().gate.is_nobodys() {
                    break;
                }
                if cell.still(seen) {
                    return copied.map(Look::Done);
                }
            }
            core::hint::spin_loop();
        }
        Ok(Look::Changing)
    }

    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn copy_block(&self, cx: &Context<'_>, cell: &Cell, part: Part) -> Result<()> {
        let Some(journal) = &self.journal else {
            // SAFETY: the caller's promise.
            return unsafe { records::copy_block(cx, cell, part) };
        };
        let log_block = |entry| {
            journal.block(entry).ok_or_else(|| {
                self.is_outgrown.store(true, Ordering::Relaxed);
                Error::new(libc::EIO)
            })
        };
        // SAFETY: the caller's promise.
        unsafe { inplace::copy_block(cx, cell, part, log_block) }
    }

    fn readable(&self, cx: &Context<'_>) -> u64 {
        if self.journal.is_some() { inplace::readable(cx) } else { records::readable(cx) }
    }

    /// Makes sure that the file is mapped up to `end`, as far as it goes.
    #[inline]
    fn cover(&self, cx: &Context<'_>, end: u64) -> Result<()> {
        let end = end.min(self.readable(cx));
        self.home.cover(cx.fds, end)
    }
}

impl<T> Look<T> {
    fn map<U>(self, with: impl FnOnce(T) -> U) -> Look<U> {
        match self {
            Self::Done(done) => Look::Done(with(done)),
            Self::Changing => Look::Changing,
            Self::Unreachable => Look::Unreachable,
        }
    }
}

fn open_journal(fds: &Descriptors, settings: &Settings) -> Result<View> {
    let journal = fds.with(false, |fd| control::find_journal(fd, settings.pool.as_deref()))?;
    View::of(journal.ok_or(Error::new(libc::ENOENT))?.as_fd())
}
