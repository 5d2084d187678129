//! Which kernel descriptors of the file may be used: the program's own. Closing one of ours would drop the record locks
//! that the process holds on the file, so we open none.

use super::Access;
use crate::error::{Error, Result};
use crate::sys::high_duplicate;
use crate::thread::{Guard, Mutex};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The program's descriptors of one file, and one of ours where it has closed its last writable one.
#[derive(Default)]
pub(crate) struct Descriptors(Mutex<List>);

#[derive(Default)]
struct List {
    open: Vec<(RawFd, Access)>,
    parked: Option<OwnedFd>,
}

impl Descriptors {
    fn list(&self) -> Guard<'_, List> {
        self.0.lock()
    }

    /// The program has one more.
    pub fn add(&self, fd: RawFd, access: Access) {
        let mut list = self.list();
        list.open.retain(|&(known, _)| known != fd);
        list.open.push((fd, access));
    }

    /// Whether `fd` is the last that the program has.
    pub fn is_last(&self, fd: RawFd) -> bool {
        self.list().open.iter().all(|&(known, _)| known == fd)
    }

    /// The program is about to close `fd`. `keep_writable`: journal work may still need a writable one.
    pub fn remove(&self, fd: RawFd, keep_writable: bool) {
        let mut list = self.list();
        let was_writable = list.open.contains(&(fd, Access::Write));
        list.open.retain(|&(known, _)| known != fd);
        let none_writable = list.open.iter().all(|&(_, access)| access == Access::Read);
        if keep_writable && was_writable && none_writable && list.parked.is_none() {
            // SAFETY: the caller closes it only after this.
            list.parked = high_duplicate(unsafe { BorrowedFd::borrow_raw(fd) }).ok();
        }
        if list.open.is_empty() {
            list.parked = None;
        }
    }

    /// Whether the program has none left.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.list().open.is_empty()
    }

    /// Whether one can be written through.
    pub fn has_writable(&self) -> bool {
        let list = self.list();
        list.parked.is_some() || list.open.iter().any(|&(_, access)| access == Access::Write)
    }

    /// Calls `work` with a descriptor that stays open meanwhile; a writable one where asked for. `EBADF` without one.
    pub fn with<T>(&self, writable: bool, work: impl FnOnce(BorrowedFd<'_>) -> Result<T>) -> Result<T> {
        let list = self.list();
        let open = list.open.iter().find(|&&(_, access)| access == Access::Write || !writable).map(|&(fd, _)| fd);
        let fd = open.or(list.parked.as_ref().map(|fd| fd.as_raw_fd())).ok_or(Error::new(libc::EBADF))?;
        // SAFETY: a descriptor leaves the list, under its lock, before it is closed.
        work(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Forgets all, in a forked child: they are the parent's.
    pub fn forget(&self) {
        if let Some(mut list) = self.0.try_lock() {
            list.parked = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, IntoRawFd};

    fn pair() -> (OwnedFd, RawFd) {
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let second = rustix::io::dup(&file).unwrap().into_raw_fd();
        (file, second)
    }

    #[test]
    fn a_writable_one_is_parked_while_the_program_still_reads() {
        let (file, second) = pair();
        let fds = Descriptors::default();
        fds.add(file.as_raw_fd(), Access::Read);
        fds.add(second, Access::Write);
        assert!(!fds.is_last(second));
        fds.remove(second, true);
        // SAFETY: opened above, closed once.
        drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(second) });
        fds.with(true, |fd| Ok(rustix::fs::ftruncate(fd, 10)?)).unwrap();
        assert_eq!(rustix::fs::fstat(file.as_fd()).unwrap().st_size, 10);
        fds.remove(file.as_raw_fd(), true);
        assert!(fds.is_empty() && !fds.has_writable());
        assert_eq!(fds.with(false, |_| Ok(())).unwrap_err().errno(), libc::EBADF);
    }
}
