//! Twins: several open file descriptions of the program that share one of the kernel's, since the kernel grants the
//! write lease only to a single description. While the lease is held, positions, flags and locks are the library's,
//! which the program cannot notice. Before the lease is released, or if the kernel's description would matter, they
//! are *split*: each gets its own.
//!
//! A `dup3` over a number closes what it led to, which drops the process's record locks. So descriptions are joined
//! when there are no locks, and split when there are none in the kernel: locks kept in memory are made there in
//! between. Until then the numbers lead to an `O_PATH` descriptor, whose close drops no locks.

use super::{Descriptors, List, Number, is_used};
use crate::file::Access;
use crate::sys::internal::{Passing, at_number, open_again_low};
use crate::sys::{InternalFd, check, syscall};
use crate::thread::Guard;
use core::sync::atomic::Ordering;
use rustix::fs::{AtFlags, OFlags, StatxAttributes, StatxFlags};
use rustix::io::{Errno, FdFlags};
use rustix::process::{Resource, getrlimit};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

const F_GETSIG: usize = 11;
const F_GETOWN_EX: usize = 16;

/// What two descriptions must have in common to share one of the kernel's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    flags: OFlags,
    mount: u64,
}

/// `None`: the description has to stay separate. A file with several names, or with attributes that forbid an `open`,
/// could not be opened again by another description in the same way.
fn kind_of(fd: BorrowedFd<'_>) -> Option<Kind> {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK | StatxFlags::MNT_ID).ok()?;
    let is_known = stat.stx_mask & (StatxFlags::NLINK | StatxFlags::MNT_ID).bits()
        == (StatxFlags::NLINK | StatxFlags::MNT_ID).bits();
    let forbids = stat.stx_attributes.intersects(StatxAttributes::APPEND | StatxAttributes::IMMUTABLE);
    if !is_known || stat.stx_nlink != 1 || forbids {
        return None;
    }
    // The kernel adds the last one for a lease; the one before only matters to `open`.
    let ignored = OFlags::LARGEFILE | OFlags::NOFOLLOW | OFlags::from_bits_retain(libc::O_ASYNC as u32);
    let flags = rustix::fs::fcntl_getfl(fd).ok()? - ignored;
    Some(Kind { flags, mount: stat.stx_mnt_id })
}

