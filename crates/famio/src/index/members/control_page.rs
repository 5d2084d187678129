//! The control page: what all members of a file see.

use super::life::Life;
use crate::error::{Error, Result};
use crate::map::guard;
use crate::sys::shm;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use std::os::fd::AsFd;

/// Bytes of a control file.
pub(crate) const SIZE: usize = 4096;

/// Processes that may have one file open at a time.
pub(in crate::index) const MEMBERS: usize = 64;

/// One process, while its slot is locked.
#[repr(C)]
pub(in crate::index) struct Member {
    /// Names the process and is never used again; 0: it has detached, and its writes belong to no process any more.
    pub(in crate::index) id: AtomicU64,
    /// The number of its current tenure. Writes of its earlier tenures stay.
    pub(in crate::index) tenure: AtomicU64,
    /// [`CAN_COMMIT`] and [`HAS_OWNED`].
    pub(in crate::index) roles: AtomicU16,
    /// Not 0: it waits for ownership, and looked at that millisecond.
    pub(in crate::index) waits: AtomicU16,
    /// Changes when its background is to look: the futex for which that sleeps.
    pub(in crate::index) calls: AtomicU32,
    /// The number of the arena whose session it can own; 0: of none.
    pub(in crate::index) attached: AtomicU64,
    /// Its maps (`membership::maps`).
    pub(in crate::index) maps: AtomicU64,
    pub(in crate::index) life: Life,
}

/// "FAMIODRC".
pub(in crate::index) const MAGIC: u64 = u64::from_le_bytes(*b"FAMIODRC");

/// In [`Member::roles`]: it has the file open to write.
pub(in crate::index) const CAN_COMMIT: u16 = 1;
/// In [`Member::roles`]: it has been the owner, so that something uncommitted may be its own.
pub(in crate::index) const HAS_OWNED: u16 = 2;

/// In [`Page::state`]: a process has a session, or died with one.
pub(crate) const SESSION: u64 = 1;
/// In [`Page::state`]: the open epoch lies in a hand-over image.
pub(crate) const HAS_IMAGE: u64 = 2;
/// In [`Page::state`]: the file is mapped; its current bytes lie in memory that all members share.
pub(crate) const SHADOW: u64 = 4;
/// In [`Page::state`]: the file now has another control file, since its folder or name has changed.
pub(crate) const MOVED: u64 = 8;
/// In [`Page::state`], with [`SESSION`]: no process owns the session now. It is whole, and the next owner goes on
/// with it.
pub(crate) const UNOWNED: u64 = 16;
pub(in crate::index) const CHANGE: u64 = 32;

/// A member's flag: it has maps of the kernel's file, which must become maps of the shadow before the file is
/// changed.
pub(crate) const KERNELS: u64 = 1;
/// A member's flag: it may store through its maps of the shadow.
pub(crate) const STORES: u64 = 2;

/// Value of [`Page::no_hand_over`].
pub(in crate::index) const END_WANTED: u32 = 2;

/// Whether a request to flush came after another. The numbers wrap.
pub(in crate::index) fn is_later(number: u32, than: u32) -> bool {
    number.wrapping_sub(than) as i32 > 0
}

impl Member {
    pub(in crate::index) fn can_commit(&self) -> bool {
        self.roles.load(Ordering::Acquire) & CAN_COMMIT != 0
    }

    pub(in crate::index) fn set_can_commit(&self, can: bool) {
        if can {
            self.roles.fetch_or(CAN_COMMIT, Ordering::AcqRel);
        } else {
            self.roles.fetch_and(!CAN_COMMIT, Ordering::AcqRel);
        }
    }
}

/// Requests to write back what is committed (`flush`).
#[derive(Default)]
#[repr(C)]
pub(crate) struct FlushWords {
    /// The number of the last request.
    pub(in crate::index) asked: AtomicU32,
    /// Counts the looks of requesting processes for the answer.
    pub(in crate::index) polls: AtomicU32,
    /// The request that is being served, or was last.
    pub(in crate::index) begun: AtomicU32,
    /// Counts the answers.
    pub(in crate::index) answers: AtomicU32,
    /// The last request that was answered, and above it its error; 0: none.
    pub(in crate::index) answer: AtomicU64,
    /// The epoch of the journal up to which the file has to have everything.
    pub(in crate::index) until: AtomicU64,
    /// Bytes that were written back for it.
    pub(in crate::index) moved: AtomicU64,
}

