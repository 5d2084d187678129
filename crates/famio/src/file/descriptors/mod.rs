//! The kernel descriptors by which the file may be used: the program's own. Closing one of ours drops the process's
//! record locks on the file, so ours are closed only together with one of the program's, which drops them anyway.

pub(super) mod by_kernel;
mod parked;
mod position;
pub(super) mod set_id;
pub(super) mod shared_memory;
mod twins;

pub(super) use twins::Split;

use super::Access;
use crate::error::{Error, Result};
use crate::journal::has_lost_its_name;
use crate::sys::internal::undisturbed;
use crate::sys::{InternalFd, high_duplicate, identity_and_size};
use crate::thread::{Guard, Mutex};
use core::sync::atomic::AtomicBool;
use rustix::fs::{Stat, fstat};
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// The program's descriptors of one file; and one of ours if the program has closed its last writable one, or for
/// work on the file that takes long.
#[derive(Default)]
pub(crate) struct Descriptors {
    list: Mutex<List>,
    /// Device and inode. A descriptor of the program is confirmed before each use, since the program may have closed
    /// it, and opened another file, by system calls that no hook sees.
    key: Option<(u64, u64)>,
    /// Descriptions share one of the kernel's: a copy of `List::joined`, readable without the lock.
    joined: AtomicBool,
}

/// A descriptor of the program.
#[derive(Clone, Copy)]
struct Number {
    fd: RawFd,
    access: Access,
    /// The number, in this list, of the program's open file description. 0: unknown, or the library's own.
    description: u32,
    /// The description was made by this process, which has done nothing with it that was not seen.
    is_new: bool,
}

#[derive(Default)]
struct List {
    open: Vec<Number>,
    /// The last description's number.
    last: u32,
    /// The description whose kernel's description all others share (`twins`).
    joined: Option<u32>,
    /// Other processes may have a description, too, so that the kernel's file position is the program's.
    shares_position: bool,
    /// Descriptors whose close has begun while another one was left to be the last.
    closing: Vec<RawFd>,
    /// A writable duplicate. Calls that use it share it; they begin under the lock of the list.
    parked: Option<Arc<InternalFd>>,
    /// Parked earlier, and in use when the program closed a descriptor: closed when it closes another.
    leftover: Vec<Arc<InternalFd>>,
    /// The descriptor that was last confirmed while nobody could change it, and when (`undisturbed`).
    confirmed: Option<(u64, RawFd)>,
}

fn is_used(fd: &Arc<InternalFd>) -> bool {
    Arc::strong_count(fd) > 1
}

impl List {
    fn writable(&self) -> Option<RawFd> {
        self.open.iter().find(|number| number.access == Access::Write).map(|number| number.fd)
    }

    /// The program has closed it.
    fn take(&mut self, fd: RawFd) {
        self.confirmed = None;
        self.open.retain(|number| number.fd != fd);
        self.closing.retain(|&known| known != fd);
    }

    fn find(&self, fd: RawFd) -> Option<&Number> {
        self.open.iter().find(|number| number.fd == fd)
    }

    fn is_writable(&self, fd: RawFd) -> bool {
        self.find(fd).is_some_and(|number| number.access == Access::Write)
    }

    fn put(&mut self, fd: RawFd, access: Access, description: u32) {
        self.take(fd);
        self.open.push(Number { fd, access, description, is_new: false });
    }

    fn new_description(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// Parks a duplicate of `fd`, which is open, unless that leads to another file than `key` by now: the program may
    /// have replaced it unseen.
    fn park(&mut self, fd: RawFd, key: Option<(u64, u64)>) {
        // SAFETY: the caller's promise.
        let parked = high_duplicate(unsafe { BorrowedFd::borrow_raw(fd) }).ok();
        self.parked = parked.filter(|parked| key.is_none_or(|key| parked.identity() == key)).map(Arc::new);
    }

    /// Closes the parked descriptors: the program closes one of its own now, which drops its record locks anyway. This
    /// also ends the `flock` locks of ours, as the program expects.
    fn close_parked(&mut self) {
        self.leftover.extend(self.parked.take());
        self.leftover.retain(is_used);
    }
}

/// Sleeps until the program's last close is made although a descriptor of ours is still in use, and the length of
/// each.
const SLEEPS: u32 = 60_000;
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

impl Descriptors {
    /// For the file with that device and inode.
    pub fn of(key: (u64, u64)) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    fn list(&self) -> Guard<'_, List> {
        self.list.lock()
    }

    /// Whether a number still leads to the file.
    fn is_still(&self, fd: RawFd) -> bool {
        self.key.is_none() || self.size_if_still(fd).is_some()
    }

