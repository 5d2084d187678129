//! What an engine works with: its context, and the trait that it implements.

use super::home::copy_out;
use crate::error::{Error, Result};
use crate::file::base::bits::{GRANULE, runs, touched};
use crate::file::base::modified::Modified;
use crate::file::{Descriptors, Home};
use crate::index::{Arena, BLOCK, Cell, Index, Locked, Shared, SharedLock, Stuck};
use crate::journal::live::Live;
use crate::sys::{check, syscall};
use core::sync::atomic::Ordering;
use rustix::fs::{Timespec, Timestamps};
use std::os::fd::{AsRawFd, BorrowedFd};

/// One file attached by one process: its arena, its home, its descriptors.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub arena: &'a Arena,
    pub home: &'a Home,
    pub fds: &'a Descriptors,
    /// This process's slot.
    pub me: u32,
    /// This thread is in exclusive mode: no block locks are needed, and fences only at a SYNC.
    pub exclusive: bool,
    /// The number of this session in its arena.
    pub generation: u64,
}

impl<'a> Context<'a> {
    #[inline]
    pub fn shared(&self) -> &'a Shared {
        self.arena.shared()
    }

    #[inline]
    pub fn index(&self) -> Index<'a> {
        Index::new(self.arena)
    }

    /// The lock of a block; none in exclusive mode.
    #[inline]
    pub fn lock<'c>(&self, cell: &'c Cell) -> Result<Option<Locked<'c>>> {
        if self.exclusive { Ok(None) } else { Ok(Some(cell.lock.lock(self.me)?)) }
    }

    /// Another lock; none in exclusive mode.
    #[inline]
    pub fn lock_unless_exclusive<'c>(&self, lock: &'c SharedLock) -> Result<Option<Locked<'c>>> {
        if self.exclusive { Ok(None) } else { Ok(Some(lock.lock(self.me)?)) }
    }

    /// As [`lock`](Self::lock), if it is free; `None` if not.
    #[inline]
    pub fn try_lock<'c>(&self, cell: &'c Cell) -> Option<Option<Locked<'c>>> {
        if self.exclusive { Some(None) } else { cell.lock.try_lock(self.me).map(Some) }
    }

    /// A reader found a writer at the block for the `attempt`-th time: spins, then queues behind it. Does not touch
    /// the caller's memory under the lock. An error: the writer is stopped, or this thread interrupted it.
    #[cold]
    pub fn wait_for_writer(&self, cell: &Cell, attempt: u32) -> Result<()> {
        let interrupted = crate::thread::current().locks_held.get() > 0;
        if attempt > if interrupted { 1 << 12 } else { 1 << 26 } {
            return Err(if interrupted { Error::new(libc::EDEADLK) } else { Stuck.into() });
        }
        if attempt > 64 && !interrupted {
            drop(cell.lock.lock(self.me)?);
            rustix::thread::sched_yield(); // a writer in exclusive mode holds no lock
        } else {
            core::hint::spin_loop();
        }
        Ok(())
    }

    /// Reads from the file as [`Home::read`] does. If the mapping fails, tries a system call: a hole of a file on a
    /// full tmpfs has no page to map.
    ///
    /// # Safety
    /// As [`Home::read`].
    #[inline]
    pub unsafe fn read_home(&self, offset: u64, dst: *mut u8, len: usize, readable: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        match unsafe { self.home.read(offset, dst, len, readable) } {
            // SAFETY: the caller's promise.
            Err(e) if e.errno() == libc::EIO => unsafe { self.pread_home(offset, dst, len, readable) }.map_err(|_| e),
            // Not mapped yet.
            // SAFETY: the caller's promise.
            Err(e) if e.errno() == libc::EFBIG => unsafe { self.pread_home(offset, dst, len, readable) },
            read => read,
        }
    }

    #[cold]
    unsafe fn pread_home(&self, offset: u64, dst: *mut u8, len: usize, readable: u64) -> Result<()> {
        let there = len.min(readable.saturating_sub(offset) as usize);
        let mut done = 0;
        while done < there {
            let n = self.fds.with(false, |fd| {
                let (to, at) = (dst.wrapping_add(done) as usize, offset as usize + done);
                // SAFETY: the caller's buffer; the kernel checks it.
                check(unsafe { syscall(libc::SYS_pread64, [fd.as_raw_fd() as usize, to, there - done, at, 0, 0]) })
            })?;
            if n == 0 {
                return Err(Error::new(libc::EIO)); // cut by an outsider
            }
            done += n;
        }
        // SAFETY: the rest of the caller's buffer.
        unsafe { super::home::zero_out(dst.wrapping_add(there), len - there) }
    }

    /// Copies part of a block to the caller's memory: the granules in `aside` from the block at that address, the
    /// others from the file, as far as that is `readable`.
    ///
    /// # Safety
    /// The destination is the caller's buffer, and may be bad; `aside` is a mapped block of ours.
    pub unsafe fn copy_merged(&self, part: Part, aside: Option<(u64, *mut u8)>, readable: u64) -> Result<()> {
        let Part { block, start, dst, len } = part;
        let offset = block * BLOCK as u64;
        let Some((bits, from_aside)) = aside else {
            // SAFETY: the caller's promise.
            return unsafe { self.read_home(offset + start as u64, dst, len, readable) };
        };
        let end = start + len;
        let wanted = touched(start, end);
        let piece = |first: usize, count: usize| {
            let (from, to) = ((first * GRANULE).max(start), ((first + count) * GRANULE).min(end));
            (from, to, dst.wrapping_add(from - start))
        };
        runs(wanted & bits, |first, count| {
            let (from, to, at) = piece(first, count);
            // SAFETY: the source is ours; `at` is in the caller's buffer.
            unsafe { copy_out(at, from_aside.wrapping_add(from), to - from) }
        })?;
        runs(wanted & !bits, |first, count| {
            let (from, to, at) = piece(first, count);
            // SAFETY: `at` is in the caller's buffer.
            unsafe { self.read_home(offset + from as u64, at, to - from, readable) }
        })
    }

    /// Makes room in the file for a whole block, of which bytes below `end` will be stored.
    #[inline]
    pub fn room_for(&self, block: u64, end: usize) -> Result<()> {
        let start = block * BLOCK as u64;
        let physical = self.shared().physical.load(Ordering::Acquire);
        if start + BLOCK as u64 > physical && start + end as u64 <= physical && self.shared().is_exposed() {
            // An outsider may look at the size: it is not rounded up.
            return self.home.make_room(self.shared(), self.fds, start, physical);
        }
        self.home.make_room(self.shared(), self.fds, start, start + BLOCK as u64)
    }
}

