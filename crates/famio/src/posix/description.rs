//! The open file description: what `dup` and `fork` share. Its memory is never given back, only used again, so that a
//! reader that comes too late finds a count of zero and not somebody else's bytes.

use super::lock::{Guard, Lock};
use super::{process, raw, spare};
use crate::error::{Error, Result};
use crate::file::{AtomicFile, Call, Grace};
use core::cell::UnsafeCell;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::sync::Arc;

/// The flags that we keep from the kernel and act out ourselves.
pub(super) const EMULATED: i32 = libc::O_APPEND | libc::O_SYNC | libc::O_DSYNC | libc::O_DIRECT | libc::O_ASYNC;

pub(super) struct Subject {
    file: Arc<AtomicFile>,
    path: CString,
}

/// One open file description of an atomic file.
pub struct Description {
    /// Descriptors and calls in flight; zero: free.
    refs: AtomicUsize,
    /// The fork generation that opened it.
    generation: AtomicU32,
    /// What the program asked for: access mode and [`EMULATED`] flags.
    flags: AtomicI32,
    /// The access mode that the kernel's description has.
    kernel_access: AtomicI32,
    /// The file is an ordinary file again; position and flags are the kernel's.
    handed_back: AtomicBool,
    /// The kernel's `f_pos_lock`.
    position_lock: Lock,
    position: AtomicU64,
    pub(super) subject: UnsafeCell<Option<Subject>>,
    /// Of the lists of `spare`.
    pub(super) next: AtomicPtr<Description>,
    /// Calls that may still use it; under the lock of `spare`.
    pub(super) grace: UnsafeCell<Grace>,
}

// SAFETY: `subject` is written only while nobody else can use it: before the count becomes positive, and when it has become
// zero and no call is inside that began before. `grace` is used under a lock. The rest is atomic.
unsafe impl Sync for Description {}

/// A counted reference to a description.
pub struct Handle(&'static Description);

impl Description {
    pub(super) const fn vacant() -> Self {
        Self {
            refs: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
            flags: AtomicI32::new(0),
            kernel_access: AtomicI32::new(0),
            handed_back: AtomicBool::new(false),
            position_lock: Lock::new(),
            position: AtomicU64::new(0),
            subject: UnsafeCell::new(None),
            next: AtomicPtr::new(ptr::null_mut()),
            grace: UnsafeCell::new(Grace::new()),
        }
    }

    /// The atomic file.
    pub fn file(&self) -> &Arc<AtomicFile> {
        // SAFETY: whoever has `&self` holds a count through a `Handle`, or is inside a call: nobody writes the subject.
        match unsafe { &*self.subject.get() } {
            Some(subject) => &subject.file,
            None => unreachable!("a counted description has a file"),
        }
    }

    /// The file's path, for messages.
    pub fn path(&self) -> &CStr {
        // SAFETY: as in `file`.
        match unsafe { &*self.subject.get() } {
            Some(subject) => &subject.path,
            None => c"?",
        }
    }

    pub(super) fn flags(&self) -> i32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(super) fn set_flags(&self, flags: i32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn may_read(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_WRONLY
    }

    #[inline]
    pub(super) fn may_write(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }

    #[inline]
    pub(super) fn appends(&self) -> bool {
        self.flags() & libc::O_APPEND != 0
    }

    /// Each write is followed by a SYNC. (`O_SYNC` contains `O_DSYNC`.)
    #[inline]
    pub(super) fn syncs(&self) -> bool {
        self.flags() & libc::O_DSYNC != 0
    }

    /// The access mode of the kernel's description.
    pub(super) fn kernel_access(&self) -> i32 {
        self.kernel_access.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn lock_position(&self) -> Guard<'_> {
        self.position_lock.lock()
    }

    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Only under [`lock_position`](Self::lock_position).
    #[inline]
    pub(super) fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_handed_back(&self) -> bool {
        self.handed_back.load(Ordering::Acquire)
    }

    /// This process opened it, or shares memory with the one that did.
    #[inline]
    pub(super) fn is_ours(&self) -> bool {
        self.generation.load(Ordering::Relaxed) == process::generation()
    }

    /// Gives the kernel's description the position and the append flag: from here on calls go to the kernel.
    /// `fd` refers to this description.
    pub(super) fn hand_back(&self, fd: RawFd) {
        let _guard = self.lock_position();
        if !self.handed_back.load(Ordering::Relaxed) {
            self.show_kernel(fd);
            self.handed_back.store(true, Ordering::Release);
        }
    }

    /// Makes the kernel's description look as the program knows it: before `exec`, where another program goes on.
    pub(super) fn show_kernel(&self, fd: RawFd) {
        // SAFETY: plain descriptor calls; no memory is passed.
        unsafe {
            raw!(SYS_lseek, fd, self.position(), libc::SEEK_SET);
            if self.appends() {
                let flags = raw!(SYS_fcntl, fd, libc::F_GETFL);
                raw!(SYS_fcntl, fd, libc::F_SETFL, flags as i32 | libc::O_APPEND);
            }
        }
    }

    /// Takes the append flag from the kernel again, after an `exec` that failed: our own writes name their offsets.
    pub(super) fn hide_kernel(&self, fd: RawFd) {
        if self.appends() && !self.is_handed_back() {
            // SAFETY: as in `show_kernel`.
            unsafe {
                let flags = raw!(SYS_fcntl, fd, libc::F_GETFL);
                raw!(SYS_fcntl, fd, libc::F_SETFL, flags as i32 & !libc::O_APPEND);
            }
        }
    }

    /// `EBUSY`, with one message, in a forked child.
    #[inline]
    pub(super) fn check_ours(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(self.disowned()) }
    }

    #[cold]
    fn disowned(&self) -> Error {
        if process::say_once(process::Once::Forked) {
            process::say(
                self.path(),
                "an atomic file belongs to the process that opened it; in a child of fork(2) its descriptor is EBUSY",
            );
        }
        Error::new(libc::EBUSY)
    }

    /// Counts a reference, unless the description is free.
    #[inline]
    pub(super) fn try_hold(&'static self) -> Option<Handle> {
        let mut refs = self.refs.load(Ordering::Relaxed);
        while refs != 0 {
            match self.refs.compare_exchange_weak(refs, refs + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Handle(self)),
                Err(now) => refs = now,
            }
        }
        None
    }
}

