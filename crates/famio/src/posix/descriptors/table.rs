//! Which descriptors belong to atomic files: a two-level table, unbounded, read without a lock.

use super::description::{Borrowed, Description, Handle};
use super::unlock;
use crate::fast_path::FAST_PATH;
use crate::file::{Access, Call};
use crate::posix::runtime::say::say;
use crate::posix::runtime::state::in_vfork_child;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::os::fd::RawFd;
use std::sync::OnceLock;

/// The number of low bits of a descriptor that select a slot in its leaf.
#[doc(hidden)]
pub const LEAF_BITS: u32 = 12;
const LEAF: usize = 1 << LEAF_BITS;
/// Leaves for every non-negative descriptor. Untouched pages of this static take no memory.
const LEAVES: usize = 1 << (31 - LEAF_BITS);

type Slot = AtomicPtr<Description>;
type Leaf = [Slot; LEAF];

static ROOT: [AtomicPtr<Leaf>; LEAVES] = [const { AtomicPtr::new(ptr::null_mut()) }; LEAVES];
/// The highest descriptor that was ever in the table, where scans end.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// The address of a static of the library, for the fronts of the preload library, which read it without a call.
#[doc(hidden)]
#[repr(transparent)]
pub struct Looked(*const core::ffi::c_void);

// SAFETY: an address of atomic words.
unsafe impl Sync for Looked {}

impl Looked {
    /// Indexed by a descriptor's high bits: the leaf, or null. The leaf, indexed by the low bits: null if the
    /// descriptor is not an atomic file's.
    pub const DESCRIPTORS: Self = Self((&raw const ROOT).cast());
    /// The [`fast-path state`](crate::fast_path).
    pub const FAST_PATH: Self = Self((&raw const FAST_PATH).cast());
}

#[inline]
fn slot(fd: RawFd) -> Option<&'static Slot> {
    if fd < 0 {
        return None;
    }
    let leaf = ROOT[fd as usize >> LEAF_BITS].load(Ordering::Acquire);
    // SAFETY: a leaf is never freed.
    unsafe { leaf.as_ref() }.map(|leaf| &leaf[fd as usize & (LEAF - 1)])
}

fn slot_or_new(fd: RawFd) -> &'static Slot {
    if let Some(slot) = slot(fd) {
        return slot;
    }
    let entry = &ROOT[fd as usize >> LEAF_BITS];
    let leaf: Box<Leaf> =
        (0..LEAF).map(|_| Slot::new(ptr::null_mut())).collect::<Vec<_>>().try_into().expect("LEAF slots");
    let new = Box::into_raw(leaf);
    if entry.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: another thread was first; `new` was never shared.
        drop(unsafe { Box::from_raw(new) });
    }
    slot(fd).expect("a leaf has just been put there")
}

