//! The control page: what all processes of a file see.

use super::life::Life;
use crate::error::{Error, Result};
use crate::map::guard;
use crate::sys::shm;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::AsFd;

/// Bytes of a control file.
pub(crate) const SIZE: usize = 4096;

/// Processes that may have one file open at a time.
pub(in crate::index) const MEMBERS: usize = 64;

/// One process, while its place is locked.
#[repr(C)]
pub(in crate::index) struct Member {
    /// Names the process, never twice; 0: it has left, and what it wrote is everybody's.
    pub(in crate::index) id: AtomicU64,
    /// Which of its tenures runs: what it wrote in earlier ones is everybody's.
    pub(in crate::index) tenure: AtomicU64,
    /// 1: it can commit.
    pub(in crate::index) writes: AtomicU64,
    /// The number of the arena whose session it can own; 0: of none.
    pub(in crate::index) attached: AtomicU64,
    /// What it has of maps (`door::maps`).
    pub(in crate::index) maps: AtomicU64,
    pub(in crate::index) life: Life,
}

/// "FAMIODR9".
pub(in crate::index) const MAGIC: u64 = u64::from_le_bytes(*b"FAMIODR9");

/// In [`Page::state`]: a process has a session, or died with one.
pub(crate) const SESSION: u64 = 1;
/// In [`Page::state`]: the open epoch travels.
pub(crate) const TRAVELS: u64 = 2;
/// In [`Page::state`]: the file is mapped; its bytes as they are now lie in memory that all processes share.
pub(crate) const SHADOW: u64 = 4;
/// In [`Page::state`]: the file is found by another control file now, since it has got another folder or name.
pub(crate) const MOVED: u64 = 8;
/// In [`Page::state`], with [`SESSION`]: no process owns the session at this moment. It is whole, and the next owner goes on with it.
pub(crate) const UNOWNED: u64 = 16;
pub(in crate::index) const CHANGE: u64 = 32;

/// Of a process: it has maps of the kernel's file, which have to become maps of the shadow before the file is changed.
pub(crate) const KERNELS: u64 = 1;
/// Of a process: it may store through its maps of the shadow.
pub(crate) const STORES: u64 = 2;

/// Of [`Page::apart`].
pub(in crate::index) const END_WANTED: u32 = 2;

/// What all processes see. Plain words: no value is trusted as an address.
#[repr(C)]
pub(crate) struct Page {
    pub(in crate::index) magic: AtomicU64,
    /// [`SESSION`], [`TRAVELS`], [`SHADOW`], [`MOVED`], [`UNOWNED`], and above them a count of changes. Changed only by who has the turn.
    pub(in crate::index) state: AtomicU64,
    /// A random number, in the names of all the shared memory that belongs to this file: nobody else can guess them.
    pub(in crate::index) key: AtomicU64,
    /// The number of the arena of the last session; 0: there is none.
    pub(in crate::index) arena: AtomicU64,
    /// The device of the folder in which its processes share memory (`sys::shm`): containers can have one of their own.
    pub(in crate::index) shm: AtomicU64,
    /// The process id of the owner (low half) and its PID namespace (high half), for messages.
    pub(in crate::index) claimant: AtomicU64,
    /// The number of the file in which the epoch travels.
    pub(in crate::index) epoch: AtomicU64,
    /// Not 0: the number of a file that is being written, or removed: it is to go if that came to no end.
    pub(in crate::index) unfinished: AtomicU64,
    /// Not 0: epochs that travel with this number or a later one stay, though all processes are killed.
    pub(in crate::index) kept: AtomicU64,
    /// The number of an epoch that has all that is not committed, whatever the journal of a dead process says.
    pub(in crate::index) whole: AtomicU64,
    /// Not 0: one of the processes, which were all killed, could store through maps, and these stores are gone.
    pub(in crate::index) lost_stores: AtomicU64,
    /// The last number that was given out, to a process or a file.
    pub(in crate::index) numbers: AtomicU64,
    /// Counts those who came and want the turn.
    pub(in crate::index) bell: AtomicU32,
    /// Counts the turns that were given, and the sessions that began.
    pub(in crate::index) given: AtomicU32,
    /// Not 0: whose turn it is can't give it; its process id.
    pub(in crate::index) stuck: AtomicU32,
    /// The place, plus one, of who has the session or died with it; 0: nobody.
    pub(in crate::index) holder: AtomicU32,
    /// Not 0: in the shared shadow there may be stores that nobody knows the place of.
    pub(in crate::index) unknown_stores: AtomicU32,
    /// All places at or above this one are free.
    pub(in crate::index) places: AtomicU32,
    /// Counts the turns that processes gave to others, for those who measure.
    pub(in crate::index) hand_overs: AtomicU32,
    /// The lock of positions that several processes have (`positions`).
    pub(in crate::index) positions: AtomicU32,
    /// 1: a process has read along in a session since the turn was taken: no thread gets the file alone.
    pub(in crate::index) read_along: AtomicU32,
    /// 1: a process is, or was, here that can't attach to a session of others: sessions are ended when the owner changes.
    /// [`END_WANTED`]: one waits for the end of this one.
    pub(in crate::index) apart: AtomicU32,
    /// 1: all processes of the last session were killed, and what they had not committed is gone with them.
    pub(in crate::index) all_killed: AtomicU32,
    spare: AtomicU32,
    /// The number of the shared shadow's file; without [`SHADOW`] one that is being made, and is to go if that came to no end.
    pub(in crate::index) shadow: AtomicU64,
    /// Bytes of the file that the shared shadow has.
    pub(in crate::index) shadow_size: AtomicU64,
    /// The inode of that folder.
    pub(in crate::index) shm_inode: AtomicU64,
    pub(in crate::index) members: [Member; MEMBERS],
}

