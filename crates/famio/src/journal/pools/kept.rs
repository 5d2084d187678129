//! Folders that stay open while one operation looks into them again and again: to open one anew takes the library
//! fourteen system calls, to find it among the open ones two.

use crate::sys::internal::undisturbed;
use crate::sys::{InternalFd, high_duplicate, identity_at};
use core::marker::PhantomData;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::cell::RefCell;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Open folders: those of the file and of its pool.
#[derive(Default)]
struct Folders {
    /// With the way in which each was opened.
    open: RefCell<Vec<(OFlags, InternalFd)>>,
    made: RefCell<Option<Made>>,
}

/// A `.famio/` that was made, or found and checked: its folder, its path and the folder around it.
pub(super) type Beside = (InternalFd, PathBuf, InternalFd);

/// The `.famio/` of the file that a stretch (`undisturbed`) is about.
struct Made {
    stretch: u64,
    beside: Beside,
}

fn kept() -> Option<&'static Folders> {
    let kept = core::ptr::with_exposed_provenance::<Folders>(crate::thread::current().folders.get());
    // SAFETY: null, or set by a `Keeping` on this thread, which borrows it; the callers here return before that ends.
    unsafe { kept.as_ref() }
}

/// Notes that this is the `.famio/` of `file`.
pub(super) fn note_made(file: BorrowedFd<'_>, (folder, path, parent): (&InternalFd, &Path, &InternalFd)) {
    let Some((kept, stretch)) = kept().zip(undisturbed::now_about(file)) else { return };
    if let (Ok(mut made), Ok(folder), Ok(parent)) =
        (kept.made.try_borrow_mut(), high_duplicate(folder.as_fd()), high_duplicate(parent.as_fd()))
    {
        *made = Some(Made { stretch, beside: (folder, path.to_path_buf(), parent) });
    }
}

/// The `.famio/` of `file` that was [noted](note_made), if it still has its name.
pub(super) fn find_made(file: BorrowedFd<'_>) -> Option<Beside> {
    let (kept, stretch) = kept().zip(undisturbed::now_about(file))?;
    let made = kept.made.try_borrow().ok()?;
    let Made { beside: (folder, path, parent), .. } = made.as_ref().filter(|made| made.stretch == stretch)?;
    let name = CString::new(path.file_name()?.as_encoded_bytes()).ok()?;
    let is_there =
        identity_at(parent.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|it| it == folder.identity());
    let beside = (high_duplicate(folder.as_fd()).ok()?, path.clone(), high_duplicate(parent.as_fd()).ok()?);
    is_there.then_some(beside)
}

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
        let Some(kept) = kept() else { return open(name) };
        if let Some(found) = find(kept, flags, identity_at(at.as_fd(), name, how)?) {
            return Ok(found);
        }
        let opened = open(name)?;
        // In a signal handler they may be in use.
        if let (Ok(mut kept), Ok(again)) = (kept.open.try_borrow_mut(), crate::sys::high_duplicate(opened.as_fd())) {
            kept.push((flags, again));
        }
        Ok(opened)
    })
}

fn find(kept: &Folders, flags: OFlags, identity: (u64, u64)) -> Option<InternalFd> {
    let kept = kept.open.try_borrow().ok()?;
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
