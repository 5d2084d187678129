//! The first pages of an arena: the state that all processes of a session share.

use super::lock::SharedLock;
use crate::index::blocks::deferred::Deferred;
use crate::index::calls::counts::EpochCounts;
use crate::index::calls::entered::Entered;
use crate::index::calls::gate::Gate;
use crate::index::calls::totals::Totals;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use core::mem::offset_of;
use core::sync::atomic::AtomicU8;
use rustix::fs::Stat;

/// Words for pending blocks: threads are spread over them.
pub(crate) const PENDING: usize = 8;

/// Values of `Shared::lease`.
pub(crate) mod lease {
    /// Not held.
    pub const NONE: u32 = 0;
    /// Held: no outsider has the file open.
    pub const HELD: u32 = 1;
    /// Broken by an outsider, which may still have the file open.
    pub const EXPOSED: u32 = 2;
}

/// The name of a value of `Shared::policy`, see `file::engine::policy`.
pub(crate) fn policy_name(policy: u32) -> &'static str {
    match policy {
        1 => "undo",
        3 => "alternate",
        _ => "redo",
    }
}

/// Bits of `Shared::follow_up`.
pub(crate) mod follow_up {
    /// The file has a shadow, which changes with it. Stays set.
    pub const SHADOW: u32 = 1;
    /// Other processes wrote in the open epoch, and their death could still roll that back. Until the commit.
    pub const OTHERS: u32 = 2;
    /// The program has given the file set-user-id or set-group-id bits, which its next write removes.
    pub const PRIVILEGES: u32 = 4;
}

/// Values of `Shared::images`.
pub(crate) mod images {
    /// None are saved: no other process has the file open.
    pub const NONE: u32 = 0;
    /// Every change of the open epoch has its image.
    pub const ALL: u32 = 1;
    /// Images of an epoch that is being taken up are being saved: not all are there, and the epoch is still where it
    /// was.
    pub const BEGUN: u32 = 3;
    /// Some changes have no image: the owner keeps the session until the commit, or hands over the whole epoch.
    pub const SOME: u32 = 2;
}

/// Instead of a generation in `Shared::open`: no other process reads along.
pub(crate) const CLOSED: u64 = u64::MAX;

/// A value of `Shared::dirty`.
pub(crate) const RELEASED: u32 = 2;

