//! Control files that this process has found before: one that is in use is opened again by its path, where a search
//! takes the library twenty system calls. For programs that open a file for each request.

use crate::error::Result;
use crate::index::Control;
use crate::journal::pools::trust;
use crate::sys::InternalFd;
use crate::thread::Mutex;
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Files of which it is known.
const FILES: usize = 8;

struct Known {
    /// Device and inode.
    file: (u64, u64),
    /// The pool of the settings.
    pool: Option<PathBuf>,
    control: (u64, u64),
    path: PathBuf,
}

struct Table {
    known: [Option<Known>; FILES],
    /// The place that is used next.
    next: usize,
}

/// Never waited for: in a forked child, a thread that does not exist there may have had it.
static TABLE: Mutex<Table> = Mutex::new(Table { known: [const { None }; FILES], next: 0 });

/// The control file of `file` (`of`: device and inode), if this process has found it before, and a living session is
/// announced in it. While one is, the file and its control file belong together, whatever names they have: each has its
/// identity from a living process that has both open.
pub(crate) fn find(file: BorrowedFd<'_>, of: (u64, u64), pool: Option<&Path>) -> Option<InternalFd> {
    let (path, control) = {
        let table = TABLE.try_lock()?;
        let mut known = table.known.iter().flatten();
        let known = known.find(|known| known.file == of && known.pool.as_deref() == pool)?;
        (known.path.clone(), known.control)
    };
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let found = crate::sys::openat(CWD, path, flags, Mode::empty()).ok()?;
    let is_known = found.identity() == control && trust::is_for_owner_alone(found.as_fd(), file).ok()?;
    let control = Control::new(found);
    (is_known && control.has_living_session()).then(|| control.into_file())
}

/// Notes where the control file of `file` was found.
pub(super) fn note(file: BorrowedFd<'_>, pool: Option<&Path>, control: &InternalFd, path: PathBuf) -> Result<()> {
    let (stat, control) = (crate::sys::owner_and_mode(file)?, control.identity());
    let file = (stat.st_dev, stat.st_ino);
    let Some(mut table) = TABLE.try_lock() else { return Ok(()) };
    let is_same = |known: &Known| known.file == file && known.pool.as_deref() == pool;
    let at = match table.known.iter().position(|known| known.as_ref().is_some_and(is_same)) {
        Some(at) => at,
        None => {
            table.next = (table.next + 1) % FILES;
            table.next
        }
    };
    table.known[at] = Some(Known { file, pool: pool.map(Path::to_path_buf), control, path });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Membership;
    use crate::journal::control;
    use crate::journal::testing::Scratch;
    use rustix::fs::chmod;
    use std::fs::File;

    #[test]
    fn one_with_a_living_session_is_found_without_a_search() {
        let dir = Scratch::new();
        let file = File::create(dir.path("file")).unwrap();
        let key = crate::sys::identity(file.as_fd()).unwrap();
        let again = || find(file.as_fd(), key, None).map(|found| found.identity());
        assert_eq!(again(), None, "not found yet");
        let membership = Membership::new();
        membership.attach(|| control::find_or_make(file.as_fd(), None), || Ok(false)).unwrap();
        assert_eq!(again(), None, "no session");
        membership.begin_session();
        assert_eq!(again(), None, "made, and not found");
        assert!(control::find(file.as_fd(), None).unwrap().is_some());
        let control = membership.control().unwrap();
        assert_eq!(again(), Some(control.identity()));
        assert!(find(file.as_fd(), (key.0, key.1 + 1), None).is_none(), "another file's");
        assert!(find(file.as_fd(), key, Some(dir.root())).is_none(), "of another pool");
        // By another name of the file, too.
        std::fs::rename(dir.path("file"), dir.path("other")).unwrap();
        assert_eq!(again(), Some(control.identity()));
        let path = std::path::PathBuf::from(control.path());
        for (mode, is_trusted) in [(0o644, false), (0o620, false), (0o600, true)] {
            chmod(&path, Mode::from_raw_mode(mode)).unwrap();
            assert_eq!(again().is_some(), is_trusted, "{mode:o}");
        }
        let aside = dir.path("aside");
        std::fs::rename(&path, &aside).unwrap();
        assert_eq!(again(), None, "it has another name");
        std::fs::copy(&aside, &path).unwrap();
        assert_eq!(again(), None, "a copy of it");
        std::fs::rename(&aside, &path).unwrap();
        assert!(again().is_some());
        membership.set_session(false);
        assert_eq!(again(), None, "the session has ended");
        assert!(membership.leave());
    }
}
