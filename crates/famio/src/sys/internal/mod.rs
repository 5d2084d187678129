//! Internal descriptors: those that the library keeps open for longer than a call, unknown to the program.
//!
//! They have numbers that programs rarely use (just below the limit on descriptors) and are closed on exec. Hooks
//! hide them (`close` returns `EBADF`) and move them away if the program wants their number. The library confirms
//! before each use that a descriptor still is the file for which it was opened: a program may close or replace any
//! number by a system call that no hook sees. While nobody can do so (`undisturbed`), once is enough.
// Cycle: numbers, opening, registry: a free number is one that no entry has; an entry that is lost is opened anew

mod numbers;
mod opening;
mod passing;
mod registry;
pub(crate) mod undisturbed;

pub(crate) use numbers::{at_number, closed, enlarge_table, occupy_standard, with_number};
pub(crate) use passing::{Passing, Replacing, has_waited, with_lowest};
pub(crate) use undisturbed::Undisturbed;

pub(crate) use self::opening::TRIES;
use self::registry::EntryId;
use crate::error::{Error, Result};
use crate::fast_path::FAST_PATH;
use crate::sys::identity;
use crate::thread::Held;
use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A shared handle of an internal descriptor, which is closed with the last handle unless the program has closed it
/// before. For a single system call it is borrowed (`AsFd`), which confirms the file. Code that writes through it
/// takes [`InternalFd::get`].
#[derive(Debug)]
pub struct InternalFd(EntryId);

/// A descriptor that was confirmed and keeps its number until this is dropped.
pub struct InUse<'a> {
    number: RawFd,
    side: usize,
    /// It was confirmed, and no call was made with it since.
    is_fresh: Cell<bool>,
    of: &'a InternalFd,
    _held: Held,
    _on_this_thread: PhantomData<*mut ()>,
}

/// A number that no process can have.
const NONE: RawFd = RawFd::MAX;

impl InternalFd {
    /// Makes a descriptor internal, as a duplicate with a high number. An internal one gets another handle instead.
    pub fn duplicate(fd: BorrowedFd<'_>) -> Result<Self> {
        if let Some(shared) = registry::share(fd.as_raw_fd()) {
            return Ok(Self(shared));
        }
        let _passing = Passing::begin();
        let identity = identity(fd)?;
        registry::register(numbers::high_duplicate(fd)?, identity).map(Self)
    }

    /// Makes a descriptor internal, with a high number.
    #[cfg(test)]
    pub fn adopt(low: OwnedFd) -> Result<Self> {
        Self::duplicate(low.as_fd())
    }

    /// Makes a descriptor internal under its own number: for one that must not be closed now.
    pub fn at_its_number(fd: OwnedFd) -> Result<Self> {
        let _held = Held::of_process();
        let identity = identity(fd.as_fd())?;
        registry::register(fd, identity).map(Self)
    }

    /// From now on the file is opened again by this name if the program has closed the descriptor unseen. The name
    /// must then still lead to the same file. `locked`: the new descriptor has to be locked (`flock`), too.
    pub fn set_name(&self, name: impl Into<Vec<u8>>, locked: bool) -> Result<()> {
        let name = CString::new(name).map_err(|_| Error::new(libc::EINVAL))?;
        let _held = Held::of_process();
        registry::set_name(self.0, name, locked);
        Ok(())
    }

    /// Keeps it open in forked children: a close would drop locks that the child takes.
    pub fn keep_in_children(&self) {
        registry::keep_in_children(self.0);
    }

    /// Device and inode of the file that it was opened for.
    pub fn identity(&self) -> (u64, u64) {
        registry::identity_of(self.0)
    }

    /// Confirms the descriptor; opens a lost one again by its name. `EBADF`: that failed.
    pub fn get(&self) -> Result<InUse<'_>> {
        // A signal handler on this thread that wants the number could not wait for it.
        let held = Held::of_process();
        let (number, side) = registry::begin_use(self.0)?;
        Ok(InUse { number, side, is_fresh: Cell::new(true), of: self, _held: held, _on_this_thread: PhantomData })
    }

    /// Runs `work` with the descriptor; again if the program has closed or replaced it meanwhile.
    pub fn run<T>(&self, mut work: impl FnMut(&InUse<'_>) -> Result<T>) -> Result<T> {
        for _ in 1..TRIES {
            match work(&self.get()?) {
                Err(error) if error.errno() == libc::EBADF => {}
                result => return result,
            }
        }
        work(&self.get()?)
    }

    /// As [`open_again`], of the file that it was opened for, whatever the program puts at its number.
    pub fn open_again(&self, access: rustix::fs::OFlags) -> Result<Self> {
        let using = self.get()?;
        by(&opening::Again { of: using.as_fd(), access: access | rustix::fs::OFlags::CLOEXEC, known: self.identity() })
    }

    /// Replaces the file, for all handles.
    pub fn replace(&self, new: BorrowedFd<'_>) -> Result<()> {
        let _passing = Passing::begin();
        let identity = identity(new)?;
        registry::replace(self.0, numbers::high_duplicate(new)?, identity)
    }
}

