//! The atomic file as callers have it: opened, found, with the program's descriptors.

use crate::error::{Error, Result};
use crate::file::atomic::{ATTACHED, AtomicFile, DEMOTED, DISOWNED, GROWING, Inner, PLAIN, disowned};
use crate::file::base::{background_wakeup, lease_wakeup};
use crate::file::groups;
use crate::file::registry::{List, files};
use crate::file::shadow::Slot;
use crate::file::state::arrivals::Arrivals;
use crate::file::state::deferred::Deferred;
use crate::file::state::growing_state::Growing;
use crate::file::state::kernels_size::KernelsSize;
use crate::file::state::lease_state::Lease;
use crate::file::state::lock_state::Locks;
use crate::file::state::ownership::Ownership;
use crate::file::state::plain::PlainReads;
use crate::file::transaction::{Commits, Joint};
use crate::file::{Access, Descriptors, background, lease};
use crate::index::Membership;
use crate::journal::pools::reach::is_regular;
use crate::map::guard;
use crate::recovery::Known;
use crate::settings::Settings;
use crate::sys::internal::{Undisturbed, undisturbed};
use crate::sys::{Looked, look_at};
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// How often a path is opened whose file is replaced each time.
const OPENS: u32 = 16;

/// Opens a file that is to be atomic by its path; again if it was replaced meanwhile (`recovery::copies::replace`).
pub(crate) fn open_latest<F: AsFd>(path: &CStr, open: impl Fn() -> rustix::io::Result<F>) -> Result<F> {
    for _ in 1..OPENS {
        let file = open()?;
        let Looked { key, is_deleted, .. } = look_at(file.as_fd(), false)?;
        // A close would drop the process's record locks on a file that it has open.
        if !is_deleted || AtomicFile::find(key.0, key.1).is_some() || !leads_elsewhere(path, key) {
            return Ok(file);
        }
    }
    Ok(open()?)
}

fn leads_elsewhere(path: &CStr, key: (u64, u64)) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| is_regular(&stat) && (stat.st_dev, stat.st_ino) != key)
}

/// A name by which a file was just opened or made.
#[derive(Clone, Copy)]
pub(crate) struct OpenedBy<'a> {
    /// The path given with it is the kernel's name of the file: absolute, without links and dots.
    pub is_real: bool,
    /// Whether the name now leads to another regular file than this one.
    pub leads_elsewhere: &'a dyn Fn((u64, u64)) -> bool,
}

impl AtomicFile {
    /// Makes the file behind `fd` atomic in this process. `fd` is a descriptor of the program, open as `access` says,
    /// without `O_APPEND`. A journal that a crash left is recovered first. The same file gives the same `AtomicFile`.
    ///
    /// # Errors
    /// `EBUSY`: another process has it, or this one has it open without the group of the settings. `EIO`: its journal
    /// cannot be used; the message names both files. `EOPNOTSUPP`: its file system is not supported. `EINVAL`: it is
    /// not a regular file; or the settings would weaken durability without saying so, or name another folder of shared
    /// memory than this process uses.
    pub fn open(fd: BorrowedFd<'_>, access: Access, path: &CStr, settings: &Settings) -> Result<Arc<Self>> {
        Self::open_as(PLAIN, fd, access, path, None, settings)
    }

    /// As [`open`](Self::open), for a file that was just opened or made by a name.
    ///
    /// # Errors
    /// As [`open`](Self::open). A [nameless](Error::is_nameless) one if the file was replaced before it was opened, and
    /// is to be opened again.
    pub(crate) fn open_by_name(
        fd: BorrowedFd<'_>,
        access: Access,
        path: &CStr,
        name: OpenedBy<'_>,
        settings: &Settings,
    ) -> Result<Arc<Self>> {
        Self::open_as(PLAIN, fd, access, path, Some(name), settings)
    }

    /// As [`open`](Self::open), for a descriptor of a file that another program has demoted: it is the kernel's here,
    /// too.
    ///
    /// # Errors
    /// `EINVAL`: not a regular file.
    pub(crate) fn open_demoted(
        fd: BorrowedFd<'_>,
        access: Access,
        path: &CStr,
        settings: &Settings,
    ) -> Result<Arc<Self>> {
        Self::open_as(DEMOTED, fd, access, path, None, settings)
    }

