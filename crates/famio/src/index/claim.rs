//! The claim: the right to change a file, which one process at a time has. It is that process's whose turn it is
//! (`file::turn`), or that of one that recovers the file; processes that only look through the journal share it. It goes with
//! its process, however that ends. The arena of its session is named in the control file, and stays for who recovers it.

use super::control::{Control, Owner, random};
use super::control_page::Page;
use super::shared::{MAGIC, Shared};
use crate::error::{Error, Result};
use crate::sys::{InternalFd, internal, locks::Lock, read_at};
use core::mem::offset_of;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::sync::Arc;

/// Arenas that were made, and locked by others at once, before that is given up.
const TRIES: u32 = 1000;

/// A held claim.
pub(crate) struct Claim {
    control: Arc<Control>,
    exclusive: bool,
}

impl Claim {
    /// Takes the claim. `EBUSY` when another process has it; and, for writing, when processes have the file open that share memory in
    /// another folder: what they have not committed can't be had from here.
    pub fn take(control: Arc<Control>, exclusive: bool) -> Result<Self> {
        if exclusive && control.is_elsewhere() {
            return Err(control.kept_out());
        }
        let how = if exclusive { Lock::Exclusive } else { Lock::Shared };
        if !control.lock_claim(how, true)? {
            return Err(busy(&control));
        }
        // A session that is unowned at this moment is that of the processes that have the file open.
        if control.has_unowned_session() {
            control.unlock_claim();
            return Err(busy(&control));
        }
        Ok(Self::new(control, exclusive))
    }

    /// Takes the claim for writing, if nobody has it. By a process that is at the door: there may be a session that is
    /// unowned. It [says who it is](super::Door::set_claimant) by itself.
    pub fn try_take(control: Arc<Control>) -> Result<Option<Self>> {
        Ok(control.lock_claim(Lock::Exclusive, false)?.then_some(Self { control, exclusive: true }))
    }

    fn new(control: Arc<Control>, exclusive: bool) -> Self {
        if exclusive {
            control.set_claimant(Owner::me());
        }
        Self { control, exclusive }
    }