/// The call confirms it; a lost one yields an invalid descriptor (`EBADF`).
impl AsFd for InternalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: not -1; the number was just confirmed, or cannot be open.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl AsRawFd for InternalFd {
    fn as_raw_fd(&self) -> RawFd {
        let _held = Held::of_process();
        registry::confirmed(self.0).unwrap_or(NONE)
    }
}

impl Drop for InternalFd {
    fn drop(&mut self) {
        let _held = Held::of_process();
        registry::release(self.0);
    }
}

/// Confirmed again for each call that is made with it: earlier ones may have taken long.
impl AsFd for InUse<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let is_there = self.is_fresh.replace(false) || registry::is_at(self.of.0, self.number);
        let number = if is_there { self.number } else { NONE };
        // SAFETY: confirmed, and not closed by the library while this counts as a user; or cannot be open.
        unsafe { BorrowedFd::borrow_raw(number) }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        registry::end_use(self.of.0, self.side);
    }
}

fn by(way: &dyn opening::Way) -> Result<InternalFd> {
    let _passing = Passing::begin();
    let _standard = occupy_standard();
    for _ in 0..TRIES {
        let (high, identity) = opening::high(way)?;
        #[cfg(test)]
        tests::just_opened(high.as_raw_fd());
        let opened = InternalFd(registry::register(high, identity)?);
        if registry::confirmed(opened.0).is_some() {
            return Ok(opened);
        }
    }
    Err(Error::with(libc::EBADF, "the program replaced a descriptor that it had not opened"))
}

/// Opens a file, with a high number from the beginning as far as the program can see.
pub(crate) fn open(
    at: impl AsFd,
    path: impl rustix::path::Arg,
    flags: rustix::fs::OFlags,
    mode: rustix::fs::Mode,
) -> rustix::io::Result<InternalFd> {
    path.into_with_c_str(|path| {
        let flags = flags | rustix::fs::OFlags::CLOEXEC;
        as_errno(by(&opening::Named { at: at.as_fd(), path, flags, mode, made: Cell::new(false) }))
    })
}

/// Another open file description of the same file, with this access. By `/proc`, whatever names the file has.
pub(crate) fn open_again(fd: BorrowedFd<'_>, access: rustix::fs::OFlags) -> rustix::io::Result<InternalFd> {
    let known = as_errno(identity(fd))?;
    as_errno(by(&opening::Again { of: fd, access: access | rustix::fs::OFlags::CLOEXEC, known }))
}

/// A descriptor for listing a folder, with a high number, for a few calls.
pub(crate) fn open_list(folder: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let (path, mode) = (c".", rustix::fs::Mode::empty());
    let _passing = Passing::begin();
    let _standard = occupy_standard();
    as_errno(
        opening::high(&opening::Named { at: folder, path, flags, mode, made: Cell::new(false) }).map(|(list, _)| list),
    )
}

/// As [`open_again`], with the lowest free number: for the program, or for a descriptor that must not be closed now.
pub(crate) fn open_again_low(fd: BorrowedFd<'_>, access: rustix::fs::OFlags) -> rustix::io::Result<OwnedFd> {
    use opening::Way;
    let again = opening::Again { of: fd, access: access | rustix::fs::OFlags::CLOEXEC, known: as_errno(identity(fd))? };
    let _passing = Passing::begin();
    let low = with_number(|| again.open())?;
    if again.is_it(low.as_fd()) {
        return Ok(low);
    }
    core::mem::forget(low); // it is the program's
    Err(rustix::io::Errno::BADF)
}

/// A descriptor without a file name; `link` is the beginning of the link that `/proc` shows for it.
pub(crate) fn make(link: &str, make: impl Fn() -> rustix::io::Result<OwnedFd>) -> rustix::io::Result<InternalFd> {
    as_errno(by(&opening::Nameless { make: &make, link: link.as_bytes() }))
}

fn as_errno<T>(result: Result<T>) -> rustix::io::Result<T> {
    result.map_err(|error| rustix::io::Errno::from_raw_os_error(error.errno()))
}

/// Whether a descriptor that the program names is internal. One load if it is below all of those.
#[inline]
pub(crate) fn is_internal(number: RawFd) -> bool {
    number >= FAST_PATH.internal.load(Ordering::Relaxed) && registry::is_internal(number)
}

/// As [`is_internal`], before the number is closed: waits for a descriptor that passes through it.
#[inline]
pub(crate) fn is_internal_to_close(number: RawFd) -> bool {
    number >= FAST_PATH.internal.load(Ordering::Relaxed) && {
        passing::wait_to_close();
        registry::is_internal(number)
    }
}

/// Calls `visit` for each internal descriptor in `first..=last`, in order.
pub(crate) fn each_in(first: RawFd, last: RawFd, visit: impl FnMut(RawFd)) {
    registry::each(first, last, visit);
}

/// The program wants `number`, which is internal: moves the descriptor away. Returns its new number, if it has one.
/// The old number stays open until the caller closes or replaces it.
pub(crate) fn move_away(number: RawFd) -> Result<Option<RawFd>> {
    registry::move_away(number)
}

/// First in a forked child: discards what the parent's other threads had begun.
pub(crate) fn begin_child() {
    registry::begin_child();
}

/// In a forked child: closes the parent's descriptors, except those that are kept.
pub(crate) fn forget_parents() {
    registry::forget_parents();
}

#[cfg(test)]
mod tests;
