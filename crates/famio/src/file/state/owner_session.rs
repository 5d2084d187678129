//! Another process's session, for reading: its arena and journal, mapped read-only. The reader changes nothing and
//! takes no lock, and the session goes on meanwhile. It reads the present bytes, committed or not.
//!
//! What was read is valid if afterwards the block's sequence is the same, no thread had exclusive mode, and the
//! session was still open to others: the same checks as within one process, and one more.

use super::owners_journal::{Journal, NO_JOURNAL, OTHER_JOURNAL};
use crate::error::{Error, Result};
use crate::file::base::modified::Modified;
use crate::file::engine::context::{Context, Part};
use crate::file::session::CALL_MAX;
use crate::file::{Descriptors, Home, UserBuf, inplace, records};
use crate::index::{Arena, BLOCK, CLOSED, Cell, Index, Membership, Shared, follow_up};
use crate::pmem::{Domain, medium};
use crate::settings::Settings;
use crate::sys::internal::Undisturbed;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// Looks at one block within one look at the session.
pub(in crate::file) const SPINS: u32 = 1000;

/// Reads of the file by calls, before it is mapped: to map it takes as long as twenty, and many a process reads less.
const READS_BY_CALLS: u32 = 16;
/// A read of more bytes maps it at once: during a call, the file's other descriptors wait.
const BYTES_BY_CALL: usize = 64 << 10;

/// A session that this process reads along.
///
/// Invariant: nothing is stored through it.
pub(in crate::file) struct OwnerSession {
    pub(in crate::file) arena: Arena,
    /// The number of the arena, and of the session in it.
    pub(in crate::file) number: u64,
    pub(in crate::file) generation: u64,
    pub(in crate::file) home: Home,
    /// Reads of the file.
    reads: AtomicU32,
    journal: Journal,
    /// It is one in place.
    is_in_place: bool,
    /// The journal is longer than its mapping.
    pub(in crate::file) is_outgrown: AtomicBool,
}

/// The result of a look into another process's session.
pub(in crate::file) enum Look<T> {
    Done(T),
    /// It begins, ends, or changes what was looked at: look again in a moment.
    Changing,
    /// It cannot be read from this process, which has to acquire ownership to read.
    Unreachable,
}

impl OwnerSession {
    /// `None`: there is no such session yet, or any more.
    pub(in crate::file) fn new(membership: &Membership, number: u64, settings: &Settings) -> Result<Option<Self>> {
        let _undisturbed = Undisturbed::begin();
        let memory = membership.open_arena(number)?;
        let Some(arena) = Arena::join(&memory)? else {
            // It was made just now; or all of it lies on a disk, since there was no room in memory.
            return if rustix::fs::fstat(&memory)?.st_size == 0 { Err(Error::new(libc::ENOENT)) } else { Ok(None) };
        };
        let (generation, in_place, journal) = {
            let shared = arena.shared();
            let in_place = shared.journal.load(Ordering::Acquire);
            (shared.open.load(Ordering::Acquire), in_place, shared.journal_file.load(Ordering::Acquire))
        };
        if generation == 0 {
            return Ok(None);
        }
        if generation == CLOSED {
            return Err(Error::new(libc::EBUSY));
        }
        let is_in_place = in_place != 0;
        let inode = if is_in_place { in_place } else { journal };
        let journal = Journal::new(inode, membership.control().as_ref(), settings);
        let home = Home::to_read(medium(Domain::PageCache, false));
        membership.set_read_along(true);
        let (reads, is_outgrown) = (AtomicU32::new(0), AtomicBool::new(false));
        let joined = Self { arena, number, generation, home, reads, journal, is_in_place, is_outgrown };
        Ok(joined.is_current(membership).then_some(joined))
    }

    pub(in crate::file) fn shared(&self) -> &Shared {
        self.arena.shared()
    }

    /// Whether what was read until now belongs to the present session, and its arena has not outgrown its mapping.
    #[inline]
    pub(in crate::file) fn is_current(&self, membership: &Membership) -> bool {
        fence(Ordering::Acquire);
        let shared = self.shared();
        let (journal, in_place) = (self.journal.inode(), if self.is_in_place { self.journal.inode() } else { 0 });
        shared.open.load(Ordering::Acquire) == self.generation
            && shared.journal.load(Ordering::Acquire) == in_place
            && shared.journal_file.load(Ordering::Acquire) == journal
            && membership.arena() == self.number
            && !self.arena.is_outgrown()
            && !self.is_outgrown.load(Ordering::Relaxed)
    }

    pub(in crate::file) fn look<T>(
        &self,
        membership: &Membership,
        look: impl FnOnce(&Self) -> Result<Look<T>>,
    ) -> Result<Look<T>> {
        let shared = self.shared();
        if shared.released.load(Ordering::Acquire) != 0 {
            return Ok(Look::Unreachable);
        }
        // If the owner has mapped the file without shared memory, no other process sees its stores.
        if shared.follow_up.load(Ordering::Acquire) & follow_up::SHADOW != 0 && membership.shadow().is_none() {
            return Ok(Look::Unreachable);
        }
        // Changes of a dead process are to be rolled back first.
        if shared.follow_up.load(Ordering::Acquire) & follow_up::OTHERS != 0 && membership.has_dead() {
            return Ok(Look::Unreachable);
        }
        // A transaction is seen as a whole or not at all.
        let transactions = shared.transactions.load(Ordering::Acquire);
        if transactions & 1 == 1 {
            return Ok(Look::Changing);
        }
        let looked = look(self);
        fence(Ordering::Acquire);
        if shared.transactions.load(Ordering::Relaxed) != transactions || !self.is_current(membership) {
            return Ok(Look::Changing);
        }
        looked
    }

