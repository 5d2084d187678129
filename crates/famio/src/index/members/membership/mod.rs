//! The control page of an atomic file: all processes that have the file open (its *members*) map it.
//!
//! One member at a time owns the file (it holds the [`OwnerLock`](crate::index::OwnerLock), the owner lock) and has a
//! session. The page says whether a session exists, and whether the open epoch lies in a hand-over image: a file beside
//! the page that the next owner takes up. A process that wants ownership requests it; the owner hands it over.

mod flush;
mod hand_over_image;
mod kept_locks;
mod maps;
mod positions;
mod requests;
mod session;
mod slots;
mod test_hooks;
mod visit;
mod watch;

pub(crate) use self::flush::FlushWanted;
pub(crate) use self::hand_over_image::ImageKind;
pub(crate) use self::maps::SharedSize;
pub(crate) use self::positions::Positions;
pub(crate) use self::slots::{Writer, WriterState};

use super::control::{Control, is_anybody};
use super::control_page::{
    CHANGE, HAS_IMAGE, MAGIC, MOVED, Member, NOBODYS, Page, SESSION, SHADOW, UNOWNED, map, place, unmap,
};
use super::life::LIVES;
use crate::error::{Error, Result};
use crate::sys::locks::{Lock, is_locked, try_lock, unlock};
use crate::sys::{InternalFd, shm};
use crate::thread::Mutex;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// Attempts to open a control file that still has its name. An attempt fails if the last member removes the file just
/// when this process opens it.
const NAMELESS: u32 = 1000;

/// This process's view of the control page of one file.
///
/// Invariant: `page` points to a mapped page as long as the value lives, or is null until this process has attached.
pub(crate) struct Membership {
    page: AtomicPtr<Page>,
    /// `None`: detached.
    control: Mutex<Option<Arc<Control>>>,
    /// Device and inode of the control file that this process attached to last.
    of: [AtomicU64; 2],
    /// The device of the file; 0: not known.
    device: AtomicU64,
    /// This process has attached, and has not been refused since, so the page describes this file's members.
    has_attached: AtomicBool,
    /// The last attach found members that share memory in another folder.
    is_kept_out: AtomicBool,
    /// The last attach found no free slot.
    is_full: AtomicBool,
    place: AtomicU32,
    id: AtomicU64,
    writes: AtomicU16,
    maps: AtomicU64,
}

impl Membership {
    /// A detached one.
    pub fn new() -> Self {
        Self {
            page: AtomicPtr::new(core::ptr::null_mut()),
            control: Mutex::new(None),
            of: Default::default(),
            device: AtomicU64::new(0),
            has_attached: AtomicBool::new(false),
            is_kept_out: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            place: AtomicU32::new(0),
            id: AtomicU64::new(0),
            writes: AtomicU16::new(0),
            maps: AtomicU64::new(0),
        }
    }

    /// Before an attach: the file is on this device.
    pub fn set_device(&self, device: u64) {
        self.device.store(device, Ordering::Relaxed);
    }

    /// Whether this process has ever attached.
    #[inline]
    pub fn has_attached(&self) -> bool {
        self.has_attached.load(Ordering::Acquire)
    }

    /// Whether the last attach failed because the members share memory in another folder.
    pub fn is_kept_out(&self) -> bool {
        self.is_kept_out.load(Ordering::Acquire)
    }

    /// Whether the last attach failed because all slots were taken.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Whether this process is attached. A detached process cannot tell which members live.
    pub fn is_attached(&self) -> bool {
        self.control.lock().is_some()
    }

    /// The file's control file, while this process is attached.
    pub fn control(&self) -> Option<Arc<Control>> {
        self.control.lock().clone()
    }

