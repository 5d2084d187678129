//! The atomic file as callers have it: opened, found, with the program's descriptors.

use super::growing::Growing;
use super::kernels_size::KernelsSize;
use super::lease::Lease;
use super::locks::Locks;
use super::plain::PlainReads;
use super::process::disowned;
use super::registry::files;
use super::session::{OldSession, Session};
use super::shadow::Slot;
use super::transaction::{Commits, Joint};
use super::turn::{Draft, Turns};
use super::write_atomic::Arrivals;
use super::{Access, Descriptors};
use crate::error::{Error, Result};
use crate::index::{Arena, Claim, Door};
use crate::recovery::Known;
use crate::settings::Settings;
use crate::sys::InternalFd;
use crate::thread::{Guard, Mutex};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, Ordering};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Nothing was written yet: there is no journal and no index; reads go to the kernel.
pub(super) const PLAIN: u8 = 0;
/// There is a session.
pub(super) const ATTACHED: u8 = 1;
/// Demoted: every call goes to the kernel.
pub(super) const DEMOTED: u8 = 2;
/// The process forked, and this is the child: the file is the parent's.
pub(super) const DISOWNED: u8 = 3;

/// There is no session, and none is needed: the file only grows (`growing`).
pub(super) const GROWING: u8 = 4;

/// One file of this process. Everything written to it between two SYNCs is durable as a whole or, after a crash, gone
/// as a whole. The domain decides what a SYNC survives (`docs/guarantees.md`).
///
/// All calls take `&self` and may be made from any thread.
// What every call looks at comes first, in one cache line: a program that writes much leaves nothing else in the
// cache.
#[repr(C)]
pub struct AtomicFile {
    pub(super) session: AtomicPtr<Session>,
    pub(super) state: AtomicU8,
    pub(super) shadowed: AtomicBool,
    /// Other processes may want to own the session: looked at after each change.
    pub(super) is_wanted: AtomicBool,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) fds: Descriptors,
    pub(super) inner: Mutex<Inner>,
    pub(super) path: CString,
    pub(super) settings: Settings,
    pub(super) plain: PlainReads,
    pub(super) growing: Growing,
    /// The size of the kernel's file when it was opened.
    pub(super) found_size: u64,
    pub(super) kernels_size: KernelsSize,
    pub(super) lease: Lease,
    pub(super) locks: Locks,
    /// Made when the program, or another process, maps the file; it stays.
    pub(super) shadow: Slot,
    /// A descriptor of ours, while there are maps and the program has closed all its own.
    pub(super) keeper: Mutex<Option<InternalFd>>,
    pub(super) turns: Turns,
    pub(super) commits: Commits,
    pub(super) arrivals: Arrivals,
    /// The records of its transactions with other files.
    pub(super) joint: Joint,
    /// Why it was left to the kernel when it was only read, for a notice when it is opened for writing. 0: no notice
    /// is due.
    pub(super) untold: AtomicI32,
}

pub(super) struct Inner {
    /// What `AtomicFile::session` points to.
    pub session: Option<Box<Session>>,
    /// Sessions that have ended, but that calls may still use.
    pub old: Vec<OldSession>,
    /// The arena of this ownership, from its first session on.
    pub arena: Option<Arc<Arena>>,
    /// While this process owns the file.
    pub claim: Option<Claim>,
    /// A session that was this process's, and is another's now or unowned: used again when this process owns it
    /// again.
    pub left: Option<Box<Session>>,
    /// The open epoch, if it could not be handed over and has not been taken up again. The process stays the owner
    /// meanwhile.
    pub kept: Option<Draft>,
}

impl AtomicFile {
    /// The error with the file's path in front, if it is not there yet.
    #[cold]
    pub(crate) fn named(&self, error: Error) -> Error {
        let path = self.path.to_string_lossy();
        if error.detail().is_some_and(|said| said.starts_with(&*path)) { error } else { error.context(path) }
    }

    /// Makes the file behind `fd` atomic in this process. `fd` is a descriptor of the program, open as `access` says,
    /// without `O_APPEND`. A journal that a crash left is recovered first. The same file gives the same `AtomicFile`.
    ///
    /// # Errors
    /// `EBUSY`: another process has it. `EIO`: its journal cannot be used; the message names both files.
    /// `EOPNOTSUPP`: its file system is not supported. `EINVAL`: it is not a regular file; or the settings would
    /// weaken durability without saying so, or name another folder of shared memory than this process uses.
    pub fn open(fd: BorrowedFd<'_>, access: Access, path: &CStr, settings: &Settings) -> Result<Arc<Self>> {
        Self::open_as(PLAIN, fd, access, path, None, settings)
    }

