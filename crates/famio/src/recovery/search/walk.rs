//! Visits everything of interest below a folder: journals, files with a mark, and what could not be examined.
//!
//! The walk uses descriptors, so no path is too long. It does not recurse, and in a deep chain of folders keeps only
//! the first ones open, so it runs out of neither stack nor descriptors. Symbolic links are not followed; mount
//! points are crossed.

use super::find::Place;
use crate::error::{Error, Result};
use crate::index::Control;
use crate::journal::control::SUFFIX as CONTROL;
use crate::journal::joint::may_have_records;
use crate::journal::mark;
use crate::journal::pools::pool::{Pool, SUFFIX as JOURNAL, is_beside_name, is_journal_name};
use crate::sys::{InternalFd, high_duplicate, openat};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, statat};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How many folders of a chain stay open; deeper ones are reopened from below.
const OPEN_MAX: usize = 32;

/// Receives what a walk finds.
pub(in crate::recovery) trait Visitor {
    /// A journal in a pool.
    fn journal(&mut self, place: &Place, name: &str);
    /// A regular file with a mark. Comes after the journals of the `.famio/` beside it.
    fn marked(&mut self, folder: BorrowedFd<'_>, name: &CStr, path: &Path);
    /// The writes of a killed process, to be kept, of a file without a journal; its journal would have this name.
    fn leftover(&mut self, _place: &Place, _name: &str) {}
    /// Control files without a journal beside them, and without a kept epoch.
    fn controls(&mut self, _place: &Place, _names: &[CString]) {}
    /// Something that could not be examined.
    fn unexamined(&mut self, path: &Path, why: Error);
}

/// A folder on the way down.
struct Level {
    /// `None`: closed for now.
    folder: Option<InternalFd>,
    /// Device and inode.
    key: (u64, u64),
    /// Length of its path, in bytes.
    path: usize,
    /// The folders in it still to be visited, the next one last.
    folders: Vec<CString>,
    /// The regular files in it, until they are checked for marks, after `.famio/` was visited.
    files: Vec<CString>,
}

/// Walks through `root`. The error is for a system without `/proc`; everything else goes to the visitor.
pub(in crate::recovery) fn walk(root: &Path, visitor: &mut dyn Visitor) -> Result<()> {
    rustix::fs::stat(c"/proc/thread-self/fd").map_err(|e| Error::from(e).context("/proc/thread-self/fd"))?;
    let mut walk = Walk { path: root.as_os_str().as_bytes().to_vec(), levels: Vec::new(), visitor };
    match openat(CWD, root, FOLDER - OFlags::NOFOLLOW, Mode::empty()) {
        Ok(folder) => walk.enter(folder, root.file_name().is_some_and(is_beside_name)),
        Err(e) => walk.unexamined(e),
    }
    while walk.step() {}
    Ok(())
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

struct Walk<'a> {
    path: Vec<u8>,
    levels: Vec<Level>,
    visitor: &'a mut dyn Visitor,
}

impl Walk<'_> {
    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    fn unexamined(&mut self, why: impl Into<Error>) {
        let path = Path::new(OsStr::from_bytes(&self.path));
        self.visitor.unexamined(path, why.into());
    }

    /// Adds a name to the path, for the duration of a call.
    fn with<R>(&mut self, name: &[u8], act: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        if !self.path.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        let result = act(self);
        self.path.truncate(length);
        result
    }

    /// Makes one step; `false` at the end.
    fn step(&mut self) -> bool {
        let depth = self.levels.len();
        let Some(level) = self.levels.last_mut() else { return false };
        self.path.truncate(level.path);
        if level.folder.is_some() && !level.folders.last().is_some_and(|name| is_beside(name)) {
            self.ask_for_marks();
        }
        let Some(level) = self.levels.last_mut() else { return false };
        let Some(folder) = &level.folder else {
            // The folder was moved during the walk below it, and cannot be found any more.
            if !level.folders.is_empty() || !level.files.is_empty() {
                self.unexamined(Error::with(
                    libc::ESTALE,
                    "it was moved meanwhile; not everything below it was examined",
                ));
            }
            self.levels.pop();
            return true;
        };
        let Some(name) = level.folders.pop() else {
            self.leave();
            return true;
        };
        let opened = openat(folder, &*name, FOLDER, Mode::empty());
        let length = self.path.len();
        if !self.path.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
        match opened {
            Ok(folder) => {
                self.enter(folder, is_beside(&name));
                // Close the folder in the middle of the chain; the one above the current folder is still needed, as
                // its parent.
                if depth > OPEN_MAX {
                    self.levels[depth - 2].folder = None;
                }
            }
            Err(Errno::NOENT) => self.path.truncate(length), // removed meanwhile
            Err(e) => {
                let replaced = "no folder any more: it was replaced while the one above was walked through";
                self.unexamined(match e {
                    Errno::NOTDIR | Errno::LOOP => Error::with(e.raw_os_error(), replaced),
                    e => e.into(),
                });
                self.path.truncate(length);
            }
        }
        true
    }

