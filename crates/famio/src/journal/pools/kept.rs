//! Folders that stay open while one operation looks into them again and again: to open one anew takes the library
//! fourteen system calls, to find it among the open ones two.

use crate::sys::{InternalFd, identity_at};
use core::marker::PhantomData;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::cell::RefCell;
use std::os::fd::AsFd;

/// Open folders: those of the file and of its pool, with the way in which each was opened.
type Folders = RefCell<Vec<(OFlags, InternalFd)>>;

/// While this lives, this thread's folders stay open.
struct Keeping<'a> {
    _folders: &'a Folders,
    _on_this_thread: PhantomData<*mut ()>,
}

impl<'a> Keeping<'a> {
    fn begin(folders: &'a Folders) -> Self {
        crate::thread::current().folders.set((&raw const *folders).expose_provenance());
        Self { _folders: folders, _on_this_thread: PhantomData }
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        crate::thread::current().folders.set(0);
    }
}

/// Calls `work`. Folders that it opens on this thread stay open until it returns.
pub(crate) fn keeping_folders<T>(work: impl FnOnce() -> T) -> T {
    if crate::thread::current().folders.get() != 0 {
        return work();
    }
    let folders = Folders::default();
    let _keeping = Keeping::begin(&folders);
    work()
}

/// Opens a folder, or finds it among those that this thread keeps open. It is the one that has this name now.
pub(in crate::journal) fn open_folder_at(
    at: impl AsFd,
    name: impl rustix::path::Arg,
    flags: OFlags,
) -> rustix::io::Result<InternalFd> {
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let how = if flags.contains(OFlags::NOFOLLOW) { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
    let open = |name: &std::ffi::CStr| crate::sys::openat(&at, name, flags, Mode::empty());
    name.into_with_c_str(|name| {
        let kept = core::ptr::with_exposed_provenance::<Folders>(crate::thread::current().folders.get());
        // SAFETY: null, or set by a `Keeping` on this thread, which borrows it and lives on.
        let Some(kept) = (unsafe { kept.as_ref() }) else { return open(name) };
        if let Some(found) = find(kept, flags, identity_at(at.as_fd(), name, how)?) {
            return Ok(found);
        }
        let opened = open(name)?;
        // In a signal handler they may be in use.
        if let (Ok(mut kept), Ok(again)) = (kept.try_borrow_mut(), crate::sys::high_duplicate(opened.as_fd())) {
            kept.push((flags, again));
        }
        Ok(opened)
    })
}

fn find(kept: &Folders, flags: OFlags, identity: (u64, u64)) -> Option<InternalFd> {
    let kept = kept.try_borrow().ok()?;
    let (_, found) = kept.iter().find(|(how, folder)| *how == flags && folder.identity() == identity)?;
    crate::sys::high_duplicate(found.as_fd()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::Scratch;
    use rustix::fs::CWD;
    use rustix::io::Errno;

    fn open(path: &std::path::Path) -> InternalFd {
        open_folder_at(CWD, path, OFlags::RDONLY).unwrap()
    }

    #[test]
    fn a_folder_is_opened_once_while_it_is_kept() {
        let dir = Scratch::new();
        let number = |folder: &InternalFd| std::os::fd::AsRawFd::as_raw_fd(folder);
        let (one, other) = (open(dir.root()), open(dir.root()));
        assert_ne!(number(&one), number(&other));
        keeping_folders(|| {
            let one = open(dir.root());
            let before = number(&one);
            drop(one);
            assert_eq!(number(&open(dir.root())), before);
            keeping_folders(|| assert_eq!(number(&open(dir.root())), before));
            assert_eq!(number(&open(dir.root())), before, "those of the outer operation");
        });
        assert_eq!(crate::thread::current().folders.get(), 0);
    }

    #[test]
    fn another_folder_of_the_same_name_is_opened() {
        let dir = Scratch::new();
        let (name, old) = (dir.path("folder"), dir.path("old"));
        std::fs::create_dir(&name).unwrap();
        keeping_folders(|| {
            let first = open(&name).identity();
            std::fs::rename(&name, &old).unwrap();
            assert!(open_folder_at(CWD, &*name, OFlags::RDONLY).is_err_and(|e| e == Errno::NOENT));
            std::fs::create_dir(&name).unwrap();
            assert_ne!(open(&name).identity(), first);
            assert_eq!(open(&old).identity(), first);
        });
    }

    #[test]
    fn a_folder_that_may_not_be_listed_is_not_found_by_one_that_may() {
        let dir = Scratch::new();
        keeping_folders(|| {
            let path = open_folder_at(CWD, dir.root(), OFlags::PATH).unwrap();
            let listed = open(dir.root());
            assert!(crate::sys::list(&listed).is_ok());
            assert_ne!(std::os::fd::AsRawFd::as_raw_fd(&path), std::os::fd::AsRawFd::as_raw_fd(&listed));
        });
    }
}
