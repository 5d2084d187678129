//! Where processes that have the same atomic file open meet: the page of the file's control file.
//!
//! One of them at a time has the file's *turn* (its [`Claim`](super::Claim)), and with it a session. The page says whether there
//! is a session, and whether the open epoch *travels*: lies in a file beside the page, between two turns. Who wants the turn
//! rings; who has it gives it.

mod epoch;
mod lab;
mod maps;
mod places;
mod positions;
mod watch;

pub(crate) use epoch::Sort;
pub(crate) use maps::SharedSize;
pub(crate) use places::{Standing, Writer};
pub(crate) use positions::Positions;

use super::control::{Control, Owner, is_anybody};
use super::control_page::{
    CHANGE, END_WANTED, MAGIC, MOVED, NOBODYS, Page, SESSION, SHADOW, TRAVELS, UNOWNED, map, place, unmap,
};
use super::life::LIVES;
use crate::error::{Error, Result};
use crate::sys::locks::{Lock, is_locked, try_lock, unlock};
use crate::sys::{InternalFd, shm};
use crate::thread::Mutex;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::Arc;

/// Control files that were found without a name before that is given up: each of them was removed by its last process, just
/// when this one opened it.
const NAMELESS: u32 = 1000;

/// This process's door to one file.
///
/// Invariant: `page` points to a mapped page as long as the value lives, or is null, before it has come.
pub(crate) struct Door {
    page: AtomicPtr<Page>,
    /// `None`: it has left.
    control: Mutex<Option<Arc<Control>>>,
    /// Device and inode of the control file that this process came to last.
    of: [AtomicU64; 2],
    /// This process has come, and was not kept out since: what the page says is of the file's processes.
    has_come: AtomicBool,
    /// When this process came last it found processes that share memory in another folder.
    is_kept_out: AtomicBool,
    place: AtomicU32,
    id: AtomicU64,
    writes: AtomicU64,
    maps: AtomicU64,
}

impl Door {
    /// This process has not come to it yet.
    pub fn new() -> Self {
        Self {
            page: AtomicPtr::new(core::ptr::null_mut()),
            control: Mutex::new(None),
            of: Default::default(),
            has_come: AtomicBool::new(false),
            is_kept_out: AtomicBool::new(false),
            place: AtomicU32::new(0),
            id: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            maps: AtomicU64::new(0),
        }
    }