    /// Lists a folder, whose path is the walk's, and visits its journals.
    fn enter(&mut self, folder: InternalFd, is_pool: bool) {
        let key = match fstat(&folder) {
            Ok(stat) => (stat.st_dev, stat.st_ino),
            Err(e) => return self.unexamined(e),
        };
        let (mut folders, mut files, mut journals) = (Vec::new(), Vec::new(), Vec::new());
        let mut controls = Vec::new();
        match crate::sys::list(&folder) {
            Err(Errno::NOENT) => {} // removed meanwhile
            Err(e) => self.unexamined(e),
            Ok(entries) => {
                for entry in entries {
                    let entry = match entry {
                        Ok(entry) => entry,
                        Err(Errno::NOENT) => break, // removed meanwhile
                        Err(e) => {
                            self.unexamined(Error::from(e).context("it could not be listed to its end"));
                            break;
                        }
                    };
                    let name = entry.file_name();
                    if [&b"."[..], b".."].contains(&name.to_bytes()) {
                        continue;
                    }
                    let kind = match entry.file_type() {
                        FileType::Unknown => match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                            Err(Errno::NOENT) => continue,
                            Err(e) => {
                                self.with(name.to_bytes(), |walk| walk.unexamined(e));
                                continue;
                            }
                        },
                        kind => kind,
                    };
                    match (kind, name.to_str().ok().filter(|name| is_journal_name(name))) {
                        (FileType::Directory, _) => folders.push(name.to_owned()),
                        (_, Some(name)) => journals.push(name.to_owned()),
                        (FileType::RegularFile, None) if name.to_bytes().ends_with(CONTROL.as_bytes()) => {
                            controls.push(name.to_owned());
                        }
                        (FileType::RegularFile, None) => files.push(name.to_owned()),
                        _ => {}
                    }
                }
            }
        }
        journals.sort_unstable();
        controls.retain(|name| journal_of(name).is_some_and(|journal| journals.binary_search(&journal).is_err()));
        let leftovers: Vec<_> =
            controls.iter().filter(|name| has_kept_epoch(&folder, name)).filter_map(|name| journal_of(name)).collect();
        // `.famio/` first: files that are recovered there have no mark any more.
        folders.sort_unstable_by(|a, b| (is_beside(a), b).cmp(&(is_beside(b), a)));
        files.sort_unstable();
        let has_records = || is_pool && folders.iter().any(|name| may_have_records(name.to_bytes()));
        if !journals.is_empty() || !controls.is_empty() || has_records() {
            match self.place(&folder, is_pool) {
                Ok(place) => {
                    journals.iter().for_each(|name| self.visitor.journal(&place, name));
                    leftovers.iter().for_each(|name| self.visitor.leftover(&place, name));
                    self.visitor.controls(&place, &controls);
                }
                Err(e) => self.unexamined(e),
            }
        }
        self.levels.push(Level { folder: Some(folder), key, path: self.path.len(), folders, files });
    }

    fn place(&self, folder: &InternalFd, is_beside: bool) -> Result<Place> {
        let parent = match self.levels.last().and_then(|level| level.folder.as_ref()) {
            _ if !is_beside => None,
            Some(parent) => Some(high_duplicate(parent.as_fd())?),
            None => Some(openat(folder, c"..", FOLDER, Mode::empty())?), // the walk begins here
        };
        Ok(Place::new(Pool::of_folder(high_duplicate(folder.as_fd())?, self.path().to_path_buf(), parent)))
    }

    fn ask_for_marks(&mut self) {
        let Some(level) = self.levels.last_mut() else { return };
        let Some(folder) = level.folder.take() else { return };
        for name in core::mem::take(&mut level.files) {
            let asked = mark::is_on(folder.as_fd(), &name);
            self.with(name.to_bytes(), |walk| match asked {
                Ok(false) => {}
                Ok(true) => {
                    let path = Path::new(OsStr::from_bytes(&walk.path));
                    walk.visitor.marked(folder.as_fd(), &name, path);
                }
                Err(e) => walk.unexamined(e),
            });
        }
        if let Some(level) = self.levels.last_mut() {
            level.folder = Some(folder);
        }
    }

    /// Returns to the folder above.
    fn leave(&mut self) {
        let Some(left) = self.levels.pop() else { return };
        let Some(above) = self.levels.last_mut() else { return };
        if let (None, Some(folder)) = (&above.folder, left.folder) {
            let found = openat(&folder, c"..", FOLDER, Mode::empty()).ok();
            // The folder just left may have been moved.
            above.folder = found.filter(|found| fstat(found).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == above.key));
        }
    }
}

/// The name of the journal to which a control file belongs.
fn journal_of(control: &CStr) -> Option<String> {
    let journal = control.to_str().ok()?.strip_suffix(CONTROL)?.to_owned() + JOURNAL;
    is_journal_name(&journal).then_some(journal)
}

/// Whether a killed process has left an open epoch that is to be kept.
fn has_kept_epoch(folder: &InternalFd, control: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(folder, control, flags, Mode::empty()).map_err(Error::from);
    opened.is_ok_and(|opened| Control::new(opened).has_kept_epoch())
}

/// Whether the name is `.famio`.
fn is_beside(name: &CStr) -> bool {
    is_beside_name(OsStr::from_bytes(name.to_bytes()))
}