    /// Attaches, or attaches again after [`leave`](Self::leave); does nothing if attached. `open` opens the control
    /// file. `has_journal` says whether a crash left a journal; the first member asks, since the page that recorded
    /// it may have been swept.
    ///
    /// # Errors
    /// Those of `open`. `EBUSY`: the file has too many members, or they share memory in another folder. Errors of a
    /// configured folder.
    pub fn attach(
        &self,
        mut open: impl FnMut() -> Result<InternalFd>,
        mut has_journal: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let mut here = self.control.lock();
        if here.is_some() {
            return Ok(());
        }
        let shm = shm::begin_use()?;
        self.is_kept_out.store(false, Ordering::Release);
        self.is_full.store(false, Ordering::Release);
        for _ in 0..NAMELESS {
            let control = Control::new(open()?);
            let attaching = control.attaching().inspect_err(|_| control.remove_if_unused())?;
            if !control.has_name() {
                continue; // its last process removed it between our open and our lock
            }
            // In the place of the old page, since another thread may be reading that.
            let old = self.page.load(Ordering::Acquire);
            let failed = |e: Error| e.context(format_args!("mapping {}, where processes meet", control.path()));
            let mapped = match map(&control, old) {
                Ok(mapped) => mapped,
                Err(e) => {
                    drop(attaching);
                    control.remove_if_unused(); // the file may have been made for this process alone
                    return Err(failed(e));
                }
            };
            self.page.store(mapped.as_ptr(), Ordering::Release);
            let (device, inode) = control.identity();
            self.of[0].store(device, Ordering::Release);
            self.of[1].store(inode, Ordering::Release);
            self.has_attached.store(true, Ordering::Release);
            let attached = self.attach_locked(&control, shm, &mut has_journal);
            drop(attaching);
            if attached.is_err() {
                self.has_attached.store(false, Ordering::Release); // the page says nothing about this process
                control.remove_if_unused();
            }
            attached?;
            *here = Some(Arc::new(control));
            return Ok(());
        }
        Err(Error::with(libc::EAGAIN, "its control file is removed again and again"))
    }

    /// Detaches without any hand-over, because the file is now found by another control file. The remaining members
    /// have to attach to that one as well. A hand-over image here is lost.
    pub fn leave_behind(&self) {
        let mut here = self.control.lock();
        if let Some(control) = here.take() {
            self.change(MOVED, MOVED);
            let at = self.place.load(Ordering::Acquire);
            self.page().members[at as usize].id.store(0, Ordering::Release);
            LIVES.remove(&self.page().members[at as usize].life);
            unlock(&*control, place(at));
            control.remove_if_unused();
        }
    }

    fn attach_locked(
        &self,
        control: &Control,
        shm: (u64, u64),
        has_journal: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<()> {
        let page = self.page();
        control.key()?;
        let magic = page.magic.load(Ordering::Acquire);
        if ![0, MAGIC].contains(&magic) && is_anybody(control) {
            let what =
                format!("in use by processes with another version of Famio; its control file is {}", control.path());
            return Err(Error::with(libc::EBUSY, what));
        }
        if page.magic.load(Ordering::Acquire) != MAGIC || !is_anybody(control) {
            // All earlier members are gone, and so is what they had not committed.
            let left = has_journal()?;
            self.remove_unfinished();
            if page.magic.load(Ordering::Acquire) == MAGIC {
                self.keep_or_forget_epoch();
            } else {
                self.forget_epoch();
            }
            if self.state() & SHADOW != 0 && self.has_stores() {
                page.lost_stores.store(1, Ordering::Release);
            }
            self.forget_shadow();
            // A journal counts as a session of a killed process: nobody may read the file before it is recovered.
            let state = (self.state() & !(SESSION | MOVED | UNOWNED)) | if left { SESSION } else { 0 };
            page.state.store(state.wrapping_add(CHANGE), Ordering::Release);
            page.members.iter().for_each(|member| member.id.store(0, Ordering::Relaxed));
            page.unknown_stores.store(0, Ordering::Relaxed);
            page.places.store(0, Ordering::Relaxed);
            page.stuck.store(0, Ordering::Relaxed);
            page.no_hand_over.store(0, Ordering::Relaxed);
            page.all_killed.store(left.into(), Ordering::Relaxed);
            page.grows_no_more.store(0, Ordering::Relaxed);
            page.device.store(0, Ordering::Relaxed);
            page.shm.store(shm.0, Ordering::Release);
            page.shm_inode.store(shm.1, Ordering::Release);
            page.magic.store(MAGIC, Ordering::Release);
        }
        if (page.shm.load(Ordering::Acquire), page.shm_inode.load(Ordering::Acquire)) != shm {
            self.is_kept_out.store(true, Ordering::Release);
            return Err(control.kept_out());
        }
        self.check_device(page, control)?;
        self.take_slot(control).inspect_err(|_| self.is_full.store(true, Ordering::Release))
    }

    /// Whether the members have this very file open. A copy of its file system (a snapshot, an image) has files of the
    /// same identity, whose control files are the same, too, if they lie in a pool.
    fn check_device(&self, page: &Page, control: &Control) -> Result<()> {
        let mine = self.device.load(Ordering::Relaxed);
        let known = page.device.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire);
        match known {
            Err(theirs) if ![0, theirs].contains(&mine) => Err(Error::with(
                libc::EBUSY,
                format!(
                    "processes have the same file of another file system with the same UUID open, of which this one is a copy, or the other way round; unmount one of them, or give one a UUID of its own; its control file is {}",
                    control.path()
                ),
            )),
            _ => Ok(()),
        }
    }