/// What makes a description of the parent's one of this process: set before any can be in the table.
static ADOPT: OnceLock<fn(RawFd, &'static Description)> = OnceLock::new();

/// To be called at the start (`inherit::adopt`).
pub(in crate::posix) fn adopt_by(adopt: fn(RawFd, &'static Description)) {
    let _ = ADOPT.set(adopt);
}

#[cold]
fn adopt(fd: RawFd, theirs: &'static Description) {
    if let Some(adopt) = ADOPT.get() {
        adopt(fd, theirs);
    }
}

/// Number of [`Unlisted`].
static UNLISTED: AtomicUsize = AtomicUsize::new(0);

/// An atomic file that the program uses without a descriptor of its own: while this lives, [`any`] is true.
pub(in crate::posix) struct Unlisted(());

impl Unlisted {
    pub fn new() -> Self {
        UNLISTED.fetch_add(1, Ordering::Relaxed);
        FAST_PATH.descriptors.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// Whether there are any.
    pub fn any() -> bool {
        UNLISTED.load(Ordering::Relaxed) != 0
    }
}

impl Drop for Unlisted {
    fn drop(&mut self) {
        FAST_PATH.descriptors.fetch_sub(1, Ordering::Relaxed);
        UNLISTED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether any descriptor, or any map, is an atomic file's.
#[inline]
pub fn any() -> bool {
    FAST_PATH.any()
}

/// Whether `fd` is an atomic file's. Costs two loads.
#[inline]
pub fn is_managed(fd: RawFd) -> bool {
    slot(fd).is_some_and(|slot| !slot.load(Ordering::Relaxed).is_null())
}

/// The open description of `fd`; the handle keeps it valid. A description inherited by fork first becomes this
/// process's own.
#[inline]
pub fn get(fd: RawFd) -> Option<Handle> {
    let handle = get_as_it_is(fd)?;
    if handle.is_foreign() {
        adopt(fd, handle.description());
        return get_as_it_is(fd);
    }
    Some(handle)
}

/// As [`get`], but in a forked child the description may be the parent's.
fn get_as_it_is(fd: RawFd) -> Option<Handle> {
    let slot = slot(fd)?;
    loop {
        let description = slot.load(Ordering::Acquire);
        // SAFETY: descriptions are reused but never freed.
        let handle = unsafe { description.as_ref() }?.try_hold();
        if let Some(handle) = handle
            && slot.load(Ordering::Acquire) == description
        {
            return Some(handle);
        }
    }
}

/// Whether the table's entry for `fd` is this description.
pub(in crate::posix) fn leads_to(fd: RawFd, description: &'static Description) -> bool {
    slot(fd).is_some_and(|slot| ptr::eq(slot.load(Ordering::Acquire), description))
}

/// The open description of `fd`, for one call. A description inherited by fork first becomes this process's own.
#[inline(always)]
pub(in crate::posix) fn borrow(fd: RawFd) -> Option<Borrowed> {
    let borrowed = borrow_as_it_is(fd)?;
    if borrowed.is_foreign() { adopt_and_borrow(fd, borrowed) } else { Some(borrowed) }
}

#[cold]
fn adopt_and_borrow(fd: RawFd, borrowed: Borrowed) -> Option<Borrowed> {
    let theirs = borrowed.description();
    drop(borrowed);
    adopt(fd, theirs);
    borrow_as_it_is(fd)
}

#[inline]
fn borrow_as_it_is(fd: RawFd) -> Option<Borrowed> {
    let slot = slot(fd)?;
    if slot.load(Ordering::Relaxed).is_null() {
        return None;
    }
    let call = Call::begin();
    // SAFETY: descriptions are never freed. A thread that takes this one out of the table waits for the call that has
    // begun.
    let description = unsafe { slot.load(Ordering::Acquire).as_ref() }?;
    Some(Borrowed::new(description, call))
}

/// Enters a description for a descriptor that the kernel has just returned. If the table still has an entry, the
/// program has closed that descriptor unseen.
pub(in crate::posix) fn install(fd: RawFd, handle: Handle) {
    HIGHEST.fetch_max(fd as usize, Ordering::Relaxed);
    let old = slot_or_new(fd).swap(handle.into_raw(), Ordering::AcqRel);
    if old.is_null() {
        FAST_PATH.descriptors.fetch_add(1, Ordering::Relaxed);
    } else {
        // SAFETY: the slot's count comes with the pointer that was taken out.
        release(fd, unsafe { Handle::from_raw(old) });
    }
}

/// Takes `fd` out of the table. Returns the descriptor's own reference, if it had one.
pub(in crate::posix) fn take(fd: RawFd) -> Option<Handle> {
    let old = slot(fd)?.swap(ptr::null_mut(), Ordering::AcqRel);
    if old.is_null() {
        return None;
    }
    FAST_PATH.descriptors.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: the slot's count comes with the pointer that was taken out.
    Some(unsafe { Handle::from_raw(old) })
}

/// Drops an entry whose descriptor the kernel has closed or reused.
#[cold]
pub fn forget(fd: RawFd) {
    if let Some(handle) = take(fd) {
        release(fd, handle);
    }
}

/// After a call that returned the new descriptor `fd`: drops a stale entry.
#[inline]
pub fn fresh(fd: isize) -> isize {
    if (0..=i32::MAX as isize).contains(&fd) && is_managed(fd as RawFd) && !in_vfork_child() {
        forget(fd as RawFd);
    }
    fd
}

/// As [`fresh`], after a call that returns two descriptors.
///
/// # Safety
/// The kernel has just filled in `fds`, if `result` is 0.
pub unsafe fn fresh_pair(result: isize, fds: *const [RawFd; 2]) -> isize {
    if result == 0 && any() {
        // SAFETY: the caller's promise.
        for fd in unsafe { *fds } {
            fresh(fd as isize);
        }
    }
    result
}

fn release(fd: RawFd, handle: Handle) {
    if !handle.is_ours() {
        return;
    }
    unlock::before_close(&handle);
    if let Err(error) = handle.file().remove_descriptor(fd) {
        say(handle.path(), &format!("closed behind the library's back: {error}; check the file"));
    }
}

/// Calls `visit` for every managed descriptor in `first..=last`.
pub(in crate::posix) fn for_each(first: u32, last: u32, mut visit: impl FnMut(RawFd, &Handle)) {
    if !any() {
        return;
    }
    let last = last.min(HIGHEST.load(Ordering::Relaxed) as u32);
    let mut fd = first;
    while fd <= last {
        if ROOT[fd as usize >> LEAF_BITS].load(Ordering::Acquire).is_null() {
            fd = (fd | (LEAF as u32 - 1)) + 1;
            continue;
        }
        if let Some(handle) = get_as_it_is(fd as RawFd) {
            visit(fd as RawFd, &handle);
        }
        fd += 1;
    }
}

/// In a forked child: makes the parent's descriptions for which `wanted` is true the child's own.
pub(in crate::posix) fn adopt_all(wanted: impl Fn(&Handle) -> bool) {
    let mut inherited = Vec::new();
    for_each(0, u32::MAX, |fd, handle| {
        if handle.is_foreign() && wanted(handle) {
            inherited.push(fd);
        }
    });
    inherited.into_iter().for_each(|fd| drop(get(fd)));
}

/// The [`Access`] for a kernel's access mode.
pub(in crate::posix) fn access(kernel: i32) -> Access {
    if kernel == libc::O_RDONLY { Access::Read } else { Access::Write }
}