    /// `name`: that by which it was opened, if it was opened by one just before.
    fn open_as(
        state: u8,
        fd: BorrowedFd<'_>,
        access: Access,
        path: &CStr,
        name: Option<OpenedBy<'_>>,
        settings: &Settings,
    ) -> Result<Arc<Self>> {
        // Not the times of a file that may be written: that would make the next write change its inode.
        let looked = look_at(fd, access == Access::Read)?;
        if rustix::fs::FileType::from_raw_mode(looked.mode) != rustix::fs::FileType::RegularFile {
            return Err(Error::with(libc::EINVAL, format!("{}: not a regular file", path.to_string_lossy())));
        }
        let named = |e: Error| e.context(path.to_string_lossy());
        crate::sys::shm::choose(settings.shm.as_deref()).map_err(named)?;
        let (device, inode) = looked.key;
        // Held to the end: two threads that open the same file get the same one, recovered once.
        let mut files = files();
        if let Some(file) = files.get(&(device, inode)) {
            groups::check_reopened(file, settings).and_then(|()| file.reopen(fd, access)).map_err(named)?;
            return Ok(file.clone());
        }
        // `famio restore` keeps it from others until it has another file's name (`recovery::copies::replace`).
        if looked.is_deleted && name.is_some_and(|name| (name.leads_elsewhere)(looked.key)) {
            return Err(Error::nameless("it was replaced before it was opened"));
        }
        let settings = groups::settings_in_effect(settings).map_err(named)?;
        // An empty file that was just made is mapped by nobody, and is asked for again before it is.
        if !looked.is_new || !guard::is_installed() {
            guard::install()?;
        }
        background_wakeup::set_work(background::work);
        lease_wakeup::set_work(lease::work);
        let file = Self::new(state, (device, inode), path, settings.into_owned(), looked.size);
        file.add_descriptor(fd.as_raw_fd(), access);
        groups::join(&file); // before a recovery, which may commit something
        let real = name.filter(|name| name.is_real).map(|_| Path::new(OsStr::from_bytes(path.to_bytes())));
        if state == PLAIN
            && let Err(e) =
                file.recover_if_left(fd, Known { path: real, is_new: looked.is_new, changed: looked.changed })
        {
            groups::leave(&file);
            file.ownership.membership.leave();
            return Err(file.named(e)); // becoming a member has named it already
        }
        files.insert((device, inode), file.clone());
        Ok(file)
    }

    /// Not inlined: it is made on the stack, which is needed for other things afterwards, and may be small.
    #[inline(never)]
    fn new(state: u8, (device, inode): (u64, u64), path: &CStr, settings: Settings, size: u64) -> Arc<Self> {
        Arc::new(Self {
            device,
            inode,
            path: path.to_owned(),
            settings,
            fds: Descriptors::of((device, inode)),
            state: AtomicU8::new(state),
            session: AtomicPtr::new(core::ptr::null_mut()),
            inner: Mutex::new(Inner {
                session: None,
                old: Vec::new(),
                arena: None,
                owner_lock: None,
                left: None,
                unsent: None,
            }),
            plain: PlainReads::default(),
            growing: Growing::default(),
            found_size: size,
            kernels_size: KernelsSize::default(),
            lease: Lease::default(),
            locks: Locks::default(),
            shadow: Slot::default(),
            shadowed: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            keeper: Mutex::default(),
            deferred: Deferred::default(),
            ownership: Ownership::new(Membership::new()),
            commits: Commits::default(),
            arrivals: Arrivals::default(),
            joint: Joint::default(),
            in_record: AtomicU64::new(0),
            left_journal: Mutex::default(),
            pending_notice: AtomicI32::new(0),
            noted_by: AtomicU32::new(0),
            keeps_note: AtomicBool::new(false),
            maps_are_lost: AtomicBool::new(false),
        })
    }

    fn reopen(&self, fd: BorrowedFd<'_>, access: Access) -> Result<()> {
        if self.state.load(Ordering::Acquire) == DISOWNED {
            return Err(disowned());
        }
        self.add_descriptor(fd.as_raw_fd(), access);
        self.is_open_again();
        Ok(())
    }