    fn page(&self) -> &Page {
        if !self.has_attached() {
            return &NOBODYS;
        }
        // SAFETY: mapped as long as the value lives (its invariant), or null; the page consists of atomic words, for
        // which every bit pattern is valid.
        unsafe { self.page.load(Ordering::Acquire).as_ref() }.unwrap_or(&NOBODYS)
    }

    /// The path of shared memory that belongs to this file. Only a process that may write the file can know it.
    fn path(&self, number: u64, what: &str) -> String {
        let of = self.of.each_ref().map(|word| word.load(Ordering::Acquire));
        Page::path(of.into(), self.page().key.load(Ordering::Acquire), number, what)
    }

    /// A number that was never given out before.
    pub fn number(&self) -> u64 {
        self.page().numbers.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// [`SESSION`], [`HAS_IMAGE`] and the other bits, and above them a count of changes.
    #[inline]
    pub fn state(&self) -> u64 {
        self.page().state.load(Ordering::Acquire)
    }

    fn own_slot(&self) -> &Member {
        &self.page().members[self.place.load(Ordering::Acquire) as usize]
    }

    /// Detaches and returns true. Returns false if this process must commit first: it is the last member, and there
    /// is a hand-over image or there are stores at unknown places; or it is the last member that can own an unowned
    /// session.
    pub fn leave(&self) -> bool {
        self.leave_if(|| self.state() & HAS_IMAGE == 0)
    }

    /// As [`leave`](Self::leave), of a process whose commit has failed: an image that
    /// [is kept](Self::has_kept_epoch) stays for the next process that opens or recovers the file, as after a kill.
    pub fn leave_after_failure(&self) -> bool {
        self.leave_if(|| self.state() & HAS_IMAGE == 0 || self.has_kept_epoch())
    }

    fn leave_if(&self, may_leave_image: impl Fn() -> bool) -> bool {
        let mut here = self.control.lock();
        let Some(control) = here.as_ref() else { return true };
        let attaching = control.try_attaching();
        let others = self.others_at(control);
        if !others && (!may_leave_image() || self.shadow().is_some() && self.unknown_stores() != 0) {
            return false;
        }
        if self.is_last_attached(control) {
            return false;
        }
        let at = self.place.load(Ordering::Acquire);
        self.leave_maps();
        self.page().members[at as usize].id.store(0, Ordering::Release);
        LIVES.remove(&self.page().members[at as usize].life);
        if attaching.is_some() && !others {
            self.remove_unfinished();
            self.forget_shadow();
            if self.state() & SESSION == 0 && !control.is_owned() {
                control.remove_arena(); // the process was killed after its session had ended
            }
            // The control file stays if it names an arena: recovery has to know what is in there. It stays, too, if it
            // names a hand-over image.
            if control.arena_path().is_none() && self.state() & HAS_IMAGE == 0 {
                control.remove_name();
            }
        }
        unlock(&**control, place(at));
        drop(attaching);
        *here = None;
        true
    }

    /// In a forked child: the member slot is the parent's.
    pub fn forget(&self) {
        // The child has no mapping of the page.
        self.has_attached.store(false, Ordering::Release);
        self.page.store(core::ptr::null_mut(), Ordering::Release);
        if let Some(mut here) = self.control.try_lock() {
            *here = None;
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(page) = NonNull::new(*self.page.get_mut()) {
            if let Some(member) = self.page().members.get(self.place.load(Ordering::Acquire) as usize) {
                LIVES.remove(&member.life);
            }
            // SAFETY: our mapping; no reference into it outlives the value.
            unsafe { unmap(page) };
        }
    }
}

#[cfg(test)]
mod tests;