    /// As [`open`](Self::open), for a file that was just opened or made by this path, which is absolute, without
    /// links and dots.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_by_real_path(
        fd: BorrowedFd<'_>,
        access: Access,
        path: &CStr,
        settings: &Settings,
    ) -> Result<Arc<Self>> {
        let real = Path::new(OsStr::from_bytes(path.to_bytes()));
        Self::open_as(PLAIN, fd, access, path, Some(real), settings)
    }

    /// As [`open`](Self::open), for a descriptor of a file that another program has demoted: it is the kernel's here,
    /// too.
    ///
    /// # Errors
    /// `EINVAL`: not a regular file.
    pub(crate) fn open_handed_back(
        fd: BorrowedFd<'_>,
        access: Access,
        path: &CStr,
        settings: &Settings,
    ) -> Result<Arc<Self>> {
        Self::open_as(DEMOTED, fd, access, path, None, settings)
    }

    /// `real`: the path, if it is the kernel's name of the file.
    fn open_as(
        state: u8,
        fd: BorrowedFd<'_>,
        access: Access,
        path: &CStr,
        real: Option<&Path>,
        settings: &Settings,
    ) -> Result<Arc<Self>> {
        let looked = crate::sys::look_at(fd)?;
        if rustix::fs::FileType::from_raw_mode(looked.mode) != rustix::fs::FileType::RegularFile {
            return Err(Error::with(libc::EINVAL, format!("{}: not a regular file", path.to_string_lossy())));
        }
        let named = |e: Error| e.context(path.to_string_lossy());
        crate::sys::shm::choose(settings.shm.as_deref()).map_err(named)?;
        let (device, inode) = looked.key;
        // Held to the end: two threads that open the same file get the same one, recovered once.
        let mut files = files();
        if let Some(file) = files.get(&(device, inode)) {
            file.reopen(fd, access).map_err(named)?;
            return Ok(file.clone());
        }
        crate::map::guard::install()?;
        let file = Arc::new(Self {
            device,
            inode,
            path: path.to_owned(),
            settings: settings.clone(),
            fds: Descriptors::of((device, inode)),
            state: AtomicU8::new(state),
            session: AtomicPtr::new(core::ptr::null_mut()),
            inner: Mutex::new(Inner {
                session: None,
                old: Vec::new(),
                arena: None,
                claim: None,
                left: None,
                kept: None,
            }),
            plain: PlainReads::default(),
            growing: Growing::default(),
            found_size: looked.size,
            kernels_size: KernelsSize::default(),
            lease: Lease::default(),
            locks: Locks::default(),
            shadow: Slot::default(),
            shadowed: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            keeper: Mutex::default(),
            turns: Turns::new(Door::new()),
            commits: Commits::default(),
            arrivals: Arrivals::default(),
            joint: Joint::default(),
            untold: AtomicI32::new(0),
        });
        file.add_descriptor(fd.as_raw_fd(), access);
        if state == PLAIN
            && let Err(e) = file.recover_if_left(fd, Known { path: real, is_new: looked.is_new })
        {
            file.turns.door.leave();
            return Err(named(e));
        }
        files.insert((device, inode), file.clone());
        Ok(file)
    }

    fn reopen(&self, fd: BorrowedFd<'_>, access: Access) -> Result<()> {
        if self.state.load(Ordering::Acquire) == DISOWNED {
            return Err(disowned());
        }
        self.add_descriptor(fd.as_raw_fd(), access);
        Ok(())
    }

    pub(super) fn inner(&self) -> Guard<'_, Inner> {
        self.inner.lock()
    }

    /// The atomic file of this process with that device and inode, if it is open.
    pub fn find(device: u64, inode: u64) -> Option<Arc<Self>> {
        files().get(&(device, inode)).cloned()
    }

    /// The path by which it was first opened, for messages.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// The settings with which it was opened.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Device and inode.
    pub fn key(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Adds a descriptor of the program for this file.
    pub fn add_descriptor(&self, fd: RawFd, access: Access) {
        self.fds.add(fd, access);
        self.has_come(access);
    }

    /// As [`add_descriptor`](Self::add_descriptor), with the description of `old`.
    pub fn add_duplicate(&self, old: RawFd, fd: RawFd, access: Access) {
        self.fds.add_duplicate(old, fd, access);
        self.has_come(access);
    }

    fn has_come(&self, access: Access) {
        if access == Access::Write {
            self.turns.door.set_writes(true);
            self.say_what_is_untold();
        }
    }

    /// The program is about to close `fd`: to be called before the kernel closes it. With the last descriptor the
    /// file is committed, checkpointed and closed clean.
    ///
    /// # Errors
    /// Those of that last commit; the descriptor is gone nevertheless.
    pub fn remove_descriptor(&self, fd: RawFd) -> Result<()> {
        self.drop_process_locks();
        // Once it is not the last, it stays so: another thread closes the last one, and may be doing so already.
        let mut is_last = self.fds.goes_as_last(fd);
        if !self.is_disowned() {
            if is_last {
                self.keep_for_maps(fd); // with maps in use it is not the last
            } else {
                self.keep_better_for_maps(fd);
            }
        }
        is_last = is_last && self.fds.goes_as_last(fd);
        if !is_last {
            self.lose_record_locks();
        }
        let result = if is_last && self.state.load(Ordering::Acquire) != DISOWNED {
            let mut files = files();
            if self.fds.goes_as_last(fd) {
                if files.get(&self.key()).is_some_and(|file| core::ptr::eq(&**file, self)) {
                    files.remove(&self.key());
                }
                let closed = self.leave_door();
                if closed.is_err()
                    && let Some(session) = self.session()
                {
                    // The next owner recovers the file: nothing of ours, such as the background, may touch it then.
                    session.arena.shared().closed.store(1, Ordering::Release);
                    // Now, and not when the file is dropped: a thread that is forking may keep a reference to it.
                    session.engine.journal().leave();
                }
                closed
            } else {
                Ok(())
            }
        } else {
            Ok(())
        };
        let attached = [ATTACHED, GROWING].contains(&self.state.load(Ordering::Acquire));
        // This process may also have to commit a hand-over image.
        self.fds.remove(fd, attached || self.may_be_stored_to() || self.turns.is_disturbed());
        if !self.is_disowned() {
            self.lease_leaves(fd); // not before: the lease could be taken by it again
        }
        if !self.fds.has_writable() {
            self.turns.door.set_writes(false);
        }
        result
    }
}

