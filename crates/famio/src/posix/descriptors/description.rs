//! The open file description: what `dup` and `fork` share. Its memory is never given back, only used again, so that a
//! reader that comes too late finds a count of zero and not somebody else's bytes.

use super::position::{Locked, Position};
use super::{mark, spare};
use crate::error::{Error, Result};
use crate::file::{AtomicFile, Call, Grace};
use crate::posix::raw;
use crate::posix::runtime::message::keep;
use crate::posix::runtime::say::{Once, say, say_once};
use crate::posix::runtime::state::generation;
use core::cell::UnsafeCell;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::sync::Arc;

/// The flags that we keep from the kernel and act out ourselves.
pub(in crate::posix) const EMULATED: i32 =
    libc::O_APPEND | libc::O_SYNC | libc::O_DSYNC | libc::O_DIRECT | libc::O_ASYNC;

/// What a description keeps of the flags with which it was opened, besides the access mode. The last one only `F_GETFL` shows; the kernel's
/// description may have been opened with another's.
pub(in crate::posix) const KEPT: i32 = EMULATED | libc::O_NOFOLLOW;

pub(in crate::posix) struct Subject {
    file: Arc<AtomicFile>,
    path: CString,
}

/// One open file description of an atomic file.
pub struct Description {
    /// Descriptors and calls in flight; zero: free.
    refs: AtomicUsize,
    /// The fork generation that opened it.
    generation: AtomicU32,
    /// What the program asked for: access mode and [`KEPT`] flags.
    flags: AtomicI32,
    /// The access mode that the kernel's description has.
    kernel_access: AtomicI32,
    /// The file is an ordinary file again; position and flags are the kernel's.
    handed_back: AtomicBool,
    /// It may have a lock of its own for writing (`flock`, `F_OFD_SETLK`).
    locked: AtomicBool,
    /// The file may keep a lock of its own for it, in memory.
    keeps: AtomicBool,
    position: Position,
    pub(in crate::posix) subject: UnsafeCell<Option<Subject>>,
    /// Of the lists of `spare`.
    pub(in crate::posix) next: AtomicPtr<Description>,
    /// Calls that may still use it; under the lock of `spare`.
    pub(in crate::posix) grace: UnsafeCell<Grace>,
}

// SAFETY: `subject` is written only while nobody else can use it: before the count becomes positive, and when it has become
// zero and no call is inside that began before. `grace` is used under a lock. The rest is atomic.
unsafe impl Sync for Description {}