    /// Makes a shared claim exclusive. `EBUSY` when another process reads the journal.
    pub fn upgrade(&mut self) -> Result<()> {
        if !self.exclusive {
            if self.control.is_elsewhere() {
                return Err(self.control.kept_out());
            }
            if !self.control.lock_claim(Lock::Exclusive, true)? {
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

    /// A new, empty file in memory for an arena, which the control file names from now on. Nobody else can open it. As long as a
    /// process has it mapped it is locked, for who sweeps.
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
                // Who sweeps has it at this very moment, and may have been stopped there: another.
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

    /// The first page of the arena of the last session, whose process has died or is this one. `None`: there is none, or it is
    /// another user's.
    pub fn arena_page(&self) -> Option<[u8; 4096]> {
        let arena = self.open_arena().ok()??;
        let mut page = [0; 4096];
        matches!(read_at(&arena, 0, &mut page), Ok(4096)).then_some(page)
    }

    /// The arena of the last session, whose process has died, for reading. `None`: there is none.
    ///
    /// # Errors
    /// `EACCES`: it is another user's.
    pub fn open_arena(&self) -> Result<Option<InternalFd>> {
        self.control.open_arena()
    }

    /// Whether a killed process has left something that is to stay though no SYNC covers it, as far as its arena tells.
    fn has_leftover(&self) -> bool {
        let Some(page) = self.arena_page() else { return false };
        let half = |at: usize| u32::from_ne_bytes(core::array::from_fn(|i| page[at + i]));
        let magic = u64::from_ne_bytes(core::array::from_fn(|i| page[offset_of!(Shared, magic) + i]));
        magic == MAGIC && [offset_of!(Shared, keeps), offset_of!(Shared, dirty)].into_iter().all(|at| half(at) != 0)
    }

    /// The arena of the dead owner no longer says how the file was: recovery is about to change it. Calls of this process may
    /// still look at what they have mapped.
    pub fn forget_arena(&self) {
        self.control.forget_arena();
    }

    /// Whether something that a killed process had not committed may stay: in its arena, or in an epoch that travels.
    pub fn may_keep(&self) -> bool {
        self.has_leftover() || self.control.has_kept_epoch()
    }

    /// Gives the claim up and leaves the arena, if there is one: it knows what a recovery that was refused has to know when
    /// it is tried again.
    pub fn leave(self) {
        self.control.unlock_claim();
    }

    /// Gives the claim up, and forgets the arena.
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
    use super::*;
    use crate::index::control::for_test;
    use core::cell::RefCell;

    type Act = Box<dyn FnMut(&str)>;

    thread_local! {
        /// What a test does to an arena that was made just now.
        static JUST_MADE: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    pub(super) fn just_made(path: &str) {
        JUST_MADE.with_borrow_mut(|act| act.iter_mut().for_each(|act| act(path)));
    }

    #[test]
    fn who_sweeps_keeps_nobody_from_an_arena() {
        let file = for_test();
        let claim = Claim::take(Arc::new(file.again()), true).unwrap();
        let mut swept = Vec::new();
        JUST_MADE.set(Some(Box::new(move |path| {
            let arena = std::fs::File::open(path).unwrap();
            if swept.len() < 3 {
                rustix::fs::flock(&arena, FlockOperation::NonBlockingLockExclusive).unwrap();
                swept.push(arena); // and is stopped
            }
        })));
        claim.make_arena().unwrap();
        JUST_MADE.set(None);
        let here = claim.control.arena_path().unwrap();
        let key = here.rsplit_once('-').unwrap().0.strip_prefix("/dev/shm/").unwrap();
        let names = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.file_name());
        assert_eq!(names.filter(|name| name.to_string_lossy().starts_with(key)).count(), 1);
        claim.release();
    }

    /// Neither by number nor by key: a stranger reads both in `/dev/shm`.
    #[test]
    fn a_control_file_names_nothing_of_another_one() {
        let (ours, strangers) = (for_test(), for_test());
        let claim = Claim::take(Arc::new(ours.again()), true).unwrap();
        claim.make_arena().unwrap();
        std::fs::copy(ours.path(), strangers.path()).unwrap();
        Claim::take(Arc::new(strangers.again()), true).unwrap().forget_arena();
        assert!(std::path::Path::new(&claim.control.arena_path().unwrap()).exists());
        claim.release();
    }

    #[test]
    fn one_writer_or_several_readers() {
        let file = for_test();
        let open = || Arc::new(file.again());
        let first = Claim::take(open(), false).unwrap();
        let mut second = Claim::take(open(), false).unwrap();
        assert_eq!(second.upgrade().unwrap_err().errno(), libc::EBUSY);
        first.release();
        second.upgrade().unwrap();
        let refused = Claim::take(open(), false).err().unwrap();
        assert_eq!(refused.errno(), libc::EBUSY);
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(Claim::try_take(open()).unwrap().is_none());
        assert_eq!(open().owner(), Some(Owner::me()));
        second.release();
        assert_eq!(open().owner(), None);
        Claim::try_take(open()).unwrap().unwrap().release();
    }

    #[test]
    fn an_arena_has_a_name_that_nobody_guesses_and_goes_with_the_claim() {
        let file = for_test();
        let claim = Claim::take(Arc::new(file.again()), true).unwrap();
        assert!(claim.arena_page().is_none());
        let paths: Vec<_> = (0..2)
            .map(|_| {
                rustix::io::pwrite(claim.make_arena().unwrap(), &[7; 4096], 0).unwrap();
                claim.control.arena_path().unwrap()
            })
            .collect();
        assert_ne!(paths[0], paths[1]);
        assert_eq!(paths.iter().map(|path| std::path::Path::new(path).exists()).collect::<Vec<_>>(), [false, true]);
        assert_eq!(claim.arena_page(), Some([7; 4096]));
        claim.leave();
        let claim = Claim::take(Arc::new(file.again()), true).unwrap();
        assert_eq!(claim.arena_page(), Some([7; 4096]));
        claim.release();
        assert!(!std::path::Path::new(&paths[1]).exists() && file.again().arena_path().is_none());
    }
}