/// What the processes of a session agree on. Other processes write it: every value is checked before it is used as an
/// offset.
#[repr(C, align(64))]
pub(crate) struct Shared {
    /// `MAGIC` once the arena is ready.
    pub magic: AtomicU64,
    /// Where the next allocation starts.
    pub next: AtomicU64,
    /// Held while the arena grows.
    pub growing: SharedLock,
    /// Entered by writers, closed by a SYNC.
    pub gate: Gate,
    /// Held by the thread that makes the file longer.
    pub extending: SharedLock,
    /// 1: the journal is closed, or the file was demoted; a thread that enters has to start over.
    pub closed: AtomicU32,
    /// 1: a flush failed, and its data could not be saved otherwise: no more writes.
    pub poisoned: AtomicU32,
    /// 1: the open epoch has writes. [`RELEASED`]: the process has released a lock since the last of them.
    pub dirty: AtomicU32,
    /// The follow-ups that a change of the file must carry out (`follow_up`, above).
    pub follow_up: AtomicU32,
    /// Counts the sessions that have used this arena, and the changes of their owner.
    pub generation: AtomicU64,
    /// The policy in force (`file::engine::policy`).
    pub policy: AtomicU32,
    /// The write lease on the file (`lease`, above).
    pub lease: AtomicU32,
    /// *C*: the last durable epoch.
    pub committed: AtomicU64,
    /// Epochs that the journal has. Epochs that changed nothing are not among them.
    pub recorded: AtomicU64,
    /// The logical size, in bytes, with the open epoch.
    pub size: AtomicU64,
    /// Two more for each transaction that was committed; odd while one is being copied to its blocks.
    pub transactions: AtomicU64,
    /// The logical size as of *C*.
    pub committed_size: AtomicU64,
    /// The lowest logical size of the open epoch.
    pub epoch_low: AtomicU64,
    /// The lowest logical size since this process acquired ownership.
    pub lowest_since_acquired: AtomicU64,
    /// The inode's size.
    pub physical: AtomicU64,
    /// No byte at or above this offset was ever stored to, in the file or in the log.
    pub stale_end: AtomicU64,
    /// Last change of the file, as `stat` is to show it: seconds and nanoseconds, 0 before the first.
    pub modified: [AtomicU64; 2],
    /// The time that the program has set instead.
    pub set: [AtomicU64; 2],
    /// The value of `modified` then: `set` counts as long as it is the same.
    pub set_after: [AtomicU64; 2],
    /// The next value of `physical`, stored before the system call: a crash may leave either.
    pub physical_next: AtomicU64,
    /// The wall clock, in nanoseconds, when a writer last left. A later change of the inode was an outsider's.
    /// Survives the process, not the boot.
    pub touched: AtomicU64,
    /// Radix tree: offset of the root node, 0 before the first block.
    pub root: AtomicU64,
    /// Radix tree: a lower node to start from for small block numbers, with its level.
    pub skip: AtomicU64,
    /// Free entries of an in-place journal: number of the first plus one, and a count of changes above it.
    pub free: AtomicU64,
    /// Chunks of buffers with some of them free, with all, and those without memory: offset of the first of each list
    /// (`file::records::buffers`). They stay from session to session.
    pub buffers: [AtomicU64; 3],
    /// Buffers that have memory.
    pub buffers_held: AtomicU64,
    /// The most that were in use at once in the present period.
    pub buffers_peak: AtomicU64,
    /// Held while a buffer is taken or given back.
    pub buffers_lock: SharedLock,
    /// Offset of the directory of the links between free entries.
    pub links: AtomicU64,
    /// Entries in use.
    pub used: AtomicU64,
    /// Low half: how many entries of an in-place journal, from the first on, have memory for their log blocks, or will
    /// have it shortly. High half: how often the journal was truncated.
    pub ready: AtomicU64,
    /// The writes in the write-behind buffers (`file::session::deferred`).
    pub deferred: Deferred,
    /// Offset of these buffers; 0: there are none.
    pub deferred_bytes: AtomicU64,
    /// 1: if the process is killed, its open epoch is to be kept, and the arena has all of it.
    pub keeps: AtomicU32,
    /// 1: bytes of the open epoch are being moved, and may be only in the process's own memory.
    pub moving: AtomicU32,
    /// Offset of the table of calls under way (`in_flight`); 0: there is none.
    pub in_flight: AtomicU64,
    /// For journals of records: bytes of the file at or above this offset no longer count; the file is cut later.
    pub file_end: AtomicU64,
    /// The generation whose session other processes may read along; 0: none; all ones: never this one, which could
    /// not end. It is set last when a session begins and cleared first when it ends: what was read before a check of
    /// it belongs to that session.
    pub open: AtomicU64,
    /// 1: a lock was released in the open epoch while no other process was there. A process that comes to read then
    /// acquires ownership, so that what was written under the lock stays.
    pub released: AtomicU32,
    /// How often the file was cut. It wraps around.
    pub cuts: AtomicU32,
    /// The inode number of that session's journal, if it is an in-place one; 0: a journal of records.
    pub journal: AtomicU64,
    /// The inode number of that session's journal, of either kind.
    pub journal_file: AtomicU64,
    /// What an owner leaves for the next one (`file::ownership::hand_over`): offset of its words. Their number and
    /// their room follow.
    pub left: AtomicU64,
    /// See `left`.
    pub left_words: AtomicU64,
    /// See `left`.
    pub left_room: AtomicU64,
    /// Whether before-images are saved (`images`, above).
    pub images: AtomicU32,
    /// The owner's words in `left` are complete.
    pub has_left: AtomicU32,
    /// The first chunk of before-images (`before_images`); 0: there is none yet.
    pub first_image: AtomicU64,
    /// The file's inode number, for a process that finds the arena.
    pub inode: AtomicU64,
    /// The generation in which the file has exactly what was written, all of it committed, so that it can be closed
    /// (`file::lifetime::deferred_close`).
    exact_in: AtomicU64,
    /// The file then ([`Exact`]).
    exact_file: [AtomicU64; 3],
    /// The epoch that it had then, plus one; 0 once the file is written again.
    exact_epoch: AtomicU64,
    /// When the session began, in nanoseconds of the monotonic clock.
    pub begun: AtomicU64,
    /// The paths of the file and its journal at the last attach, and their view of paths (`sys::namespaces`), each
    /// with a zero behind it; or nothing. For a process that finds the arena after its processes are gone.
    pub hints: [AtomicU8; HINTS],
    /// The threads inside the gate.
    pub entered: Entered,
    /// Statistics for other programs.
    pub totals: Totals,
    /// What was done since the last SYNC.
    pub counts: EpochCounts,
    /// Blocks (plus one) that may have unflushed lines: the last one of each group of threads.
    pub pending: [OwnLine; PENDING],
}

/// A file that has exactly what is committed: its size, and the time of its last change. Another program that changes
/// it changes one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exact([u64; 3]);

impl Exact {
    /// The file as it is now.
    pub fn of(stat: &Stat) -> Self {
        Self([stat.st_size as u64, stat.st_ctime as u64, stat.st_ctime_nsec])
    }
}

/// A word that the threads of one group change, in a line of its own.
#[repr(C, align(64))]
pub(crate) struct OwnLine(pub AtomicU64);