const _: () = assert!(size_of::<Page>() <= SIZE);

impl Page {
    /// Whether one with these words belongs to a file with a session, of a process that may have died, or with an open epoch.
    pub(in crate::index) fn is_in_use(magic: u64, state: u64) -> bool {
        magic == MAGIC && state & (SESSION | TRAVELS) != 0
    }

    /// The path of something that belongs to the file of this control file (device and inode), with this key. Who copies the
    /// words of another's into a control file of his own names nothing of that one's by them.
    pub(in crate::index) fn path(control: (u64, u64), key: u64, number: u64, what: &str) -> String {
        let (folder, (device, inode)) = (shm::folder(), control);
        format!("{folder}/famio-{device:x}-{inode:x}-{key:016x}-{number:016x}.{what}")
    }
}

/// In the place of a page before this process has come: nobody else looks at it.
pub(in crate::index) static NOBODYS: Page = {
    // SAFETY: zeros are a valid page.
    unsafe { core::mem::zeroed() }
};

/// Maps the page, in the place of `old` unless that is null. If another process makes the file shorter, zeros take its place.
pub(in crate::index) fn map(file: impl AsFd, old: *mut Page) -> Result<NonNull<Page>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = if old.is_null() { MapFlags::SHARED } else { MapFlags::SHARED | MapFlags::FIXED };
    // SAFETY: a new mapping, or one in the place of ours; the guard stands in for what somebody takes from behind it.
    let at = unsafe { rustix::mm::mmap(old.cast(), SIZE, protection, flags, file, 0) };
    let at = at.map_err(|e: Errno| Error::from(e))?;
    crate::sys::keep_from_children(at.cast(), SIZE);
    guard::stand_in_for(at as usize, SIZE);
    NonNull::new(at.cast()).ok_or(Error::new(libc::ENOMEM))
}

/// Unmaps a page.
///
/// # Safety
/// It came from [`map`], and nobody uses it any more.
pub(in crate::index) unsafe fn unmap(page: NonNull<Page>) {
    guard::stand_in_no_more(page.as_ptr() as usize);
    // SAFETY: the caller's promise.
    let _ = unsafe { rustix::mm::munmap(page.as_ptr().cast(), SIZE) };
}

/// The byte of a place: its process has it locked. The lock goes with the process, however that ends.
pub(in crate::index) fn place(at: u32) -> Range<i64> {
    i64::from(at)..i64::from(at) + 1
}
