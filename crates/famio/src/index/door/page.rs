//! The page of a door: what all its processes see.

use super::places::{MEMBERS, Member};
use crate::error::{Error, Result};
use crate::index::control::SIZE;
use crate::map::guard;
use crate::sys::shm;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::AsFd;

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

/// Of [`Page::apart`].
pub(super) const END_WANTED: u32 = 2;

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
    pub(super) whole: AtomicU64,
    /// Not 0: one of the processes, which were all killed, could store through maps, and these stores are gone.
    pub(super) lost_stores: AtomicU64,
    /// The last number that was given out, to a process or a file.
    pub(super) numbers: AtomicU64,
    /// Counts those who came and want the turn.
    pub(super) bell: AtomicU32,
    /// Counts the turns that were given, and the sessions that began.
    pub(super) given: AtomicU32,
    /// Not 0: whose turn it is can't give it; its process id.
    pub(super) stuck: AtomicU32,
    /// The place, plus one, of who has the session or died with it; 0: nobody.
    pub(super) holder: AtomicU32,
    /// Not 0: in the shared shadow there may be stores that nobody knows the place of.
    pub(super) unknown_stores: AtomicU32,
    /// All places at or above this one are free.
    pub(super) places: AtomicU32,
    /// Counts the turns that processes gave to others, for those who measure.
    pub(in crate::index) hand_overs: AtomicU32,
    /// The lock of positions that several processes have (`positions`).
    pub(super) positions: AtomicU32,
    /// 1: a process has read along in a session since the turn was taken: no thread gets the file alone.
    pub(super) read_along: AtomicU32,
    /// 1: a process is, or was, here that can't attach to a session of others: sessions are ended when the owner changes.
    /// [`END_WANTED`]: one waits for the end of this one.
    pub(super) apart: AtomicU32,
    /// 1: all processes of the last session were killed, and what they had not committed is gone with them.
    pub(super) all_killed: AtomicU32,
    spare: AtomicU32,
    /// The number of the shared shadow's file; without [`SHADOW`] one that is being made, and is to go if that came to no end.
    pub(in crate::index) shadow: AtomicU64,
    /// Bytes of the file that the shared shadow has.
    pub(super) shadow_size: AtomicU64,
    /// The inode of that folder.
    pub(in crate::index) shm_inode: AtomicU64,
    pub(super) members: [Member; MEMBERS],
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
pub(super) static NOBODYS: Page = {
    // SAFETY: zeros are a valid page.
    unsafe { core::mem::zeroed() }
};

/// Maps the page, in the place of `old` unless that is null. If another process makes the file shorter, zeros take its place.
pub(super) fn map(file: impl AsFd, old: *mut Page) -> Result<NonNull<Page>> {
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
pub(super) unsafe fn unmap(page: NonNull<Page>) {
    guard::stand_in_no_more(page.as_ptr() as usize);
    // SAFETY: the caller's promise.
    let _ = unsafe { rustix::mm::munmap(page.as_ptr().cast(), SIZE) };
}
