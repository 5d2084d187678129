//! The owner lock: the right to change a file, held by one process at a time. Its holder is the owner
//! (`file::ownership`), or a process that recovers the file; processes that only read the journal share it. It goes
//! with its process, however that ends. The control file names the arena of the session, which stays for recovery.

use super::control::{Control, Owner, random};
use super::control_page::Page;
use crate::error::{Error, Result};
use crate::sys::locks::Lock;
use crate::sys::{InternalFd, internal};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::sync::Arc;

/// Attempts at making an arena, each foiled by another process that locked the new file, until this is given up.
const TRIES: u32 = 1000;

/// The owner lock, held.
pub(crate) struct OwnerLock {
    control: Arc<Control>,
    exclusive: bool,
}

impl OwnerLock {
    /// Takes the lock. `EBUSY`: another process has it; or, if `exclusive`, members share memory in another folder,
    /// so that their uncommitted changes cannot be had from here.
    pub fn take(control: Arc<Control>, exclusive: bool) -> Result<Self> {
        if exclusive && control.is_elsewhere() {
            return Err(control.kept_out());
        }
        let how = if exclusive { Lock::Exclusive } else { Lock::Shared };
        if !control.lock_owner_lock(how, true)? {
            return Err(busy(&control));
        }
        // An unowned session still belongs to the members.
        if control.has_unowned_session() {
            control.unlock_owner_lock();
            return Err(busy(&control));
        }
        Ok(Self::new(control, exclusive))
    }

    /// Takes the lock exclusively if it is free. For a member: there may be an unowned session. It [records itself as
    /// the owner](crate::index::Membership::set_owner).
    pub fn try_take(control: Arc<Control>) -> Result<Option<Self>> {
        Ok(control.lock_owner_lock(Lock::Exclusive, false)?.then_some(Self { control, exclusive: true }))
    }

    fn new(control: Arc<Control>, exclusive: bool) -> Self {
        if exclusive {
            control.set_owner(Owner::me());
        }
        Self { control, exclusive }
    }

    /// Makes a shared lock exclusive. `EBUSY`: another process reads the journal.
    pub fn upgrade(&mut self) -> Result<()> {
        if !self.exclusive {
            if self.control.is_elsewhere() {
                return Err(self.control.kept_out());
            }
            if !self.control.lock_owner_lock(Lock::Exclusive, true)? {
                return Err(busy(&self.control));
            }
            *self = Self::new(self.control.clone(), true);
        }
        Ok(())
    }

    /// The control file.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Makes a new, empty file in memory for an arena, and names it in the control file. No other user can open it. A
    /// process that has it mapped keeps it locked, so that it is not swept.
    pub fn make_arena(&self) -> Result<InternalFd> {
        self.forget_arena();
        for _ in 0..TRIES {
            let number = random()?;
            let path = Page::path(self.control.identity(), self.control.key()?, number, "arena");
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = internal::open(CWD, &*path, flags, Mode::RUSR | Mode::WUSR);
            let arena = made.map_err(|e| Error::from(e).context(&path))?;
            #[cfg(test)]
            tests::just_made(&path);
            match rustix::fs::flock(&arena, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    self.control.set_arena(number);
                    return Ok(arena);
                }
                // Another process sweeps and has it locked at this moment, and may have been stopped there: make
                // another one.
                Err(e) => {
                    let _ = rustix::fs::unlinkat(CWD, &*path, AtFlags::empty());
                    if e != Errno::WOULDBLOCK {
                        return Err(e.into());
                    }
                }
            }
        }
        Err(Error::new(libc::EAGAIN))
    }

    /// The first page of the arena of the last session, whose process has died or is this one. `None`: there is none,
    /// or it belongs to another user.
    pub fn arena_page(&self) -> Option<Box<[u8; 4096]>> {
        self.control.arena_page()
    }

    /// Opens the arena of the last session, whose process has died, for reading. `None`: there is none.
    ///
    /// # Errors
    /// `EACCES`: it belongs to another user.
    pub fn open_arena(&self) -> Result<Option<InternalFd>> {
        self.control.open_arena()
    }

    /// Forgets the dead owner's arena: recovery is about to change the file, which the arena then no longer
    /// describes. Calls of this process may still read a mapped one.
    pub fn forget_arena(&self) {
        self.control.forget_arena();
    }

    /// Whether uncommitted changes of a killed process may have to be kept: in its arena, or in a hand-over image.
    pub fn may_keep(&self) -> bool {
        self.control.may_keep()
    }

    /// Releases the lock but keeps the arena: if a recovery was refused, the next attempt needs it.
    pub fn leave(self) {
        self.control.unlock_owner_lock();
    }

    /// Releases the lock and forgets the arena.
    pub fn release(self) {
        if self.exclusive {
            self.control.remove_arena();
        }
        self.leave();
    }
}