/// Whether the file of `fd` could be opened for reading and writing now, by the name by which `fd` was opened.
fn may_be_opened(fd: BorrowedFd<'_>) -> bool {
    may_access(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

/// Whether `fd` could be opened once more, by `/proc`.
fn may_be_opened_again(fd: BorrowedFd<'_>) -> bool {
    let name = CString::new(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()));
    name.is_ok_and(|name| may_access(libc::AT_FDCWD, &name, 0))
}

fn may_access(at: RawFd, path: &CStr, flags: i32) -> bool {
    let (access, flags) = (libc::R_OK | libc::W_OK, flags | libc::AT_EACCESS);
    let arguments = [at as usize, path.as_ptr() as usize, access as usize, flags as usize, 0, 0];
    // SAFETY: the path is a C string.
    check(unsafe { syscall(libc::SYS_faccessat2, arguments) }).is_ok()
}

/// Whether the description has no signals, no mark and no lease.
fn is_unmarked(fd: BorrowedFd<'_>) -> bool {
    let mut owner = [0i32; 2];
    let fcntl = |command: usize, argument: usize| {
        // SAFETY: a pointer among the arguments leads to `owner`, which is as large as a `struct f_owner_ex`.
        check(unsafe { syscall(libc::SYS_fcntl, [fd.as_raw_fd() as usize, command, argument, 0, 0, 0]) })
    };
    let has_none = |answer: crate::error::Result<usize>, none: usize| answer.is_ok_and(|answer| answer == none);
    has_none(fcntl(libc::F_GETLEASE as usize, 0), libc::F_UNLCK as usize)
        && has_none(fcntl(F_GETSIG, 0), 0)
        && has_none(fcntl(F_GETOWN_EX, (&raw mut owner) as usize), 0)
        && owner[1] == 0
}

/// Makes `number` lead to the description of `fd`; keeps its close-on-exec flag.
fn lead(fd: BorrowedFd<'_>, number: RawFd) -> bool {
    // SAFETY: the number is open, as its list says, and is not closed meanwhile.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
    flags.is_ok_and(|flags| lead_with(fd, number, flags))
}

fn lead_with(fd: BorrowedFd<'_>, number: RawFd, flags: FdFlags) -> bool {
    let flags = if flags.contains(FdFlags::CLOEXEC) { libc::O_CLOEXEC } else { 0 };
    let arguments = [fd.as_raw_fd() as usize, number as usize, flags as usize, 0, 0, 0];
    // SAFETY: no memory is passed; the number is the program's, and still leads to the same file.
    at_number(|| check(unsafe { syscall(libc::SYS_dup3, arguments) })).is_ok()
}

/// Closes a number of the program's, which gets another description at once.
fn clear(number: RawFd) {
    // SAFETY: no memory is passed; the number is open, as its list says, and the lock of the list keeps the library
    // from using it.
    let _ = check(unsafe { syscall(libc::SYS_close, [number as usize, 0, 0, 0, 0, 0]) });
}

/// Whether the kernel could replace all numbers: the program has not lowered its hard limit below one.
fn are_in_reach(numbers: &[Number]) -> bool {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    numbers.iter().all(|number| (number.fd as u64) < hard)
}

fn borrow(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: never -1; users have the lock of the list, under which a number leaves it before it is closed.
    unsafe { BorrowedFd::borrow_raw(number) }
}

impl List {
    /// The numbers that lead to another description's kernel description.
    fn twins(&self) -> Vec<Number> {
        let is_twin = |number: &&Number| number.description != 0 && Some(number.description) != self.joined;
        if self.joined.is_some() { self.open.iter().filter(is_twin).copied().collect() } else { Vec::new() }
    }
}

impl Descriptors {
    /// Whether descriptions share one of the kernel's.
    #[inline]
    pub fn are_joined(&self) -> bool {
        self.joined.load(Ordering::Acquire)
    }

    fn set_joined(&self, list: &mut List, joined: Option<u32>) {
        list.joined = joined;
        self.joined.store(joined.is_some(), Ordering::Release);
    }

    /// Whether the program has several descriptions, each with its own of the kernel's.
    pub fn are_several(&self) -> bool {
        let list = self.list();
        let mut open = list.open.iter().map(|number| number.description);
        let first = open.next();
        list.joined.is_none() && open.any(|other| Some(other) != first)
    }

    /// In a forked child that has made no call and no lock yet: the numbers `of` one description get one of the
    /// kernel's of their own.
    pub fn own_in_child(&self, of: &[RawFd]) {
        let Some(list) = self.list.try_lock() else { return };
        let is_twin = |fd: &&RawFd| list.twins().iter().any(|twin| twin.fd == **fd);
        if let Some(&twin) = of.iter().find(is_twin)
            && let Ok(own) = open_again_low(borrow(twin), OFlags::RDWR)
        {
            of.iter().filter(|&&fd| self.is_still(fd)).for_each(|&fd| {
                lead(own.as_fd(), fd);
            });
        }
    }

    /// Runs `act` while no number gets another description.
    pub fn while_numbers_stay<T>(&self, act: impl FnOnce() -> T) -> T {
        let _list = self.list();
        act()
    }

    /// Runs `act` while no description is joined. `None`: some are.
    pub fn while_apart<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let list = self.list();
        list.joined.is_none().then(act)
    }

    /// A number of the program's (not one of the library that stands in for it) that satisfies `fits`.
    pub fn find(&self, fits: impl Fn(BorrowedFd<'_>) -> bool) -> Option<RawFd> {
        let list = self.list();
        let fits = |number: &&Number| number.description != 0 && self.is_still(number.fd) && fits(borrow(number.fd));
        list.open.iter().find(fits).map(|number| number.fd)
    }

    /// Joins all descriptions to one of the kernel's, if nothing distinguishes them. The process has no locks on the
    /// file. Returns whether they are joined; if not, [`split`](Self::split) follows nevertheless.
    pub fn join(&self) -> bool {
        let mut list = self.list();
        let Some(base) = list.writable() else { return false };
        let Some(&Number { description, .. }) = list.find(base) else { return false };
        list.close_parked(); // this drops no lock: there is none
        let kind = kind_of(borrow(base)).filter(|kind| kind.flags == OFlags::RDWR);
        let joins = |number: &Number| {
            number.description != 0
                && number.access == Access::Write
                && self.is_still(number.fd)
                && kind_of(borrow(number.fd)) == kind
                && is_unmarked(borrow(number.fd))
        };
        let may_join = kind.is_some()
            && list.joined.is_none()
            && list.parked.is_none()
            && list.leftover.is_empty()
            && are_in_reach(&list.open)
            && list.open.iter().all(joins)
            && may_be_opened_again(borrow(base));
        if !may_join {
            return false;
        }
        self.set_joined(&mut list, Some(description));
        list.twins().iter().all(|twin| lead(borrow(base), twin.fd))
    }

    /// Under the lease, so that the kernel has one description: gives the program a twin of it, made by `duplicate`.
    /// `look` leads to the file that the program opens. `None`: it has to be opened.
    pub fn add_twin(&self, look: BorrowedFd<'_>, duplicate: impl FnOnce(BorrowedFd<'_>) -> isize) -> Option<RawFd> {
        let mut list = self.list();
        let &base = list.open.iter().find(|number| number.access == Access::Write && number.description != 0)?;
        let kind = kind_of(borrow(base.fd))?;
        let is_alike = self.is_still(base.fd)
            && kind.flags == OFlags::RDWR
            && are_in_reach(&list.open)
            && kind_of(look).is_some_and(|looked| looked.mount == kind.mount)
            && may_be_opened(look)
            && may_be_opened_again(borrow(base.fd));
        if !is_alike {
            return None;
        }
        let new = duplicate(borrow(base.fd));
        if new < 0 {
            return None;
        }
        let joined = list.joined.unwrap_or(base.description);
        self.set_joined(&mut list, Some(joined));
        let twin = list.new_description();
        list.put(new as RawFd, Access::Write, twin);
        Some(new as RawFd)
    }

    /// Begins to split joined descriptions. `None`: there are none.
    pub fn split(&self) -> Option<Split<'_>> {
        if !self.are_joined() {
            return None;
        }
        let passing = Passing::begin(); // before the lock: a thread that replaces a number may wait for that
        let mut list = self.list();
        list.joined?;
        let is_there = |number: &&Number| number.description != 0 && self.is_still(number.fd);
        let mut there = list.open.iter().filter(is_there);
        let of_joined = there.clone().find(|number| Some(number.description) == list.joined);
        let Some(&base) = of_joined.or_else(|| there.next()) else {
            self.set_joined(&mut list, None); // the program has closed them all
            return None;
        };
        list.joined = Some(base.description);
        Some(Split { of: self, list, base: base.fd, look: None, is_hidden: false, _passing: passing })
    }
}

