//! Open file descriptions: what `dup` and `fork` share. Their memory is reused but never freed, so a late reader
//! finds a reference count of zero rather than unrelated bytes.

use super::position::{Locked, Position};
use super::{description_mark, spare};
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

/// Flags that the kernel is not told; the library emulates them.
pub(in crate::posix) const EMULATED: i32 =
    libc::O_APPEND | libc::O_SYNC | libc::O_DSYNC | libc::O_DIRECT | libc::O_ASYNC;

/// Flags of `open` that a description keeps besides the access mode. `O_NOFOLLOW` matters only to `F_GETFL`: the
/// kernel's description may have been opened by another `open`.
pub(in crate::posix) const KEPT: i32 = EMULATED | libc::O_NOFOLLOW;

pub(in crate::posix) struct Subject {
    file: Arc<AtomicFile>,
    path: CString,
}

/// One open file description of an atomic file.
pub struct Description {
    /// Number of descriptors and calls under way; zero: free.
    refs: AtomicUsize,
    /// The fork generation of the process that opened it.
    generation: AtomicU32,
    /// What the program asked for: access mode and [`KEPT`] flags.
    flags: AtomicI32,
    /// The access mode of the kernel's description.
    kernel_access: AtomicI32,
    /// The file is demoted: position and flags are the kernel's.
    demoted: AtomicBool,
    /// It may hold a write lock of its own (`flock`, `F_OFD_SETLK`).
    locked: AtomicBool,
    /// The library may keep a lock of this description in memory.
    keeps: AtomicBool,
    position: Position,
    pub(in crate::posix) subject: UnsafeCell<Option<Subject>>,
    /// Link in the lists of `spare`.
    pub(in crate::posix) next: AtomicPtr<Description>,
    /// The calls that may still use it; protected by the lock of `spare`.
    pub(in crate::posix) grace: UnsafeCell<Grace>,
}