    /// From now on, the kernel's position of a descriptor is the program's, since other processes have it, too.
    pub(crate) fn share_position(&self) {
        self.fds.share_position();
    }

    /// Adds a descriptor of the program for this file.
    pub fn add_descriptor(&self, fd: RawFd, access: Access) {
        self.fds.add(fd, access);
        self.has_attached(access);
    }

    /// As [`add_descriptor`](Self::add_descriptor), with the description of `old`.
    pub fn add_duplicate(&self, old: RawFd, fd: RawFd, access: Access) {
        self.fds.add_duplicate(old, fd, access);
        self.has_attached(access);
    }

    fn has_attached(&self, access: Access) {
        if access == Access::Write {
            self.ownership.membership.set_writes(true);
            self.say_pending_notice();
            self.note_by_added_descriptor();
        }
    }

    /// The program is about to close `fd`: to be called before the kernel closes it. With the last descriptor the
    /// file is committed, checkpointed and closed clean.
    ///
    /// # Errors
    /// Those of that last commit; the descriptor is gone nevertheless.
    pub fn remove_descriptor(&self, fd: RawFd) -> Result<()> {
        self.leave_keeper();
        self.drop_process_locks();
        self.remove_note_with_last_writable(fd);
        if !self.is_disowned() {
            self.defer_close(fd); // then it is not the last
        }
        // Once it is not the last, it stays so: another thread closes the last one, and may be doing so already.
        let mut is_last = self.fds.begin_close_is_last(fd);
        if !self.is_disowned() {
            if is_last {
                self.keep_for_maps(fd); // with maps in use it is not the last
            } else {
                self.keep_better_for_maps(fd);
            }
        }
        is_last = is_last && self.fds.begin_close_is_last(fd);
        if !is_last {
            self.lose_record_locks();
        } else if !self.is_disowned() {
            let _ = self.sync_group_if_open(); // what is left to do then, with the list locked, reports errors
        }
        let result = if is_last && self.state.load(Ordering::Acquire) != DISOWNED {
            // Goes after the lock, for which the background would wait.
            let is_attached = self.state.load(Ordering::Acquire) == ATTACHED || self.ownership.membership.is_attached();
            let _undisturbed = is_attached.then(Undisturbed::begin);
            let mut files = files();
            if self.fds.begin_close_is_last(fd) { self.close_last(&mut files) } else { Ok(()) }
        } else {
            Ok(())
        };
        let attached = [ATTACHED, GROWING].contains(&self.state.load(Ordering::Acquire));
        // This process may also have to commit a hand-over image.
        self.fds.remove(fd, attached || self.may_be_stored_to() || self.ownership.is_disturbed());
        if !self.is_disowned() {
            self.lease_leaves(fd); // not before: the lease could be taken by it again
        }
        if !self.fds.has_writable() {
            self.ownership.membership.set_writes(false);
            if self.fds.has_writable() {
                self.ownership.membership.set_writes(true); // another thread has opened it meanwhile
            }
        }
        result
    }

