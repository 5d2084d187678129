//! The control page: what all members of a file see.

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
/// In [`Page::state`]: the open epoch lies in a hand-over image.
pub(crate) const TRAVELS: u64 = 2;
/// In [`Page::state`]: the file is mapped; its current bytes lie in memory that all members share.
pub(crate) const SHADOW: u64 = 4;
/// In [`Page::state`]: the file now has another control file, since its folder or name has changed.
pub(crate) const MOVED: u64 = 8;
/// In [`Page::state`], with [`SESSION`]: no process owns the session now. It is whole, and the next owner goes on
/// with it.
pub(crate) const UNOWNED: u64 = 16;
pub(in crate::index) const CHANGE: u64 = 32;

/// Value of [`Page::apart`].
pub(super) const END_WANTED: u32 = 2;

/// What all members see. Other processes write it, so no value is ever used as an address.
#[repr(C)]
pub(crate) struct Page {
    pub(in crate::index) magic: AtomicU64,
    /// [`SESSION`], [`TRAVELS`], [`SHADOW`], [`MOVED`], [`UNOWNED`], and above them a count of changes. Only the
    /// owner changes it.
    pub(in crate::index) state: AtomicU64,
    /// A random number in the names of all shared memory of this file, so that other users cannot guess the names.
    pub(in crate::index) key: AtomicU64,
    /// The number of the arena of the last session; 0: there is none.
    pub(in crate::index) arena: AtomicU64,
    /// The device of the folder in which the members share memory (`sys::shm`): a container can have a folder of its
    /// own.
    pub(in crate::index) shm: AtomicU64,
    /// The process id of the owner (low half) and its PID namespace (high half), for messages.
    pub(in crate::index) claimant: AtomicU64,
    /// The number of the file with the hand-over image.
    pub(in crate::index) epoch: AtomicU64,
    /// Not 0: the number of a file that is being written or removed. If its process was killed meanwhile, the file is
    /// removed.
    pub(in crate::index) unfinished: AtomicU64,
    /// Not 0: hand-over images with this number or a higher one are kept even if all processes are killed.
    pub(in crate::index) kept: AtomicU64,
    /// The number of an image that has all uncommitted bytes, whatever the journal of a dead process says.
    pub(super) whole: AtomicU64,
    /// Not 0: all processes were killed, one of them could store through maps, and these stores are lost.
    pub(super) lost_stores: AtomicU64,
    /// The last number that was given out, to a process or a file.
    pub(super) numbers: AtomicU64,
    /// Counts the requests for ownership.
    pub(super) bell: AtomicU32,
    /// Counts the hand-overs, and the sessions that began.
    pub(super) given: AtomicU32,
    /// Not 0: the process id of an owner that cannot hand over.
    pub(super) stuck: AtomicU32,
    /// The slot, plus one, of the process that has the session or died with it; 0: none.
    pub(super) holder: AtomicU32,
    /// Not 0: the shared shadow may have stores at unknown places.
    pub(super) unknown_stores: AtomicU32,
    /// All slots at or above this one are free.
    pub(super) places: AtomicU32,
    /// Counts the requested hand-overs, for measurements.
    pub(in crate::index) hand_overs: AtomicU32,
    /// The lock of file positions that several processes share (`positions`).
    pub(super) positions: AtomicU32,
    /// 1: a process has read along in the session since its owner acquired it, so no thread gets exclusive mode.
    pub(super) read_along: AtomicU32,
    /// 1: some member, past or present, cannot attach to the sessions of others, so a session ends when its
    /// owner changes. [`END_WANTED`]: a process waits for the end of this session.
    pub(super) apart: AtomicU32,
    /// 1: all processes of the last session were killed, and their uncommitted changes are gone.
    pub(super) all_killed: AtomicU32,
    spare: AtomicU32,
    /// The number of the shared shadow's file. Without [`SHADOW`] it is being made; if its process was killed
    /// meanwhile, the file is removed.
    pub(in crate::index) shadow: AtomicU64,
    /// The size of the shared shadow in bytes.
    pub(super) shadow_size: AtomicU64,
    /// The inode of the folder `shm`.
    pub(in crate::index) shm_inode: AtomicU64,
    pub(super) members: [Member; MEMBERS],
}

const _: () = assert!(size_of::<Page>() <= SIZE);

impl Page {
    /// Whether a page with these words belongs to a file with a session (its process may be dead) or an open epoch.
    pub(in crate::index) fn is_in_use(magic: u64, state: u64) -> bool {
        magic == MAGIC && state & (SESSION | TRAVELS) != 0
    }

    /// The path of shared memory of the file with this control file (device and inode) and key. Another user who
    /// copies these words into his own control file gets other paths from them.
    pub(in crate::index) fn path(control: (u64, u64), key: u64, number: u64, what: &str) -> String {
        let (folder, (device, inode)) = (shm::folder(), control);
        format!("{folder}/famio-{device:x}-{inode:x}-{key:016x}-{number:016x}.{what}")
    }
}

/// Stands for the page until this process has attached. No other process sees it.
pub(super) static NOBODYS: Page = {
    // SAFETY: zeros are a valid page.
    unsafe { core::mem::zeroed() }
};

/// Maps the page, in the place of `old` unless that is null. If another process truncates the file, zeros take its
/// place.
pub(super) fn map(file: impl AsFd, old: *mut Page) -> Result<NonNull<Page>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = if old.is_null() { MapFlags::SHARED } else { MapFlags::SHARED | MapFlags::FIXED };
    // SAFETY: a new mapping, or one in the place of ours; the guard substitutes zeros if another process cuts the
    // file.
    let at = unsafe { rustix::mm::mmap(old.cast(), SIZE, protection, flags, file, 0) };
    let at = at.map_err(|e: Errno| Error::from(e))?;
    crate::sys::keep_from_children(at.cast(), SIZE);
    guard::stand_in_for(at as usize, SIZE);
    NonNull::new(at.cast()).ok_or(Error::new(libc::ENOMEM))
}

/// Unmaps a page.
///
/// # Safety
/// It came from [`map`], and no reference to it is left.
pub(super) unsafe fn unmap(page: NonNull<Page>) {
    guard::stand_in_no_more(page.as_ptr() as usize);
    // SAFETY: the caller's promise.
    let _ = unsafe { rustix::mm::munmap(page.as_ptr().cast(), SIZE) };
}