/// While it lives, no number of the file is closed or added.
pub(crate) struct Split<'a> {
    of: &'a Descriptors,
    list: Guard<'a, List>,
    /// A number that keeps the kernel's description.
    base: RawFd,
    /// What the other numbers lead to while locks are made in the kernel, if it could be opened.
    look: Option<OwnedFd>,
    /// They lead to it.
    is_hidden: bool,
    _passing: Passing,
}

impl Split<'_> {
    /// A descriptor that keeps the kernel's description.
    pub fn base(&self) -> BorrowedFd<'_> {
        borrow(self.base)
    }

    /// The process has no record locks in the kernel, and gets some now: they must survive the close of the numbers.
    pub fn hide(&mut self) {
        let twins = self.list.twins();
        let Some(first) = twins.first() else { return };
        let look = match self.open_at(first.fd, || open_again_low(self.base(), OFlags::PATH)) {
            Some(Opened::Passing(look)) => self.look.insert(look).as_raw_fd(),
            Some(Opened::InPlace) => first.fd,
            None => return,
        };
        for twin in twins.iter().filter(|twin| twin.fd != look) {
            lead(borrow(look), twin.fd);
        }
        self.is_hidden = true;
    }

    /// Gives each description one of the kernel's. `has_locks`: the process may have record locks in the kernel.
    /// Returns whether all have one; if not, they are joined as before.
    pub fn end(mut self, has_locks: bool) -> bool {
        let (mut twins, mut all) = (self.list.twins(), true);
        twins.retain(|twin| self.of.is_still(twin.fd)); // others were closed unseen
        if has_locks && !self.is_hidden && !twins.is_empty() {
            return false;
        }
        while let Some(&Number { description, .. }) = twins.first() {
            let of_one: Vec<_> = twins.extract_if(.., |twin| twin.description == description).collect();
            let Some(&Number { fd: first, .. }) = of_one.first() else { continue };
            let opened = self.open_at(first, || self.open());
            let from = match &opened {
                Some(Opened::Passing(opened)) => opened.as_raw_fd(),
                Some(Opened::InPlace) => first,
                None => self.base,
            };
            if opened.is_some() || self.is_hidden {
                let led = of_one.iter().filter(|twin| twin.fd != from).all(|twin| lead(borrow(from), twin.fd));
                all &= led;
            }
            all &= opened.is_some();
            match opened {
                // Its close would drop the locks.
                Some(Opened::Passing(opened)) if has_locks => {
                    self.list.leftover.extend(InternalFd::at_its_number(opened).ok().map(Arc::new));
                }
                _ => {}
            }
        }
        self.list.leftover.retain(|fd| has_locks || is_used(fd));
        if all {
            self.of.set_joined(&mut self.list, None);
        }
        all
    }

    fn open(&self) -> rustix::io::Result<OwnedFd> {
        let again = || open_again_low(self.base(), OFlags::RDWR | OFlags::NONBLOCK);
        let opened = crate::journal::pools::access::as_owner(self.base(), again)?;
        rustix::fs::fcntl_setfl(&opened, OFlags::RDWR)?;
        Ok(opened)
    }

    /// Opens the file for `twin`. If the program has used up its numbers, only the number of `twin` can be freed: its
    /// close drops no locks, since the process has none in the kernel, or the number is hidden.
    fn open_at(&self, twin: RawFd, open: impl Fn() -> rustix::io::Result<OwnedFd>) -> Option<Opened> {
        match open() {
            Ok(opened) => return Some(Opened::Passing(opened)),
            Err(Errno::MFILE) => {}
            Err(_) => return None,
        }
        let flags = rustix::io::fcntl_getfd(borrow(twin)).ok()?;
        clear(twin);
        match open() {
            Ok(opened) if opened.as_raw_fd() == twin => {
                let opened = opened.into_raw_fd(); // the program's
                let _ = rustix::io::fcntl_setfd(borrow(opened), flags);
                Some(Opened::InPlace)
            }
            // It got a number that was closed meanwhile.
            Ok(opened) => lead_with(opened.as_fd(), twin, flags).then_some(Opened::Passing(opened)),
            Err(_) => {
                lead_with(self.base(), twin, flags);
                None
            }
        }
    }
}

/// The file, opened for a description of the program's.
enum Opened {
    /// With a number that is not in use.
    Passing(OwnedFd),
    /// With a number of that description.
    InPlace,
}

#[cfg(test)]
mod tests;