/// Bytes for `Shared::hints`.
pub(crate) const HINTS: usize = 2048;

/// Bytes for it at the beginning of an arena.
pub(crate) const SHARED: usize = 8192;

// A reader of a dead process's arena reads only the first page; it needs no totals.
const _: () = assert!(size_of::<Shared>() <= SHARED && offset_of!(Shared, totals) <= 4096);

/// "FAMIOARH".
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"FAMIOARH");

/// A store that does not take the cache line from other processors if the value is the same.
#[inline]
fn store_if_new(word: &AtomicU64, value: u64) {
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Release);
    }
}

impl Shared {
    /// *C*.
    #[inline]
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// The logical size.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Of a session that has no owner: the file, if the last owner has left it with exactly what is committed.
    pub fn exact_file(&self) -> Option<Exact> {
        let is_exact = self.exact_in.load(Ordering::Acquire) == self.generation.load(Ordering::Acquire);
        is_exact.then(|| Exact(self.exact_file.each_ref().map(|word| word.load(Ordering::Acquire))))
    }

    /// As [`exact_file`](Self::exact_file), by the first page of an arena whose processes are gone.
    pub fn exact_file_in(page: &[u8; 4096]) -> Option<Exact> {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| page[at + i]));
        let exact_in = word(offset_of!(Self, exact_in));
        let is_arena = word(offset_of!(Self, magic)) == MAGIC;
        let is_exact = is_arena && exact_in != 0 && exact_in == word(offset_of!(Self, generation));
        is_exact.then(|| Exact(core::array::from_fn(|i| word(offset_of!(Self, exact_file) + i * 8))))
    }

    /// The file is exact while the session is in this generation, which begins after the call.
    pub fn set_exact_file(&self, exact: Exact, generation: u64) {
        self.exact_file.iter().zip(exact.0).for_each(|(to, word)| to.store(word, Ordering::Release));
        self.exact_epoch.store(self.committed() + 1, Ordering::Release);
        self.exact_in.store(generation, Ordering::Release);
    }

    /// An owner has come, or a session begins. A kill between [`set_exact_file`](Self::set_exact_file) and the end of the
    /// generation must not make the next one count as exact.
    pub fn forget_exact_file(&self) {
        self.exact_in.store(0, Ordering::Release);
    }

    /// Whether no process of the session has written since the file was exact. It may be another program's by now, and
    /// has nothing to get from the session.
    pub fn is_still_exact(&self) -> bool {
        self.exact_epoch.load(Ordering::Acquire) == self.committed() + 1 && self.dirty.load(Ordering::Acquire) == 0
    }

    /// An outsider may have the file open.
    #[inline]
    pub fn is_exposed(&self) -> bool {
        self.lease.load(Ordering::Relaxed) == lease::EXPOSED
    }

    /// Records when a writer leaves: later changes of the inode are not ours.
    #[inline]
    pub fn leave_at(&self, now: libc::timespec) {
        store_if_new(&self.touched, now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
    }

    /// The open epoch has writes.
    #[inline]
    pub fn make_dirty(&self) {
        if self.dirty.load(Ordering::Relaxed) != 1 {
            self.exact_epoch.store(0, Ordering::Release);
            self.dirty.store(1, Ordering::Release);
        }
    }

    /// The time of the file's last change, as `stat` is to show it.
    #[inline]
    pub fn modified_at(&self, now: libc::timespec) {
        store_if_new(&self.modified[0], now.tv_sec as u64);
        store_if_new(&self.modified[1], now.tv_nsec as u64);
    }

    /// The journal is new, or was cut: its first `count` entries have memory. What the background prepared before is
    /// not used.
    pub fn begin_entries(&self, count: u64) {
        let cuts = self.ready.load(Ordering::Acquire) >> 32;
        self.ready.store((cuts + 1) << 32 | count, Ordering::Release);
    }

    /// Records the paths of file and journal in this view of paths; nothing if they are too long.
    pub fn set_hints(&self, inode: u64, file: &[u8], journal: &[u8], view: &[u8]) {
        self.inode.store(inode, Ordering::Relaxed);
        let length = file.len() + journal.len() + view.len() + 3;
        let fits = length <= HINTS && !file.contains(&0) && !journal.contains(&0);
        let text = file.iter().chain(&[0]).chain(journal).chain(&[0]).chain(view);
        let text = text.copied().take(if fits { HINTS } else { 0 });
        let bytes = text.chain(core::iter::repeat(0));
        self.hints.iter().zip(bytes).for_each(|(to, byte)| to.store(byte, Ordering::Relaxed));
    }

    /// Records that bytes below `end` may have been stored to.
    #[inline]
    pub fn raise_stale_end(&self, end: u64) {
        if self.stale_end.load(Ordering::Relaxed) < end {
            self.stale_end.fetch_max(end, Ordering::Relaxed);
        }
    }
}