/// A counted reference to a description.
pub struct Handle(&'static Description);

impl Description {
    pub(in crate::posix) const fn vacant() -> Self {
        Self {
            refs: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
            flags: AtomicI32::new(0),
            kernel_access: AtomicI32::new(0),
            handed_back: AtomicBool::new(false),
            locked: AtomicBool::new(false),
            keeps: AtomicBool::new(false),
            position: Position::new(),
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

    pub(in crate::posix) fn flags(&self) -> i32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(in crate::posix) fn set_flags(&self, flags: i32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    #[inline]
    pub(in crate::posix) fn may_read(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_WRONLY
    }

    #[inline]
    pub(in crate::posix) fn may_write(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Each write is durable when it returns, as the program has asked. (`O_SYNC` contains `O_DSYNC`.)
    #[inline]
    pub(in crate::posix) fn syncs(&self) -> bool {
        self.flags() & libc::O_DSYNC != 0
    }

    /// Each change is committed by itself: so it was asked for here, or it is of the file.
    #[inline]
    pub(in crate::posix) fn commits_each(&self) -> bool {
        self.syncs() || self.file().is_write_atomic()
    }

    /// The access mode of the kernel's description.
    pub(in crate::posix) fn kernel_access(&self) -> i32 {
        self.kernel_access.load(Ordering::Relaxed)
    }

    /// Waits for the position; `fd` leads to this description.
    ///
    /// # Errors
    /// See [`Position::lock`].
    #[inline]
    pub(in crate::posix) fn lock_position(&self, fd: RawFd) -> Result<Locked<'_>> {
        self.position.lock(self.file(), fd)
    }

    /// The position, for one look.
    pub(in crate::posix) fn position(&self, fd: RawFd) -> u64 {
        self.position.look(fd)
    }

    /// Whether other processes may have it.
    #[inline]
    pub(in crate::posix) fn is_shared(&self) -> bool {
        self.position.is_shared()
    }

    /// Whether this process's library answers for it: then others can be given it as an atomic file's.
    pub(in crate::posix) fn is_live(&self) -> bool {
        self.is_ours() && !self.is_handed_back() && !self.file().is_demoted()
    }

    /// Others may have it from now on, by a fork, an exec or a socket: its position is the kernel's, and what the program asked
    /// for is marked on the kernel's description. `fd` leads to it.
    pub(in crate::posix) fn pass_on(&self, fd: RawFd) {
        if !self.is_shared() {
            let is_own = self.split().is_ok(); // else it keeps a position of its own, in each process
            mark::set(fd, self.flags());
            if is_own {
                self.position.share(fd);
            }
        }
    }

    /// The kernel's description is this one's alone from now on: others, or the kernel, are to go on with it.
    ///
    /// # Errors
    /// `EBUSY`, with one message: the file could not be opened once more for that.
    pub(in crate::posix) fn split(&self) -> Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        self.file().split().inspect_err(|error| {
            if error.errno() == libc::EBUSY && say_once(Once::Twins) {
                const WHY: &str = "opened several times here, and it can't be opened once more now, so that the kernel can't be given \
                                   a description of it (EBUSY): has the process lost its rights on it?";
                say(self.path(), WHY);
            }
        })
    }

    #[inline]
    pub(in crate::posix) fn is_handed_back(&self) -> bool {
        self.handed_back.load(Ordering::Acquire)
    }

    /// This process opened it, or shares memory with the one that did.
    #[inline]
    pub(in crate::posix) fn is_ours(&self) -> bool {
        self.generation.load(Ordering::Relaxed) == generation()
    }

    /// It has a lock of its own for writing, or certainly not any more.
    pub(in crate::posix) fn set_locked(&self, locked: bool) {
        self.locked.store(locked, Ordering::Release);
    }

    /// Whether the program has ever asked for a lock of this description (`flock`, `F_OFD_SETLK`), the descriptor that is being closed is its
    /// last, and no other process may have it.
    pub(in crate::posix) fn leaves_locks(&self) -> bool {
        self.keeps.load(Ordering::Acquire) && self.is_last() && !self.is_shared()
    }

    fn is_last(&self) -> bool {
        self.refs.load(Ordering::Acquire) == 1
    }

    /// Whether it may have one, and goes with the descriptor that is being closed.
    pub(in crate::posix) fn unlocks_at_close(&self) -> bool {
        self.locked.load(Ordering::Acquire) && self.is_last()
    }

    /// By which its file knows it: no other description has it meanwhile.
    pub(in crate::posix) fn number(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// The file may keep a lock of its own for it from now on.
    pub(in crate::posix) fn keeps_locks(&self) {
        self.keeps.store(true, Ordering::Release);
    }

    /// Nobody has it any more.
    fn leave_locks(&self) {
        if self.keeps.load(Ordering::Acquire) && self.is_ours() {
            self.file().drop_description_locks(self.number());
        }
    }

    /// In a forked child: who had the lock of the position may be gone.
    pub(in crate::posix) fn forget_lock(&self) {
        self.position.forget_lock();
    }

    /// What the program asks for now: of a shared description another process may have changed that.
    #[inline]
    pub(in crate::posix) fn flags_now(&self, fd: RawFd) -> i32 {
        if self.is_shared()
            && let Some(asked) = mark::get(fd)
        {
            self.set_flags(self.flags() & !libc::O_APPEND | asked & libc::O_APPEND);
        }
        self.flags()
    }

    /// In a forked child: it is the parent's still, and was not handed back.
    #[inline]
    pub(in crate::posix) fn is_foreign(&self) -> bool {
        !self.is_ours() && !self.is_handed_back()
    }

    /// Gives the kernel's description the position and the append flag: from here on calls go to the kernel.
    /// `fd` refers to this description. One that others may have stays as it is: an append flag there would move their writes by
    /// offset. This process's appends say so themselves then ([`appends_by_itself`](Self::appends_by_itself)).
    ///
    /// # Errors
    /// Those of [`split`](Self::split).
    pub(in crate::posix) fn hand_back(&self, fd: RawFd) -> Result<()> {
        if !self.is_handed_back() {
            self.split()?;
        }
        let _turn = self.position.hold();
        if !self.handed_back.load(Ordering::Relaxed) {
            if !self.is_shared() {
                self.show_kernel(fd);
            }
            mark::hand_back(fd, self.flags()); // who gets it now gets an ordinary file's
            self.handed_back.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// It has come from another process, which had handed it back.
    pub(in crate::posix) fn came_handed_back(&self) {
        self.handed_back.store(true, Ordering::Release);
    }

    /// At the process's end: as [`hand_back`](Self::hand_back), and others who have it keep it.
    pub(in crate::posix) fn hand_back_at_end(&self, fd: RawFd) {
        if self.is_shared() {
            self.handed_back.store(true, Ordering::Release);
        } else {
            let _ = self.hand_back(fd); // said
        }
    }

    /// Whether the kernel has to be told at each write that it is to append.
    pub(in crate::posix) fn appends_by_itself(&self, fd: RawFd) -> bool {
        self.is_shared() && self.is_handed_back() && self.flags_now(fd) & libc::O_APPEND != 0
    }

    /// Makes the kernel's description, which nobody else has, look as the program knows it: before `exec`, where another program
    /// goes on.
    pub(in crate::posix) fn show_kernel(&self, fd: RawFd) {
        // SAFETY: plain descriptor calls; no memory is passed.
        unsafe {
            raw!(SYS_lseek, fd, self.position(fd), libc::SEEK_SET);
            // One by one: a file system may not know the second.
            for flag in [libc::O_APPEND, libc::O_DIRECT] {
                if self.flags() & flag != 0 {
                    let flags = raw!(SYS_fcntl, fd, libc::F_GETFL);
                    raw!(SYS_fcntl, fd, libc::F_SETFL, flags as i32 | flag);
                }
            }
        }
    }

    /// Takes these flags from the kernel again, after an `exec` that failed: our own writes name their offsets, and are aligned to
    /// nothing.
    pub(in crate::posix) fn hide_kernel(&self, fd: RawFd) {
        let shown = self.flags() & (libc::O_APPEND | libc::O_DIRECT);
        if shown != 0 && !self.is_handed_back() {
            // SAFETY: as in `show_kernel`.
            unsafe {
                let flags = raw!(SYS_fcntl, fd, libc::F_GETFL);
                raw!(SYS_fcntl, fd, libc::F_SETFL, flags as i32 & !shown);
            }
        }
    }

    /// `EBUSY`, with one message: in a forked child that could not make it its own (`inherit`).
    #[inline]
    pub(in crate::posix) fn check_ours(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(self.disowned()) }
    }

    #[cold]
    fn disowned(&self) -> Error {
        const WHY: &str = "the descriptor that it has from its parent could not be made this process's own (EBUSY)";
        if !keep(WHY) && say_once(Once::Forked) {
            say(self.path(), WHY);
        }
        Error::new(libc::EBUSY)
    }

    /// Counts a reference, unless the description is free.
    #[inline]
    pub(in crate::posix) fn try_hold(&'static self) -> Option<Handle> {
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
    /// A new description. `position`: `None`, if others have it, too, and it is the kernel's.
    pub(in crate::posix) fn new(
        file: Arc<AtomicFile>,
        path: CString,
        flags: i32,
        kernel_access: i32,
        position: Option<u64>,
    ) -> Self {
        let description = spare::take();
        // SAFETY: the count is zero and the description is in no table: nobody else looks at the subject.
        unsafe { *description.subject.get() = Some(Subject { file, path }) };
        description.generation.store(generation(), Ordering::Relaxed);
        description.flags.store(flags, Ordering::Relaxed);
        description.kernel_access.store(kernel_access, Ordering::Relaxed);
        description.handed_back.store(false, Ordering::Relaxed);
        description.locked.store(false, Ordering::Relaxed);
        description.keeps.store(false, Ordering::Relaxed);
        description.position.reset(position.unwrap_or(0), position.is_none());
        description.refs.store(1, Ordering::Release);
        Handle(description)
    }

    /// Another reference.
    pub(in crate::posix) fn share(&self) -> Self {
        self.0.refs.fetch_add(1, Ordering::Relaxed);
        Handle(self.0)
    }

    /// The description itself, which may be another's once the handle is gone.
    pub(in crate::posix) fn description(&self) -> &'static Description {
        self.0
    }

    /// The description, with its count left standing: for the table's slot.
    pub(in crate::posix) fn into_raw(self) -> *mut Description {
        let description = ptr::from_ref(self.0).cast_mut();
        core::mem::forget(self);
        description
    }

    /// The reference that [`into_raw`](Self::into_raw) left.
    ///
    /// # Safety
    /// `description` came from `into_raw`, and its count is taken over by this call.
    pub(in crate::posix) unsafe fn from_raw(description: *mut Description) -> Self {
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
    pub(in crate::posix) fn new(description: &'static Description, call: Call) -> Self {
        Self { description, _call: call }
    }

    /// See [`Handle::description`].
    pub(in crate::posix) fn description(&self) -> &'static Description {
        self.description
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
            self.0.leave_locks();
            spare::give(self.0);
        }
    }
}