fn busy(control: &Control) -> Error {
    let owner = match control.owner() {
        Some(owner) => owner.to_string(),
        None => "another process".into(),
    };
    let what = format!("in use as an atomic file by its owner, {owner} ({})", control.path());
    Error::with(libc::EBUSY, what)
}

#[cfg(test)]
mod tests {
    use super::super::control::for_test;
    use super::*;
    use core::cell::RefCell;

    type Act = Box<dyn FnMut(&str)>;

    thread_local! {
        /// What a test does to an arena that was just made.
        static JUST_MADE: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    pub(in crate::index) fn just_made(path: &str) {
        JUST_MADE.with_borrow_mut(|act| act.iter_mut().for_each(|act| act(path)));
    }

    #[test]
    fn who_sweeps_keeps_nobody_from_an_arena() {
        let file = for_test();
        let owner_lock = OwnerLock::take(Arc::new(file.again()), true).unwrap();
        let mut swept = Vec::new();
        JUST_MADE.set(Some(Box::new(move |path| {
            let arena = std::fs::File::open(path).unwrap();
            if swept.len() < 3 {
                rustix::fs::flock(&arena, FlockOperation::NonBlockingLockExclusive).unwrap();
                swept.push(arena); // and is stopped
            }
        })));
        owner_lock.make_arena().unwrap();
        JUST_MADE.set(None);
        let here = owner_lock.control.arena_path().unwrap();
        let key = here.rsplit_once('-').unwrap().0.strip_prefix("/dev/shm/").unwrap();
        let names = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.file_name());
        assert_eq!(names.filter(|name| name.to_string_lossy().starts_with(key)).count(), 1);
        owner_lock.release();
    }

    /// Neither a copied number nor a copied key helps: a stranger can read both in `/dev/shm`.
    #[test]
    fn a_control_file_names_nothing_of_another_one() {
        let (ours, strangers) = (for_test(), for_test());
        let owner_lock = OwnerLock::take(Arc::new(ours.again()), true).unwrap();
        owner_lock.make_arena().unwrap();
        std::fs::copy(ours.path(), strangers.path()).unwrap();
        OwnerLock::take(Arc::new(strangers.again()), true).unwrap().forget_arena();
        assert!(std::path::Path::new(&owner_lock.control.arena_path().unwrap()).exists());
        owner_lock.release();
    }

    #[test]
    fn one_writer_or_several_readers() {
        let file = for_test();
        let open = || Arc::new(file.again());
        let first = OwnerLock::take(open(), false).unwrap();
        let mut second = OwnerLock::take(open(), false).unwrap();
        assert_eq!(second.upgrade().unwrap_err().errno(), libc::EBUSY);
        first.release();
        second.upgrade().unwrap();
        let refused = OwnerLock::take(open(), false).err().unwrap();
        assert_eq!(refused.errno(), libc::EBUSY);
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(OwnerLock::try_take(open()).unwrap().is_none());
        assert_eq!(open().owner(), Some(Owner::me()));
        second.release();
        assert_eq!(open().owner(), None);
        OwnerLock::try_take(open()).unwrap().unwrap().release();
    }

    #[test]
    fn an_arena_has_a_name_that_nobody_guesses_and_goes_with_the_claim() {
        let file = for_test();
        let owner_lock = OwnerLock::take(Arc::new(file.again()), true).unwrap();
        assert!(owner_lock.arena_page().is_none());
        let paths: Vec<_> = (0..2)
            .map(|_| {
                rustix::io::pwrite(owner_lock.make_arena().unwrap(), &[7; 4096], 0).unwrap();
                owner_lock.control.arena_path().unwrap()
            })
            .collect();
        assert_ne!(paths[0], paths[1]);
        assert_eq!(paths.iter().map(|path| std::path::Path::new(path).exists()).collect::<Vec<_>>(), [false, true]);
        assert_eq!(owner_lock.arena_page().as_deref(), Some(&[7; 4096]));
        owner_lock.leave();
        let owner_lock = OwnerLock::take(Arc::new(file.again()), true).unwrap();
        assert_eq!(owner_lock.arena_page().as_deref(), Some(&[7; 4096]));
        owner_lock.release();
        assert!(!std::path::Path::new(&paths[1]).exists() && file.again().arena_path().is_none());
    }
}
