//! The files of groups that this process has open. A SYNC of one of them commits all of its group's
//! (`transaction/group.rs`).

use super::AtomicFile;
use crate::error::{Error, Result};
use crate::file::state::per_process::PerProcess;
use crate::settings::{JournalChoice, OnKill, Settings};
use std::borrow::Cow;
use std::sync::{Arc, Weak};

type List = Vec<Weak<AtomicFile>>;

static FILES: PerProcess<List> = PerProcess::new(Vec::new());

/// The settings of a file that is about to be opened. A file of a group is never the kernel's, and has a journal from
/// its first change on.
///
/// # Errors
/// `EINVAL`: settings that contradict each other.
pub(super) fn settings_in_effect(settings: &Settings) -> Result<Cow<'_, Settings>> {
    if settings.group.is_none() {
        return Ok(Cow::Borrowed(settings));
    }
    if settings.on_kill == OnKill::Keep {
        let what = "it is a file of a group, and with on-kill = keep a kill would leave its files at different calls";
        return Err(Error::with(libc::EINVAL, what));
    }
    Ok(Cow::Owned(Settings { require: true, journal: JournalChoice::Always, ..settings.clone() }))
}

/// # Errors
/// `EBUSY`: the file is open without that group.
pub(super) fn check_reopened(file: &AtomicFile, settings: &Settings) -> Result<()> {
    if settings.group.is_none() || settings.group == file.settings.group {
        return Ok(());
    }
    let what = "this process has it open without its group, or in another one, and would not commit it with this one; close it first";
    Err(Error::with(libc::EBUSY, what))
}

/// Adds a file that was just opened and not written yet.
pub(super) fn join(file: &Arc<AtomicFile>) {
    if file.settings.group.is_some() {
        let mut list = FILES.lock();
        list.retain(|file| file.strong_count() > 0);
        list.push(Arc::downgrade(file));
    }
}

/// The program has closed the file.
pub(super) fn leave(file: &AtomicFile) {
    if file.settings.group.is_some() {
        let me: *const AtomicFile = file;
        FILES.lock().retain(|file| file.as_ptr() != me);
    }
}

/// Whether the file, which has a group, is one of the files that are committed together.
pub(super) fn has(file: &AtomicFile) -> bool {
    let me: *const AtomicFile = file;
    FILES.lock().iter().any(|file| file.as_ptr() == me)
}

/// The files of a group, in the order in which their gates are closed.
pub(super) fn files_of(group: u32) -> Vec<Arc<AtomicFile>> {
    let mut files: Vec<_> = FILES.lock().iter().filter_map(Weak::upgrade).collect();
    files.retain(|file| file.settings.group == Some(group));
    files.sort_by_key(|file| file.key());
    files
}

/// In a forked child: the parent's files are not the child's.
pub(super) fn begin_child() {
    FILES.begin_child();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Access, UserBuf};
    use famio_test_support::place::{Place, memory};
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::ffi::OsStringExt;

    /// Between the end of its ownership and the end of its `close`, another thread could once commit it, without the
    /// files whose changes were lost with it.
    #[test]
    fn a_file_whose_close_has_failed_is_not_committed_any_more() {
        let settings = Settings { group: Some(77), ..Settings::default() };
        let place = Place::new(memory(), "famio-test-group").unwrap();
        let open = |name: &str| {
            let path = place.path().join(name);
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            let path = std::ffi::CString::new(path.into_os_string().into_vec()).unwrap();
            let atomic = AtomicFile::open(file.as_fd(), Access::Write, &path, &settings).unwrap();
            // SAFETY: the test's memory.
            unsafe { atomic.write(0, &[UserBuf::of(&mut b"bytes".to_owned())]) }.unwrap();
            (file, atomic)
        };
        let closing = open("closing");
        closing.1.poison_group_if_lost();
        let other = open("other");
        assert_eq!(other.1.sync().unwrap_err().errno(), libc::EIO);
        for (file, atomic) in [closing, other] {
            assert!(atomic.remove_descriptor(file.as_raw_fd()).is_err());
        }
    }
}