/// Part of one block, and the caller's buffer for it.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub block: u64,
    /// Its first byte, as an offset in the block.
    pub start: usize,
    /// The caller's buffer; it may be bad.
    pub dst: *mut u8,
    pub len: usize,
}

/// A block's bytes on their way into a file: the caller's bytes are copied here with no lock held.
#[repr(C, align(64))]
pub(crate) struct BlockBuf(pub [u8; BLOCK]);

impl BlockBuf {
    /// Uninitialised, since zeroing 4 KiB would only be cheap compared to large writes: callers fill what they use.
    #[inline]
    pub fn new() -> core::mem::MaybeUninit<Self> {
        core::mem::MaybeUninit::uninit()
    }
}

/// Bytes `start..end` of a block, which lie at `from` in our memory.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub block: u64,
    pub start: usize,
    pub end: usize,
    pub from: *const u8,
}

/// What several blocks need of a journal and its buffers, besides what each was [prepared](Engine::prepare_block)
/// with.
#[derive(Default)]
pub(crate) struct Needs {
    /// Blocks that the open epoch does not have yet.
    pub blocks: u64,
    /// Granules that it does not have yet.
    pub granules: u64,
    pub buffers: usize,
}

/// What a commit makes durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed {
    /// The epoch that becomes *C*.
    pub epoch: u64,
    /// The file's size in it.
    pub size: u64,
}