    /// The file's size, if the number still leads to it.
    fn size_if_still(&self, fd: RawFd) -> Option<u64> {
        // SAFETY: not -1, and only queried.
        let (found, size) = identity_and_size(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
        self.key.is_none_or(|key| key == found).then_some(size)
    }

    /// A descriptor of the library that stands in for the program's has a new number.
    pub fn renumber(&self, old: RawFd, new: RawFd) {
        let mut list = self.list();
        list.confirmed = None;
        list.open.iter_mut().filter(|number| number.fd == old).for_each(|number| number.fd = new);
        list.closing.iter_mut().filter(|fd| **fd == old).for_each(|fd| *fd = new);
    }

    /// Adds a descriptor of an unknown description.
    pub fn add(&self, fd: RawFd, access: Access) {
        self.list().put(fd, access, 0);
    }

    /// It has a description of its own, and everything that the program does with it is seen; if `is_new`, also what it
    /// has done.
    pub fn is_opened(&self, fd: RawFd, is_new: bool) {
        let mut list = self.list();
        let description = list.new_description();
        if let Some(number) = list.open.iter_mut().find(|number| number.fd == fd) {
            (number.description, number.is_new) = (description, is_new);
        }
    }

    /// Whether nobody can have used the descriptions unseen.
    pub fn are_seen(&self) -> bool {
        let list = self.list();
        !list.shares_position && list.open.iter().all(|number| number.is_new)
    }

    /// Adds a descriptor with the same description as `old`.
    pub fn add_duplicate(&self, old: RawFd, fd: RawFd, access: Access) {
        let mut list = self.list();
        let description = list.find(old).map_or(0, |number| number.description);
        list.put(fd, access, description);
    }

    /// Makes a call that duplicates `old`, without the lock: the call is to get the lowest number, so no descriptor
    /// of the library may pass, and a thread with one passing may hold the lock. If descriptions are joined just
    /// then, the duplicate makes the attempt at the lease fail, and they are split again together with it.
    pub fn duplicate(&self, old: RawFd, call: impl FnOnce() -> Option<RawFd>) {
        if let Some(new) = call().filter(|&new| new != old) {
            let mut list = self.list();
            if let Some(&Number { access, description, .. }) = list.find(old) {
                list.put(new, access, description);
            }
        }
    }

    /// `fd` is about to be closed. Returns whether it is the last descriptor. If not, it is no longer counted at later
    /// closes: of threads that close the last descriptors at the same time, exactly one must close the last.
    pub fn begin_close_is_last(&self, fd: RawFd) -> bool {
        let mut list = self.list();
        let is_last = list.open.iter().all(|known| known.fd == fd || list.closing.contains(&known.fd));
        if !is_last && !list.closing.contains(&fd) {
            list.closing.push(fd);
        }
        is_last
    }

    /// Whether the description of `fd` is this process's alone.
    pub fn is_known(&self, fd: RawFd) -> bool {
        let list = self.list();
        !list.shares_position && list.find(fd).is_some_and(|number| number.description != 0)
    }

    /// How `fd` is open.
    pub fn access_of(&self, fd: RawFd) -> Access {
        if self.list().is_writable(fd) { Access::Write } else { Access::Read }
    }

    /// The program is about to close `fd`. `keep_writable`: work on the journal may still need a writable descriptor.
    pub fn remove(&self, fd: RawFd, keep_writable: bool) {
        let mut list = self.list();
        let was_writable = list.find(fd).is_some_and(|number| number.access == Access::Write);
        list.take(fd);
        if list.open.is_empty() || !keep_writable || list.writable().is_some() {
            list.close_parked();
        } else if was_writable && list.parked.as_ref().is_none_or(|parked| has_lost_its_name(parked.as_fd())) {
            // By a descriptor whose name is gone, the journal would not be found.
            list.close_parked();
            list.park(fd, self.key);
        }
        let is_last = list.open.is_empty();
        drop(list);
        // If ours were closed later, this might drop locks that the program takes when it opens the file again.
        for _ in 0..if is_last { SLEEPS } else { 0 } {
            let mut list = self.list();
            list.close_parked();
            if list.leftover.is_empty() {
                return;
            }
            drop(list);
            let _ = rustix::thread::nanosleep(&SLEEP);
        }
    }

    /// Whether there is only one descriptor, which is the program's.
    pub fn is_one(&self) -> bool {
        let list = self.list();
        list.open.len() == 1 && list.parked.is_none() && list.leftover.is_empty()
    }

    /// Whether the program has none left.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.list().open.is_empty()
    }

    /// Whether the program has one with this access.
    pub fn has(&self, access: Access) -> bool {
        self.list().open.iter().any(|number| number.access == access)
    }

    /// Whether a descriptor is writable.
    pub fn has_writable(&self) -> bool {
        let list = self.list();
        list.parked.is_some() || list.writable().is_some()
    }

    /// Whether the program has another one that is writable.
    pub fn has_writable_besides(&self, fd: RawFd) -> bool {
        self.list().open.iter().any(|number| number.access == Access::Write && number.fd != fd)
    }