    /// The last descriptor goes: leaves the files of the process, and ends the session or leaves it to others.
    pub(super) fn close_last(&self, files: &mut List) -> Result<()> {
        if files.get(&self.key()).is_some_and(|file| core::ptr::eq(&**file, self)) {
            files.remove(&self.key());
        }
        let closed = self.leave_membership();
        if closed.is_ok() && self.settings.group.is_none() {
            undisturbed::call_off(); // the background has nothing left to do for it
        }
        groups::leave(self); // not before: a failure concerns the others
        crate::file::shadow::forget_inherited(self.key());
        if closed.is_err()
            && let Some(session) = self.session()
        {
            // The next owner recovers the file: nothing of ours, such as the background, may touch it then.
            session.arena.shared().closed.store(1, Ordering::Release);
            // Now, and not when the file is dropped: a thread that is forking may keep a reference to it.
            session.engine.journal().leave();
        }
        if closed.is_err() {
            self.abandon_growing();
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::UserBuf;
    use famio_test_support::place::{Place, memory};
    use std::fs::File;
    use std::os::unix::ffi::OsStrExt;

    fn opened() -> (Place, [File; 2], Arc<AtomicFile>) {
        let place = Place::new(memory(), "famio-test-opened").unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, [b'-'; 100]).unwrap();
        let files = [(); 2].map(|()| File::options().read(true).write(true).open(&path).unwrap());
        let c_path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        let open = |file: &File| AtomicFile::open(file.as_fd(), Access::Write, &c_path, &Settings::default()).unwrap();
        let atomic = files.each_ref().map(open)[0].clone();
        // SAFETY: the test's memory.
        unsafe { atomic.write(0, &[UserBuf::of(&mut b"bytes".to_owned())]) }.unwrap();
        (place, files, atomic)
    }

    fn is_closed(atomic: &AtomicFile) -> bool {
        let (device, inode) = atomic.key();
        AtomicFile::find(device, inode).is_none() && atomic.state.load(Ordering::Acquire) == PLAIN
    }

    /// Each once took the other for the last: the file stayed attached, without a descriptor for a checkpoint.
    #[test]
    fn of_two_that_are_closed_at_once_one_is_the_last() {
        let (place, files, atomic) = opened();
        assert!(!atomic.fds.begin_close_is_last(files[0].as_raw_fd())); // by a thread that then stops
        atomic.remove_descriptor(files[1].as_raw_fd()).unwrap();
        assert!(is_closed(&atomic));
        atomic.remove_descriptor(files[0].as_raw_fd()).unwrap();
        assert!(is_closed(&atomic) && atomic.fds.is_empty() && !atomic.fds.has_writable());
        assert_eq!(&std::fs::read(place.path().join("file")).unwrap()[..6], b"bytes-");
    }

    #[test]
    fn threads_that_close_the_last_ones_at_once_close_the_file() {
        for _ in 0..200 {
            let (_place, files, atomic) = opened();
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
        }
    }

    /// A thread that was forking once kept a reference to the file: until its fork was over, the next `open` gave
    /// `EBUSY`.
    #[test]
    fn a_close_that_failed_leaves_the_journal_to_the_next_though_the_file_is_known() {
        use crate::pmem::record::{Call, Recorder};
        use crate::pmem::{Domain, TestHooks};
        let recorder = Recorder::new(Domain::PageCache);
        TestHooks { domain: Some(Domain::PageCache), medium: Some(recorder), ..TestHooks::current() }.enter();
        let (_place, files, atomic) = opened();
        let is_in_session = || crate::recovery::is_in_session(files[0].as_fd(), &Settings::default());
        assert!(is_in_session());
        atomic.remove_descriptor(files[1].as_raw_fd()).unwrap();
        recorder.fail(Call::Fdatasync, 1, libc::EIO);
        let closed = atomic.remove_descriptor(files[0].as_raw_fd());
        assert_eq!(closed.unwrap_err().errno(), libc::EIO);
        assert!(!is_in_session());
        drop(atomic);
        TestHooks::default().enter();
    }

    /// An `open` that waited for a lease found the file that it had looked up, which had been replaced by then.
    #[test]
    fn a_file_that_was_replaced_is_opened_again_and_one_without_successor_is_not() {
        let place = Place::new(memory(), "famio-test-replaced").unwrap();
        let path = place.path().join("file");
        let c_path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        let made = |text: &str| {
            std::fs::write(place.path().join("next"), text).unwrap();
            std::fs::rename(place.path().join("next"), &path).unwrap();
            File::options().read(true).write(true).open(&path).unwrap()
        };
        let (old, new) = (made("old"), made("new"));
        let opened = std::cell::RefCell::new(vec![&new, &old]);
        let open = || Ok(opened.borrow_mut().pop().unwrap());
        assert_eq!(open_latest(&c_path, open).unwrap().as_raw_fd(), new.as_raw_fd());
        let leads = |key| leads_elsewhere(&c_path, key);
        let by_name = |file: &File| {
            let name = OpenedBy { is_real: true, leads_elsewhere: &leads };
            AtomicFile::open_by_name(file.as_fd(), Access::Write, &c_path, name, &Settings::default())
        };
        assert!(by_name(&old).is_err_and(|e| e.is_nameless()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(open_latest(&c_path, || Ok(&old)).unwrap().as_raw_fd(), old.as_raw_fd());
        let atomic = by_name(&old).unwrap();
        atomic.remove_descriptor(old.as_raw_fd()).unwrap();
    }
}