/// What all members see. Other processes write it, so no value is ever used as an address.
#[repr(C)]
pub(crate) struct Page {
    pub(in crate::index) magic: AtomicU64,
    /// [`SESSION`], [`HAS_IMAGE`], [`SHADOW`], [`MOVED`], [`UNOWNED`], and above them a count of changes. Only the
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
    pub(in crate::index) owner: AtomicU64,
    /// The number of the file with the hand-over image.
    pub(in crate::index) epoch: AtomicU64,
    /// Not 0: the number of a file that is being written or removed. If its process was killed meanwhile, the file is
    /// removed.
    pub(in crate::index) unfinished: AtomicU64,
    /// Not 0: hand-over images with this number or a higher one are kept even if all processes are killed.
    pub(in crate::index) kept: AtomicU64,
    /// The number of an image that has all uncommitted bytes, whatever the journal of a dead process says.
    pub(in crate::index) whole: AtomicU64,
    /// Not 0: all processes were killed, one of them could store through maps, and these stores are lost.
    pub(in crate::index) lost_stores: AtomicU64,
    /// The last number that was given out, to a process or a file.
    pub(in crate::index) numbers: AtomicU64,
    /// Counts the requests for ownership.
    pub(in crate::index) requests: AtomicU32,
    /// Counts what members wait for: hand-overs, ends of ownership, and other announced changes. A futex.
    pub(in crate::index) changes: AtomicU32,
    /// Not 0: the process id of an owner that cannot hand over.
    pub(in crate::index) stuck: AtomicU32,
    /// The slot, plus one, of the process that has the session or died with it; 0: none.
    pub(in crate::index) holder: AtomicU32,
    /// Not 0: the shared shadow may have stores at unknown places.
    pub(in crate::index) unknown_stores: AtomicU32,
    /// All slots at or above this one are free.
    pub(in crate::index) places: AtomicU32,
    /// Counts the requested hand-overs, for measurements.
    pub(in crate::index) hand_overs: AtomicU32,
    /// The lock of file positions that several processes share (`positions`).
    pub(in crate::index) positions: AtomicU32,
    /// 1: a process has read along in the session since its owner acquired it, so no thread gets exclusive mode.
    pub(in crate::index) read_along: AtomicU32,
    /// 1: some member, past or present, cannot attach to the sessions of others, so a session ends when its
    /// owner changes. [`END_WANTED`]: a process waits for the end of this session.
    pub(in crate::index) no_hand_over: AtomicU32,
    /// 1: all processes of the last session were killed, and their uncommitted changes are gone.
    pub(in crate::index) all_killed: AtomicU32,
    /// Counts as `changes`. Processes that want ownership sleep on this futex; an owner that leaves wakes one of them.
    pub(in crate::index) releases: AtomicU32,
    /// The number of the shared shadow's file. Without [`SHADOW`] it is being made; if its process was killed
    /// meanwhile, the file is removed.
    pub(in crate::index) shadow: AtomicU64,
    /// The size of the shared shadow in bytes.
    pub(in crate::index) shadow_size: AtomicU64,
    /// The inode of the folder `shm`.
    pub(in crate::index) shm_inode: AtomicU64,
    pub(in crate::index) members: [Member; MEMBERS],
    /// Requests to write back what is committed.
    pub(in crate::index) flush: FlushWords,
    /// 1: a growing file is about to get a session. Until that has begun, the kernel's size is not the file's.
    pub(in crate::index) grows_no_more: AtomicU64,
    /// The device of the members' file; 0: not known. A copy of the file system, mounted beside it, has another.
    pub(in crate::index) device: AtomicU64,
    /// A bit for each slot whose process keeps read locks that its program has unlocked.
    pub(in crate::index) keepers: AtomicU64,
    /// Those of them that did not answer a recall.
    pub(in crate::index) hung_keepers: AtomicU64,
    /// A bit for each slot whose process waits in the kernel for a record lock.
    pub(in crate::index) lock_waiters: AtomicU64,
    /// Counts recalls of kept locks.
    pub(in crate::index) recalls: AtomicU32,
    /// How many processes wait for the end of kept locks. Too high after one was killed that did.
    pub(in crate::index) recallers: AtomicU32,
    /// Counts ends of kept locks. A futex.
    pub(in crate::index) kept_locks_ended: AtomicU32,
}

const _: () = assert!(size_of::<Page>() <= SIZE && MEMBERS <= u64::BITS as usize);

impl Page {
    /// Wakes the background of the member in a slot.
    pub(in crate::index) fn call(&self, member: &Member) {
        member.calls.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&member.calls, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Wakes those of all members but the one with that number.
    pub(in crate::index) fn call_all_but(&self, id: u64) {
        let slots = &self.members[..(self.places.load(Ordering::Acquire) as usize).min(MEMBERS)];
        let others = slots.iter().filter(|member| ![0, id].contains(&member.id.load(Ordering::SeqCst)));
        others.for_each(|member| self.call(member));
    }

    /// The path of shared memory of the file with this control file (device and inode) and key. A user who copies these
    /// words into a control file of their own gets other paths.
    pub(in crate::index) fn path(control: (u64, u64), key: u64, number: u64, what: &str) -> String {
        let (folder, (device, inode)) = (shm::folder(), control);
        format!("{folder}/famio-{device:x}-{inode:x}-{key:016x}-{number:016x}.{what}")
    }
}

/// Stands for the page until this process has attached. No other process sees it.
pub(in crate::index) static NOBODYS: Page = {
    // SAFETY: zeros are a valid page.
    unsafe { core::mem::zeroed() }
};

/// Maps the page, in the place of `old` unless that is null. If another process truncates the file, zeros take its
/// place.
pub(in crate::index) fn map(file: impl AsFd, old: *mut Page) -> Result<NonNull<Page>> {
    guard::install()?;
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
pub(in crate::index) unsafe fn unmap(page: NonNull<Page>) {
    guard::end_stand_in(page.as_ptr() as usize);
    // SAFETY: the caller's promise.
    let _ = unsafe { rustix::mm::munmap(page.as_ptr().cast(), SIZE) };
}

/// The byte of a slot. Its process has it locked; the lock goes when the process ends, however it does.
pub(in crate::index) fn place(at: u32) -> Range<i64> {
    i64::from(at)..i64::from(at) + 1
}