/// Adds a list, with its length before it, for [`Words::list`].
pub(in crate::file) fn put_list(words: &mut Vec<u64>, list: &[u64]) {
    words.push(list.len() as u64);
    words.extend_from_slice(list);
}

/// Words that an owner has left, consumed from the front.
pub(crate) struct Words<'a>(pub &'a [u64]);

impl Words<'_> {
    /// Takes the next words.
    ///
    /// # Errors
    /// `EIO`: there are fewer.
    pub fn next<const N: usize>(&mut self) -> Result<[u64; N]> {
        let (next, rest) = self.0.split_first_chunk().ok_or_else(Self::damaged)?;
        self.0 = rest;
        Ok(*next)
    }

    /// Takes a count, and this many words.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn list(&mut self) -> Result<Vec<u64>> {
        let [count] = self.next()?;
        let (list, rest) =
            usize::try_from(count).ok().and_then(|count| self.0.split_at_checked(count)).ok_or_else(Self::damaged)?;
        self.0 = rest;
        Ok(list.to_vec())
    }

    fn damaged() -> Error {
        Error::with(libc::EIO, "the shared index is damaged: the state that the last owner left")
    }
}

/// An engine: the homes of an atomic file and the journal between them. The front (`read`, `write`, `size`, `sync`)
/// holds the gate and does what is the same for in-place journals and journals of records.
pub(crate) trait Engine: Send + Sync {
    /// The offset below which bytes of the file home are valid; above it the file has zeros.
    fn readable(&self, cx: Context<'_>) -> u64;

    /// Copies part of a block with a cell to the caller's memory, from where the cell says that it lives. The caller
    /// checks by the cell's sequence that nothing changed meanwhile; otherwise bytes and error mean nothing.
    ///
    /// # Safety
    /// The destination is the caller's buffer, which may be bad.
    unsafe fn copy_block(&self, cx: Context<'_>, cell: &Cell, part: Part) -> Result<()>;

    /// Writes bytes `start..end` of a block, which lie at the same offsets of `buf`; the rest of the granules that
    /// they touch is room for completing them. The caller is inside the gate, without a lock.
    fn write_block(&self, cx: &Context<'_>, block: u64, start: usize, end: usize, buf: *mut u8) -> Result<()>;

    /// Makes sure that a later `write_block` of bytes `start..end` of the block, by this thread before any other
    /// change of the file, finds room: `ENOSPC`, `EDQUOT`, `EFBIG` come from here, and from
    /// [`prepare_rest`](Self::prepare_rest). No other thread is inside the gate.
    fn prepare_block(&self, cx: &Context<'_>, cell: &Cell, part: (u64, usize, usize), needs: &mut Needs) -> Result<()>;

    /// Whether the block is prepared already for any write, as far as that is known with few cache misses.
    fn is_prepared(&self, _cx: &Context<'_>, _block: u64) -> bool {
        false
    }

    /// As [`prepare_block`](Self::prepare_block), for what several blocks need together.
    fn prepare_rest(&self, _cx: &Context<'_>, _needs: &Needs) -> Result<()> {
        Ok(())
    }

    /// Writes pieces of prepared blocks, from the first on, as many as it has a short way for; returns their number.
    /// As `prepare_block`.
    fn write_pieces(&self, _cx: &Context<'_>, _pieces: &[Piece]) -> Result<usize> {
        Ok(0)
    }

    /// Makes room in a full journal by a checkpoint of everything possible. Prepared blocks have to be prepared
    /// again. Returns whether any room was made. As `prepare_block`.
    fn make_room(&self, cx: Context<'_>) -> Result<bool>;

    /// Whether a write to the block in exclusive mode may be deferred, because it cannot fail later. If it is not of
    /// the whole block, also because it would have to wait for what is not in the cache.
    fn can_defer(&self, _cx: &Context<'_>, _block: u64, _is_whole: bool) -> bool {
        false
    }

    /// Prefetches what a write of this part is going to need.
    fn prefetch_for(&self, _cx: &Context<'_>, _block: u64, _part: (usize, usize)) {}

    /// As [`write_block`](Self::write_block), for a deferred write of these bytes.
    fn write_deferred(&self, cx: &Context<'_>, block: u64, (start, end): (usize, usize), buf: *mut u8) -> Result<()> {
        self.write_block(cx, block, start, end, buf)
    }

    /// Whether [`write_callers`](Self::write_callers) is worth a try.
    fn takes_callers_memory(&self, is_whole: bool) -> bool;

    /// As [`write_block`](Self::write_block), of whole granules in the caller's memory itself, which is then only touched
    /// by guarded copies. False: nothing was done, it needs a copy. For a thread in exclusive mode, which holds no lock.
    fn write_callers(&self, cx: &Context<'_>, block: u64, part: (usize, usize), buf: *mut u8) -> Result<bool>;

    /// Makes sure that a commit of a new size finds room: `ENOSPC` comes from here. The gate is closed.
    fn room_for_size(&self, _cx: Context<'_>) -> Result<()> {
        Ok(())
    }

    /// A smaller size in the open epoch: drops everything above it. The gate is closed.
    fn cut(&self, cx: Context<'_>, size: u64) -> Result<()>;

    /// The blocks of the open epoch, in order; `None`: it keeps no list. The gate is closed.
    fn open_blocks(&self, _cx: Context<'_>) -> Option<Vec<u64>> {
        None
    }

    /// Makes the open epoch durable. The gate is closed. An error leaves *C* as it was.
    fn commit(&self, cx: Context<'_>, sealed: Sealed) -> Result<()>;

    /// The last epoch in the journal, as a recovery would find it. The gate is closed.
    fn epoch_of_journal(&self, cx: Context<'_>) -> u64;

    /// The number of epochs committed to the journal, including `sealed`, the last.
    fn recorded(&self, cx: Context<'_>, sealed: Sealed) -> u64;

    /// The huge pages of the mapped journal that have memory everywhere, from its beginning on; 0: it has none.
    fn huge_pages(&self, _cx: Context<'_>) -> u64 {
        0
    }

    /// Collapses one of them. False: the kernel could not.
    fn gather_page(&self, _cx: Context<'_>, _page: u64) -> bool {
        true
    }

    /// The session's journal.
    fn journal(&self) -> &Live;

    /// Whether a commit makes no system call, so that timing each would show.
    fn commits_in_memory(&self) -> bool {
        false
    }

    /// The inode number of an in-place journal; 0: a journal of records.
    fn inode_in_place(&self) -> u64 {
        0
    }

    /// Whether a recovery would find the journal; or would have a moment ago, if asking at every SYNC would cost too
    /// much.
    fn finds_journal(&self, cx: Context<'_>) -> bool;

    /// Whether a recovery would find the journal now: always looks, also where the file is.
    fn finds_journal_now(&self, cx: Context<'_>) -> bool;

    /// A recovery would not find the journal: gives it its name back, or fails. The gate is closed.
    fn make_journal_anew(&self, cx: Context<'_>) -> Result<()>;

    /// Whether it can write alternately under the write lease.
    fn may_alternate(&self) -> bool {
        false
    }

    /// Brings the file to the committed state, including its size if possible; the open epoch's bytes in the file
    /// move to the journal. The gate is closed. After an error some blocks do not show the committed state yet. False:
    /// the file is longer than committed, by what the open epoch has appended.
    fn expose(&self, _cx: Context<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Makes room in advance, outside the gate, since it may take long.
    fn prepare(&self, _cx: Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Prepares a piece of log space for the next writers, or gives back some memory that they do not need, outside the
    /// gate. Returns whether there is more to do.
    fn make_ready(&self, _cx: Context<'_>) -> bool {
        false
    }

    /// Whether [`make_ready`](Self::make_ready) may have memory to give back after a while.
    fn has_surplus(&self, _cx: Context<'_>) -> bool {
        false
    }

    /// Moves some committed blocks to the file. Inside the gate; takes only free locks. Returns whether it moved any.
    fn checkpoint_some(&self, cx: Context<'_>) -> Result<bool>;

    /// Finishes a checkpoint round outside the gate, since it may take long. Returns whether there was anything to
    /// do.
    fn finish_checkpoint(&self, cx: Context<'_>) -> Result<bool>;

    /// For `famio flush`: one round of writing back everything that is committed, whatever is usually kept or waited
    /// for. Inside the gate. Returns whether another one may move more.
    fn flush_round(&self, cx: Context<'_>) -> Result<bool> {
        self.checkpoint_some(cx)
    }

    /// For a journal in place: after this many rounds, `expose` does the rest.
    fn flush_rounds(&self, _cx: Context<'_>) -> u32 {
        u32::MAX - 1
    }

    /// Finishes such rounds, outside the gate: what they have written is durable in the file.
    fn finish_flush(&self, cx: Context<'_>) -> Result<()>;

    /// Writes back blocks that are held up only by the open epoch, where possible. Inside the gate.
    fn flush_rest(&self, _cx: Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Whether the file has everything up to this epoch of the journal, durably, and this size, unless it was cut
    /// since.
    fn has_flushed(&self, _cx: Context<'_>, _epoch: u64, _size: u64) -> bool {
        false
    }

    /// Whether the journal is larger than necessary, and empty.
    fn can_shrink(&self, cx: Context<'_>) -> bool;

    /// Frees the journal's space except for a small rest. The gate is closed.
    fn shrink(&self, cx: Context<'_>) -> Result<()>;

    /// Gives back to a pool with a size what others need, or `all` that the journal does not: in the background,
    /// outside the gate.
    fn give_back(&self, _cx: Context<'_>, _all: bool) -> Result<()> {
        Ok(())
    }

    /// The same at a SYNC, for a journal that can't do it otherwise. The gate is closed, the epoch committed.
    fn give_back_at_sync(&self, _cx: Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Moves everything to the file, cuts the file to its size, and removes the journal. The gate is closed, the
    /// epoch committed.
    fn retire(&self, cx: Context<'_>) -> Result<()>;

    /// Leaves the journal as it is, for a recovery: nothing is done outside the gate from now on.
    fn abandon(&self) {}

    /// Adds to `words` what the session's next owner has to know about this engine. The gate is closed. False: not
    /// now, since work outside the gate is under way.
    fn leave_state(&self, cx: Context<'_>, words: &mut Vec<u64>) -> Result<bool>;

    /// Continues where the last owner, perhaps in another process, has left it. The gate is closed.
    ///
    /// # Errors
    /// `EIO`: the words are invalid.
    fn take_state(&self, cx: Context<'_>, words: &mut Words<'_>) -> Result<()>;

    /// Whether anything waits for a checkpoint.
    fn is_waiting(&self, cx: Context<'_>) -> bool;

    /// Whether the journal is so full that a checkpoint should not wait for a quiet moment.
    fn is_pressed(&self, cx: Context<'_>) -> bool;
}

/// Sets the inode's time to that of the last write, or to what the program has set since. Only the file's owner may;
/// otherwise the time of the last checkpoint write stays.
pub(crate) fn restore_times(shared: &Shared, fd: BorrowedFd<'_>) {
    if let Some(Modified { time, .. }) = shared.last_change() {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
            last_modification: Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec },
        };
        let _ = rustix::fs::futimens(fd, &times);
    }
}