    /// The logical size, with uncommitted changes. A thread in exclusive mode stores it, too.
    pub(in crate::file) fn size(&self) -> u64 {
        self.shared().size()
    }

    /// When it was last changed in this session, also by a thread in exclusive mode.
    pub(in crate::file) fn last_change(&self) -> Option<Modified> {
        self.shared().last_change()
    }

    /// Reads into the caller's buffers at `offset`; fewer bytes at the end of the file, or if a buffer is bad.
    ///
    /// # Safety
    /// The buffers may be overwritten; they may be bad.
    pub(in crate::file) unsafe fn read(&self, fds: &Descriptors, offset: u64, bufs: &[UserBuf]) -> Result<Look<usize>> {
        let (shared, mut done) = (self.shared(), 0);
        // A thread in exclusive mode defers writes and does not fence: its process ends that when it is asked for
        // ownership.
        if !shared.gate.is_nobodys() || shared.deferred.is_any() {
            return Ok(Look::Unreachable);
        }
        let room = self.size().saturating_sub(offset).min(CALL_MAX as u64) as usize;
        for buf in bufs {
            let len = buf.len.min(room - done);
            let mut used = 0;
            while used < len {
                let (at, dst) = (offset + (done + used) as u64, buf.base.wrapping_add(used));
                // SAFETY: the caller's promise.
                match unsafe { self.read_some(fds, at, dst, len - used) } {
                    Ok(Look::Done(n)) => used += n,
                    Ok(other) => return Ok(other),
                    Err(e) if done + used == 0 => return Err(e),
                    Err(_) => return Ok(Look::Done(done + used)),
                }
            }
            done += used;
        }
        Ok(if shared.gate.is_nobodys() { Look::Done(done) } else { Look::Changing })
    }

    /// Reads from one block, or from several without a cell.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub(in crate::file) unsafe fn read_some(
        &self,
        fds: &Descriptors,
        at: u64,
        dst: *mut u8,
        len: usize,
    ) -> Result<Look<usize>> {
        let cx =
            Context { arena: &self.arena, home: &self.home, fds, me: 0, exclusive: false, generation: self.generation };
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
        self.cover(&cx, at + len as u64, len);
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
    pub(in crate::file) unsafe fn read_block(&self, cx: &Context<'_>, cell: &Cell, part: Part) -> Result<Look<()>> {
        self.cover(cx, part.block * BLOCK as u64 + (part.start + part.len) as u64, part.len);
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
                    return match copied {
                        Err(e) if e.errno() == NO_JOURNAL => Ok(Look::Unreachable),
                        Err(e) if e.errno() == OTHER_JOURNAL => Ok(Look::Changing),
                        copied => copied.map(Look::Done),
                    };
                }
            }
            core::hint::spin_loop();
        }
        Ok(Look::Changing)
    }

    /// # Safety
    /// As [`read`](Self::read).
    pub(in crate::file) unsafe fn copy_block(&self, cx: &Context<'_>, cell: &Cell, part: Part) -> Result<()> {
        let outgrown = || {
            self.is_outgrown.store(true, Ordering::Relaxed);
            Error::new(libc::EIO)
        };
        if !self.is_in_place {
            let block_in_journal = |at| self.journal.view(cx.fds)?.block_at(at).ok_or_else(outgrown);
            // SAFETY: the caller's promise.
            return unsafe { records::copy_block(cx, cell, part, block_in_journal) };
        }
        let log_block = |entry| self.journal.view(cx.fds)?.block(entry).ok_or_else(outgrown);
        // SAFETY: the caller's promise.
        unsafe { inplace::copy_block(cx, cell, part, log_block) }
    }

    pub(in crate::file) fn readable(&self, cx: &Context<'_>) -> u64 {
        if self.is_in_place { inplace::readable(cx) } else { records::readable(cx) }
    }

    /// `len` bytes up to `end` are about to be read: makes sure that the file is mapped up to there, as far as it goes.
    /// Otherwise it is read by calls: if few were read yet, or if there is no room for a mapping.
    #[inline]
    pub(in crate::file) fn cover(&self, cx: &Context<'_>, end: u64, len: usize) {
        if len <= BYTES_BY_CALL && self.reads.load(Ordering::Relaxed) < READS_BY_CALLS {
            self.reads.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let end = end.min(self.readable(cx));
        if self.home.cover(cx.fds, end).is_err() {
            self.reads.store(0, Ordering::Relaxed); // tried again later
        }
    }
}

impl<T> Look<T> {
    pub(in crate::file) fn map<U>(self, with: impl FnOnce(T) -> U) -> Look<U> {
        match self {
            Self::Done(done) => Look::Done(with(done)),
            Self::Changing => Look::Changing,
            Self::Unreachable => Look::Unreachable,
        }
    }
}