// SAFETY: `subject` is written only while no other thread can use it: before the count becomes positive, and after it
// has become zero and every call that had begun before has ended. `grace` is used under a lock. The rest is atomic.
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
            demoted: AtomicBool::new(false),
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
        // SAFETY: a caller with `&self` holds a count through a `Handle`, or is inside a call, so nothing writes the
        // subject.
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

    /// Whether each write must be durable when it returns, as the program asked. (`O_SYNC` contains `O_DSYNC`.)
    #[inline]
    pub(in crate::posix) fn syncs(&self) -> bool {
        self.flags() & libc::O_DSYNC != 0
    }

    /// Whether each change is committed by itself, because of this description's flags or the file's settings.
    #[inline]
    pub(in crate::posix) fn commits_each(&self) -> bool {
        self.syncs() || self.file().is_write_atomic()
    }

    /// The access mode of the kernel's description.
    pub(in crate::posix) fn kernel_access(&self) -> i32 {
        self.kernel_access.load(Ordering::Relaxed)
    }

    /// Locks the position; `fd` leads to this description.
    ///
    /// # Errors
    /// See [`Position::lock`].
    #[inline]
    pub(in crate::posix) fn lock_position(&self, fd: RawFd) -> Result<Locked<'_>> {
        self.position.lock(self.file(), fd)
    }

    /// The position at this moment.
    pub(in crate::posix) fn position(&self, fd: RawFd) -> u64 {
        self.position.look(fd)
    }

    /// Whether other processes may have the description.
    #[inline]
    pub(in crate::posix) fn is_shared(&self) -> bool {
        self.position.is_shared()
    }

    /// Whether this process's library serves it, so that another process can receive it as an atomic file's.
    pub(in crate::posix) fn is_live(&self) -> bool {
        self.is_ours() && !self.is_demoted() && !self.file().is_demoted()
    }

    /// Other processes may have it from now on, by a fork, an exec or a socket: its position becomes the kernel's,
    /// and the kernel's description is marked with the flags that the program asked for. `fd` leads to it.
    pub(in crate::posix) fn pass_on(&self, fd: RawFd) {
        if !self.is_shared() {
            let is_own = self.split().is_ok(); // otherwise each process keeps its own position
            description_mark::set(fd, self.flags());
            if is_own {
                self.file().share_position();
                self.position.share(fd);
            }
        }
    }

    /// Gives this description a kernel description of its own, since other processes, or the kernel, will go on with
    /// it.
    ///
    /// # Errors
    /// `EBUSY`, after one message, if the file cannot be opened once more for that.
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
    pub(in crate::posix) fn is_demoted(&self) -> bool {
        self.demoted.load(Ordering::Acquire)
    }

    /// Whether this process opened it, or shares memory with the process that did.
    #[inline]
    pub(in crate::posix) fn is_ours(&self) -> bool {
        self.generation.load(Ordering::Relaxed) == generation()
    }

    /// Notes that it holds, or no longer holds, a write lock of its own.
    pub(in crate::posix) fn set_locked(&self, locked: bool) {
        self.locked.store(locked, Ordering::Release);
    }

    /// Whether closing its last descriptor may release a lock: the program has asked for a lock of this description
    /// (`flock`, `F_OFD_SETLK`), the descriptor being closed is the last one, and no other process can have it.
    pub(in crate::posix) fn leaves_locks(&self) -> bool {
        self.keeps.load(Ordering::Acquire) && self.is_last() && !self.is_shared()
    }

    fn is_last(&self) -> bool {
        self.refs.load(Ordering::Acquire) == 1
    }

    /// Whether it may hold a lock and ends with the descriptor that is being closed.
    pub(in crate::posix) fn unlocks_at_close(&self) -> bool {
        self.locked.load(Ordering::Acquire) && self.is_last()
    }

    /// The number by which its file knows it; unique while the description exists.
    pub(in crate::posix) fn number(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// From now on the library may keep a lock of this description in memory.
    pub(in crate::posix) fn keeps_locks(&self) {
        self.keeps.store(true, Ordering::Release);
    }

    /// The description has ended; its locks end with it.
    fn leave_locks(&self) {
        if self.keeps.load(Ordering::Acquire) && self.is_ours() {
            self.file().drop_description_locks(self.number());
        }
    }

    /// In a forked child, whose parent's threads may have held the position's lock.
    pub(in crate::posix) fn forget_lock(&self) {
        self.position.forget_lock();
    }

    /// The program's flags now: another process may have changed those of a shared description.
    #[inline]
    pub(in crate::posix) fn flags_now(&self, fd: RawFd) -> i32 {
        if self.is_shared()
            && let Some(asked) = description_mark::get(fd)
        {
            self.set_flags(self.flags() & !libc::O_APPEND | asked & libc::O_APPEND);
        }
        self.flags()
    }

    /// Whether, in a forked child, it still is the parent's and has not been demoted.
    #[inline]
    pub(in crate::posix) fn is_foreign(&self) -> bool {
        !self.is_ours() && !self.is_demoted()
    }

    /// Gives position and append flag back to the kernel's description: calls go to the kernel from here on. `fd`
    /// refers to this description. A description that other processes may have is left as it is, since an append flag
    /// would redirect their writes by offset; this process then asks for the append at each write
    /// ([`appends_by_itself`](Self::appends_by_itself)).
    ///
    /// # Errors
    /// Those of [`split`](Self::split).
    pub(in crate::posix) fn demote(&self, fd: RawFd) -> Result<()> {
        if !self.is_demoted() {
            self.split()?;
        }
        let _turn = self.position.hold();
        if !self.demoted.load(Ordering::Relaxed) {
            if !self.is_shared() {
                self.show_kernel(fd);
            }
            description_mark::mark_demoted(fd, self.flags()); // a process that receives it now gets an ordinary file
            self.demoted.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// It was received from a process that had demoted the file.
    pub(in crate::posix) fn note_demoted(&self) {
        self.demoted.store(true, Ordering::Release);
    }

    /// At the end of the process: as [`demote`](Self::demote), but processes that share the description keep
    /// it.
    pub(in crate::posix) fn demote_at_end(&self, fd: RawFd) {
        if self.is_shared() {
            self.demoted.store(true, Ordering::Release);
        } else {
            let _ = self.demote(fd); // reported already
        }
    }

    /// Whether each write must ask the kernel to append.
    pub(in crate::posix) fn appends_by_itself(&self, fd: RawFd) -> bool {
        self.is_shared() && self.is_demoted() && self.flags_now(fd) & libc::O_APPEND != 0
    }

    /// Makes the kernel's description, which no other process has, look as the program knows it: before `exec`, after
    /// which another program uses it.
    pub(in crate::posix) fn show_kernel(&self, fd: RawFd) {
        // SAFETY: plain descriptor calls; no memory is passed.
        unsafe {
            raw!(SYS_lseek, fd, self.position(fd), libc::SEEK_SET);
            // One flag at a time: a file system may not support `O_DIRECT`.
            for flag in [libc::O_APPEND, libc::O_DIRECT] {
                if self.flags() & flag != 0 {
                    let flags = raw!(SYS_fcntl, fd, libc::F_GETFL);
                    raw!(SYS_fcntl, fd, libc::F_SETFL, flags as i32 | flag);
                }
            }
        }
    }

    /// Removes these flags from the kernel's description again after an `exec` that failed, since the library's
    /// writes have explicit offsets and no alignment.
    pub(in crate::posix) fn hide_kernel(&self, fd: RawFd) {
        let shown = self.flags() & (libc::O_APPEND | libc::O_DIRECT);
        if shown != 0 && !self.is_demoted() {
            // SAFETY: as in `show_kernel`.
            unsafe {
                let flags = raw!(SYS_fcntl, fd, libc::F_GETFL);
                raw!(SYS_fcntl, fd, libc::F_SETFL, flags as i32 & !shown);
            }
        }
    }

    /// `EBUSY`, after one message, in a forked child that could not make it its own (`inherit`).
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
    /// A new description. `position`: `None` if other processes have it too and the position is the kernel's.
    pub(in crate::posix) fn new(
        file: Arc<AtomicFile>,
        path: CString,
        flags: i32,
        kernel_access: i32,
        position: Option<u64>,
    ) -> Self {
        if position.is_none() {
            file.share_position();
        }
        let description = spare::take();
        // SAFETY: the count is zero and the description is in no table, so no other thread looks at the subject.
        unsafe { *description.subject.get() = Some(Subject { file, path }) };
        description.generation.store(generation(), Ordering::Relaxed);
        description.flags.store(flags, Ordering::Relaxed);
        description.kernel_access.store(kernel_access, Ordering::Relaxed);
        description.demoted.store(false, Ordering::Relaxed);
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

    /// The description itself. After the handle is dropped, it may be reused for another file.
    pub(in crate::posix) fn description(&self) -> &'static Description {
        self.0
    }

    /// The description, without releasing its count: for a slot of the table.
    pub(in crate::posix) fn into_raw(self) -> *mut Description {
        let description = ptr::from_ref(self.0).cast_mut();
        core::mem::forget(self);
        description
    }

    /// The reference that [`into_raw`](Self::into_raw) left.
    ///
    /// # Safety
    /// `description` came from `into_raw`, and this call takes over its count.
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

/// A description that one call uses. Not counted: counting takes a locked instruction, which waits for all stores
/// that the thread has made around the cache. The description stays valid as long as the call.
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