    /// Whether this process has ever come.
    #[inline]
    pub fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Acquire)
    }

    /// Whether those who have the file open share memory in another folder, as this process found when it came last.
    pub fn is_kept_out(&self) -> bool {
        self.is_kept_out.load(Ordering::Acquire)
    }

    /// Whether this process is at the door. Who is not, can't tell who of the others lives.
    pub fn is_here(&self) -> bool {
        self.control.lock().is_some()
    }

    /// The file's control file, while this process is at the door.
    pub fn control(&self) -> Option<Arc<Control>> {
        self.control.lock().clone()
    }

    /// Comes to the door, whose control file `open` gives; or back, after [`leave`](Self::leave). `has_journal`: whether a crash
    /// left one, asked by the first to come: the page that says so may have been swept. Nothing, if it is here.
    ///
    /// # Errors
    /// Those of `open`. `EBUSY`: too many processes have it open; or those that have it share memory
    /// in another folder. Those of a folder that was set.
    pub fn come(
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
        for _ in 0..NAMELESS {
            let control = Control::new(open()?);
            let attaching = control.attaching().inspect_err(|_| control.remove_if_unused())?;
            if !control.has_name() {
                continue; // its last process removed it between our open and our lock
            }
            // In the place of the page that was here before: somebody may be looking at it.
            let old = self.page.load(Ordering::Acquire);
            let failed = |e: Error| e.context(format_args!("mapping {}, where processes meet", control.path()));
            let mapped = match map(&control, old) {
                Ok(mapped) => mapped,
                Err(e) => {
                    drop(attaching);
                    control.remove_if_unused(); // it may have been made for this process alone
                    return Err(failed(e));
                }
            };
            self.page.store(mapped.as_ptr(), Ordering::Release);
            let (device, inode) = control.identity();
            self.of[0].store(device, Ordering::Release);
            self.of[1].store(inode, Ordering::Release);
            self.has_come.store(true, Ordering::Release);
            let came = self.come_in(&control, shm, &mut has_journal);
            drop(attaching);
            if came.is_err() {
                self.has_come.store(false, Ordering::Release); // what the page says is not for this process
                control.remove_if_unused();
            }
            came?;
            *here = Some(Arc::new(control));
            return Ok(());
        }
        Err(Error::with(libc::EAGAIN, "its control file is removed again and again"))
    }

    /// Leaves without a word where this is not the control file any more by which the file is found: who is there still, is to
    /// come to the other one as well. What travels here is lost.
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

    fn come_in(&self, control: &Control, shm: (u64, u64), has_journal: &mut dyn FnMut() -> Result<bool>) -> Result<()> {
        let page = self.page();
        control.key()?;
        if page.magic.load(Ordering::Acquire) != MAGIC || !is_anybody(control) {
            // Of processes that are all gone: what they had not committed goes with them.
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
            // A journal is as a session that somebody died with: who comes next does not read before it is recovered.
            let state = (self.state() & !(SESSION | MOVED | UNOWNED)) | if left { SESSION } else { 0 };
            page.state.store(state.wrapping_add(CHANGE), Ordering::Release);
            page.members.iter().for_each(|member| member.id.store(0, Ordering::Relaxed));
            page.unknown_stores.store(0, Ordering::Relaxed);
            page.places.store(0, Ordering::Relaxed);
            page.stuck.store(0, Ordering::Relaxed);
            page.apart.store(0, Ordering::Relaxed);
            page.all_killed.store(left.into(), Ordering::Relaxed);
            page.shm.store(shm.0, Ordering::Release);
            page.shm_inode.store(shm.1, Ordering::Release);
            page.magic.store(MAGIC, Ordering::Release);
        }
        if (page.shm.load(Ordering::Acquire), page.shm_inode.load(Ordering::Acquire)) != shm {
            self.is_kept_out.store(true, Ordering::Release);
            return Err(control.kept_out());
        }
        self.take_place(control)
    }

    fn page(&self) -> &Page {
        if !self.has_come() {
            return &NOBODYS;
        }
        // SAFETY: mapped as long as the door (its invariant), or null; made of atomic words, for which every bit pattern is
        // valid.
        unsafe { self.page.load(Ordering::Acquire).as_ref() }.unwrap_or(&NOBODYS)
    }

    /// The path of something that belongs to this file, and that only who may write it can name.
    fn path(&self, number: u64, what: &str) -> String {
        let of = self.of.each_ref().map(|word| word.load(Ordering::Acquire));
        Page::path(of.into(), self.page().key.load(Ordering::Acquire), number, what)
    }

    /// A number that was not given out yet.
    pub fn number(&self) -> u64 {
        self.page().numbers.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// [`SESSION`], [`TRAVELS`], and a count of changes.
    #[inline]
    pub fn state(&self) -> u64 {
        self.page().state.load(Ordering::Acquire)
    }

    /// The number of the arena of the session; 0: there is none yet.
    #[inline]
    pub fn arena(&self) -> u64 {
        self.page().arena.load(Ordering::Acquire)
    }

    /// Opens that arena, for reading.
    pub fn open_arena(&self, number: u64) -> Result<InternalFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(crate::sys::openat(CWD, &*self.path(number, "arena"), flags, Mode::empty())?)
    }

    /// Opens that arena, for an owner.
    pub fn open_arena_to_own(&self, number: u64) -> Result<InternalFd> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(crate::sys::internal::open(CWD, &*self.path(number, "arena"), flags, Mode::empty())?)
    }

    /// This process has the claim, for messages.
    pub fn set_claimant(&self) {
        self.page().claimant.store(Owner::me().word(), Ordering::Relaxed);
    }

    /// Whether all processes of the last session were killed: what they had not committed is nobody's.
    pub fn were_all_killed(&self) -> bool {
        self.page().all_killed.load(Ordering::Acquire) != 0
    }

    /// This process can't attach to sessions of others here: they are to be ended when the owner changes.
    pub fn set_apart(&self) {
        self.page().apart.store(1, Ordering::Release);
    }

    /// A process waits that can't own a session: the next to have this one ends it, instead of handing it over.
    pub fn ask_for_end(&self) {
        let _ = self.page().apart.compare_exchange(0, END_WANTED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The session has ended that a process waited for, or there is none.
    pub fn note_end(&self) {
        let _ = self.page().apart.compare_exchange(END_WANTED, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether the session is to be ended instead of handed over: a process waits for that, or can't attach to any.
    pub fn is_apart(&self) -> bool {
        self.page().apart.load(Ordering::Acquire) != 0
    }

    /// A process reads along in the session (`is`), or none does any more.
    pub fn set_read_along(&self, is: bool) {
        self.page().read_along.store(is.into(), Ordering::Release);
    }

    /// Whether one does, or did.
    #[inline]
    pub fn is_read_along(&self) -> bool {
        self.page().read_along.load(Ordering::Acquire) != 0
    }

    /// There is a session of this process now, or no longer. By the owner.
    pub fn set_session(&self, there: bool) {
        let holder = if there { self.place.load(Ordering::Acquire) + 1 } else { 0 };
        self.page().holder.store(holder, Ordering::Release);
        self.page().all_killed.store(0, Ordering::Release);
        self.change(SESSION | UNOWNED, if there { SESSION } else { 0 });
        self.give(); // who watches is to watch this process, and who reads looks anew
    }

    /// The session goes on without an owner, or has this process for its owner again: who reads along in it goes on.
    pub fn set_unowned(&self, is: bool) {
        let holder = &self.page().holder;
        // A session that is not unowned has a holder, whenever this process is killed.
        if !is {
            holder.store(self.place.load(Ordering::Acquire) + 1, Ordering::Release);
        }
        self.change(SESSION | UNOWNED, if is { SESSION | UNOWNED } else { SESSION });
        if is {
            holder.store(0, Ordering::Release);
        }
    }

    /// Whether there is a session without an owner.
    pub fn has_unowned(&self) -> bool {
        self.state() & (SESSION | UNOWNED) == SESSION | UNOWNED
    }

    fn change(&self, bits: u64, to: u64) {
        let next = self.state() & !bits | to;
        self.page().state.store(next.wrapping_add(CHANGE), Ordering::SeqCst);
    }

    /// How often turns were given until now: for [`wait`](Self::wait).
    pub fn given(&self) -> u32 {
        self.page().given.load(Ordering::SeqCst)
    }

    /// Tells the process that has the turn that another process wants it. Returns how often the bell was rung before.
    pub fn ring(&self) -> u32 {
        let bell = &self.page().bell;
        let before = bell.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(bell, futex::Flags::empty(), i32::MAX as u32);
        before
    }

    /// Waits until a turn is given after `given` was seen, or for `patience`.
    pub fn wait(&self, given: u32, patience: Timespec) {
        let _ = futex::wait(&self.page().given, futex::Flags::empty(), given, Some(&patience));
    }

    /// The turn is given: whoever waits may look.
    pub fn give(&self) {
        let given = &self.page().given;
        given.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(given, futex::Flags::empty(), i32::MAX as u32);
    }

    /// The owner gives its turn because another process wants it.
    pub fn count_hand_over(&self) {
        self.page().hand_overs.fetch_add(1, Ordering::Relaxed);
    }

    /// The word that rings.
    pub fn bell(&self) -> &AtomicU32 {
        &self.page().bell
    }

    /// Whose turn it is can't give it (its process id), or can again (0).
    pub fn set_stuck(&self, pid: u32) {
        self.page().stuck.store(pid, Ordering::SeqCst);
    }

    /// The process that can't give the turn; 0: none.
    pub fn stuck(&self) -> u32 {
        self.page().stuck.load(Ordering::SeqCst)
    }

    /// Leaves, unless this is the last process and the epoch travels, or there are stores that nobody has looked for, or the last one
    /// that can own an unowned session: then somebody has to commit that first. Whether it left.
    pub fn leave(&self) -> bool {
        let mut here = self.control.lock();
        let Some(control) = here.as_ref() else { return true };
        let attaching = control.try_attaching();
        let others = self.others_at(control);
        if !others && (self.state() & TRAVELS != 0 || self.shadow().is_some() && self.unknown_stores() != 0) {
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
            if self.state() & SESSION == 0 && !control.is_claimed() {
                control.remove_arena(); // its process was killed when its session had ended
            }
            // One that names an arena stays: who recovers the file has to know what is in there.
            if control.arena_path().is_none() {
                control.remove_name();
            }
        }
        unlock(&**control, place(at));
        drop(attaching);
        *here = None;
        true
    }

    /// In a forked child: the place is the parent's.
    pub fn forget(&self) {
        // Its page did not come along.
        self.has_come.store(false, Ordering::Release);
        self.page.store(core::ptr::null_mut(), Ordering::Release);
        if let Some(mut here) = self.control.try_lock() {
            *here = None;
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(page) = NonNull::new(*self.page.get_mut()) {
            LIVES.remove(&self.page().members[self.place.load(Ordering::Acquire) as usize].life);
            // SAFETY: ours, and no reference into it outlives the door.
            unsafe { unmap(page) };
        }
    }
}

#[cfg(test)]
mod tests;