impl Handle {
    /// A new description, at position 0.
    pub(super) fn new(file: Arc<AtomicFile>, path: CString, flags: i32, kernel_access: i32) -> Self {
        let description = spare::take();
        // SAFETY: the count is zero and the description is in no table: nobody else looks at the subject.
        unsafe { *description.subject.get() = Some(Subject { file, path }) };
        description.generation.store(process::generation(), Ordering::Relaxed);
        description.flags.store(flags, Ordering::Relaxed);
        description.kernel_access.store(kernel_access, Ordering::Relaxed);
        description.handed_back.store(false, Ordering::Relaxed);
        description.position.store(0, Ordering::Relaxed);
        description.position_lock.reset();
        description.refs.store(1, Ordering::Release);
        Handle(description)
    }

    /// Another reference.
    pub(super) fn share(&self) -> Self {
        self.0.refs.fetch_add(1, Ordering::Relaxed);
        Handle(self.0)
    }

    /// The description, with its count left standing: for the table's slot.
    pub(super) fn into_raw(self) -> *mut Description {
        let description = ptr::from_ref(self.0).cast_mut();
        core::mem::forget(self);
        description
    }

    /// The reference that [`into_raw`](Self::into_raw) left.
    ///
    /// # Safety
    /// `description` came from `into_raw`, and its count is taken over by this call.
    pub(super) unsafe fn from_raw(description: *mut Description) -> Self {
        // SAFETY: descriptions are never freed; the caller hands over the count.
        Handle(unsafe { &*description })
    }
}

impl Deref for Handle {
    type Target = Description;
    #[inline]
    fn deref(&self) -> &Description {
        self.0
    }
}

/// A description while one call uses it. Not counted: to count takes a locked instruction, which waits for all that the
/// thread has stored around the cache. The description stays as long as the call.
pub struct Borrowed {
    description: &'static Description,
    _call: Call,
}

impl Borrowed {
    /// `description` was found in the table during `call`.
    pub(super) fn new(description: &'static Description, call: Call) -> Self {
        Self { description, _call: call }
    }
}

impl Deref for Borrowed {
    type Target = Description;
    #[inline]
    fn deref(&self) -> &Description {
        self.description
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        if self.0.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            spare::give(self.0);
        }
    }
}