impl core::fmt::Debug for AtomicFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AtomicFile").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::UserBuf;
    use std::fs::File;
    use std::os::fd::AsFd;

    fn opened(name: &str) -> (String, [File; 2], Arc<AtomicFile>) {
        let path = format!("/dev/shm/famio-{name}-{}", std::process::id());
        std::fs::write(&path, [b'-'; 100]).unwrap();
        let files = [(); 2].map(|()| File::options().read(true).write(true).open(&path).unwrap());
        let c_path = std::ffi::CString::new(path.clone()).unwrap();
        let open = |file: &File| AtomicFile::open(file.as_fd(), Access::Write, &c_path, &Settings::default()).unwrap();
        let atomic = files.each_ref().map(open)[0].clone();
        // SAFETY: the test's memory.
        unsafe { atomic.write(0, &[UserBuf::of(&mut b"bytes".to_owned())]) }.unwrap();
        (path, files, atomic)
    }

    fn is_closed(atomic: &AtomicFile) -> bool {
        let (device, inode) = atomic.key();
        AtomicFile::find(device, inode).is_none() && atomic.state.load(Ordering::Acquire) == PLAIN
    }

    /// Each once took the other for the last: the file stayed attached, without a descriptor for a checkpoint.
    #[test]
    fn of_two_that_are_closed_at_once_one_is_the_last() {
        let (path, files, atomic) = opened("at-once");
        assert!(!atomic.fds.goes_as_last(files[0].as_raw_fd())); // by a thread that then stops
        atomic.remove_descriptor(files[1].as_raw_fd()).unwrap();
        assert!(is_closed(&atomic));
        atomic.remove_descriptor(files[0].as_raw_fd()).unwrap();
        assert!(is_closed(&atomic) && atomic.fds.is_empty() && !atomic.fds.has_writable());
        assert_eq!(&std::fs::read(&path).unwrap()[..6], b"bytes-");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn threads_that_close_the_last_ones_at_once_close_the_file() {
        for _ in 0..200 {
            let (path, files, atomic) = opened("threads");
            let barrier = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                for file in &files {
                    scope.spawn(|| {
                        barrier.wait();
                        atomic.remove_descriptor(file.as_raw_fd()).unwrap();
                    });
                }
            });
            assert!(is_closed(&atomic));
            std::fs::remove_file(&path).unwrap();
        }
    }

    /// A thread that was forking once kept a reference to the file: until its fork was over, the next `open` gave
    /// `EBUSY`.
    #[test]
    fn a_close_that_failed_leaves_the_journal_to_the_next_though_the_file_is_known() {
        use crate::pmem::record::{Call, Recorder};
        use crate::pmem::{Domain, Lab};
        let recorder = Recorder::new(Domain::PageCache);
        Lab { domain: Some(Domain::PageCache), medium: Some(recorder), ..Lab::current() }.enter();
        let (path, files, atomic) = opened("failed-close");
        let is_in_session = || crate::recovery::is_in_session(files[0].as_fd(), &Settings::default());
        assert!(is_in_session());
        atomic.remove_descriptor(files[1].as_raw_fd()).unwrap();
        recorder.fail(Call::Fdatasync, 1, libc::EIO);
        let closed = atomic.remove_descriptor(files[0].as_raw_fd());
        assert_eq!(closed.unwrap_err().errno(), libc::EIO);
        assert!(!is_in_session());
        drop(atomic);
        Lab::default().enter();
        std::fs::remove_file(&path).unwrap();
    }
}