    /// Calls `attempt`, and once more by another descriptor if the one in use has lost the name that it needs.
    pub fn by_a_name<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        match attempt() {
            Err(e) if e.is_nameless() && (self.prefer_named() || self.park_named()) => attempt(),
            done => done,
        }
    }

    /// The first of the program's descriptors (if asked, writable ones) that still leads to the file, and the file's
    /// size.
    fn confirmed(&self, list: &List, writable: bool) -> Option<(RawFd, u64)> {
        let fits = |number: &&Number| number.access == Access::Write || !writable;
        list.open.iter().filter(fits).find_map(|number| Some((number.fd, self.size_if_still(number.fd)?)))
    }

    /// As [`confirmed`](Self::confirmed). While nobody can change the program's descriptors, the kernel is asked once.
    fn still_confirmed(&self, list: &mut List, writable: bool) -> Option<RawFd> {
        let Some(now) = undisturbed::now() else { return Some(self.confirmed(list, writable)?.0) };
        if let Some((when, fd)) = list.confirmed
            && when == now
            && (!writable || list.is_writable(fd))
        {
            return Some(fd);
        }
        let (fd, _) = self.confirmed(list, writable)?;
        list.confirmed = Some((now, fd));
        undisturbed::note_file(fd);
        Some(fd)
    }

    /// Calls `work` with a descriptor that stays open meanwhile, a writable one if asked. `EBADF`: there is none.
    pub fn with<T>(&self, writable: bool, work: impl FnOnce(BorrowedFd<'_>) -> Result<T>) -> Result<T> {
        self.with_listed(&mut self.list(), writable, work)
    }

    /// As [`with`](Self::with), with a writable descriptor: `just`, which this call has confirmed, if the program has not
    /// closed it since.
    pub fn with_confirmed<T>(&self, just: Option<RawFd>, work: impl FnOnce(BorrowedFd<'_>) -> Result<T>) -> Result<T> {
        let mut list = self.list();
        match just.filter(|&fd| list.is_writable(fd)) {
            // SAFETY: as in `with`.
            Some(fd) => work(unsafe { BorrowedFd::borrow_raw(fd) }),
            None => self.with_listed(&mut list, true, work),
        }
    }

    fn with_listed<T>(
        &self,
        list: &mut List,
        writable: bool,
        work: impl FnOnce(BorrowedFd<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Some(fd) = self.still_confirmed(list, writable) {
            // SAFETY: confirmed; a descriptor leaves the list, under its lock, before it is closed.
            return work(unsafe { BorrowedFd::borrow_raw(fd) });
        }
        let parked = list.parked.as_deref().ok_or(Error::new(libc::EBADF))?.get()?;
        work(parked.as_fd())
    }

    /// What `fstat` says of the file: one system call, which also confirms the descriptor. `EBADF`: there is none.
    pub fn stat(&self) -> Result<Stat> {
        self.with_stat(|_, stat| Ok(stat))
    }

    /// As [`with`](Self::with), with what `fstat` says of the file.
    pub fn with_stat<T>(&self, work: impl FnOnce(BorrowedFd<'_>, Stat) -> Result<T>) -> Result<T> {
        let list = self.list();
        let is_it = |stat: &Stat| self.key.is_none_or(|key| key == (stat.st_dev, stat.st_ino));
        for number in &list.open {
            // SAFETY: as in `with`, once `fstat` has confirmed it.
            let fd = unsafe { BorrowedFd::borrow_raw(number.fd) };
            if let Some(stat) = fstat(fd).ok().filter(is_it) {
                return work(fd, stat);
            }
        }
        let parked = list.parked.as_deref().ok_or(Error::new(libc::EBADF))?.get()?;
        let stat = fstat(parked.as_fd())?;
        work(parked.as_fd(), stat)
    }

    /// As [`with`](Self::with), with a writable descriptor, and the kernel's size of the file.
    pub fn with_size<T>(&self, work: impl FnOnce(BorrowedFd<'_>, u64) -> Result<T>) -> Result<T> {
        let list = self.list();
        if let Some((fd, size)) = self.confirmed(&list, true) {
            // SAFETY: as in `with`.
            return work(unsafe { BorrowedFd::borrow_raw(fd) }, size);
        }
        let parked = list.parked.as_deref().ok_or(Error::new(libc::EBADF))?.get()?;
        let (_, size) = identity_and_size(parked.as_fd())?;
        work(parked.as_fd(), size)
    }

    /// As [`with`](Self::with), with a writable descriptor, for work that takes long: the program may open and close
    /// its own meanwhile.
    pub fn with_lasting<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> Result<T>) -> Result<T> {
        let parked = self.list().parked.clone().filter(|parked| parked.get().is_ok());
        match parked.or_else(|| self.park_again()) {
            Some(fd) => work(fd.get()?.as_fd()),
            None => self.with(true, work), // there are no more descriptors
        }
    }

    /// In a forked child: whether another thread of the parent held the lock at the fork, so that nobody gives it back.
    pub fn are_locked_by_parent(&self) -> bool {
        self.list.try_lock().is_none()
    }

    /// In a forked child: forgets all, since they are the parent's.
    pub fn forget(&self) {
        if let Some(mut list) = self.list.try_lock() {
            list.parked = None;
            list.leftover.clear();
        }
    }
}

#[cfg(test)]
mod tests;
