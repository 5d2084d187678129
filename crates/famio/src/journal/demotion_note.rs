//! Notes on a file of the processes that write it through the kernel because they cannot protect it: extended
//! attributes beside the mark. A process that begins a session looks for them, since a session would overwrite what
//! those processes write, without an error.
//!
//! A control file cannot say it: these processes may not make one, or not one that others trust. A lock on the file
//! cannot either: whatever byte it is on, it conflicts with a program's lock of the whole file. An attribute is only
//! set by users who may write the file.
//!
//! A note ends with its process. Its name says all: without the right to read a file, attributes can be listed, but not
//! read.

use super::boot::BootId;
use super::identity::Identity;
use super::pools::access::as_owner;
use crate::error::Result;
use crate::sys::{ProcessStat, namespaces, process_id, process_stat};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::fs::{XattrFlags, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::os::fd::BorrowedFd;

/// How the attributes' names begin.
const PREFIX: &str = "user.famio.demoted.";

/// The longest list of attributes that the kernel gives out.
const LIST_MAX: usize = 1 << 16;

/// A note: its name without the prefix is these numbers, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    /// Of the boot.
    boot: u64,
    /// Of the file: copies of files have copies of their attributes.
    file: u64,
    /// The process's PID namespace; 0: unknown.
    namespace: u32,
    /// The process, in that namespace.
    pid: u32,
    /// When it began, in the kernel's ticks since the boot; 0: unknown.
    start: u64,
}

/// What a note says to this process.
#[derive(Debug, PartialEq, Eq)]
enum Says {
    /// This process has set it.
    Own,
    /// Its process may have the file open.
    Lives,
    /// Its process has ended, or it is of another file.
    Over,
}

impl Note {
    /// This process's, on this file.
    fn own(file: BorrowedFd<'_>) -> Result<Self> {
        let pid = process_id();
        Ok(Self {
            boot: u64::from_le_bytes(BootId::current()?.0[..8].try_into().unwrap_or_default()),
            file: Identity::of_fd(file)?.hash128() as u64,
            namespace: namespaces::of_process(pid),
            pid,
            start: own_start(pid),
        })
    }

    fn name(&self) -> String {
        let Self { boot, file, namespace, pid, start } = self;
        format!("{PREFIX}{boot:x}.{file:x}.{namespace:x}.{pid:x}.{start:x}")
    }

    /// `None`: not one of this version.
    fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix(PREFIX)?.split('.').map(|digits| u64::from_str_radix(digits, 16).ok());
        let mut next = || numbers.next().flatten();
        let note = Self {
            boot: next()?,
            file: next()?,
            namespace: next()?.try_into().ok()?,
            pid: next()?.try_into().ok()?,
            start: next()?,
        };
        numbers.next().is_none().then_some(note)
    }

    fn says(&self, own: &Self) -> Says {
        if (self.boot, self.file) != (own.boot, own.file) {
            return Says::Over;
        }
        // The number of a process of another namespace means nothing here.
        if self.namespace != own.namespace || own.namespace == 0 {
            return Says::Lives;
        }
        let is_other = |start| start != 0 && self.start != 0 && self.start != start;
        if self.pid == own.pid {
            return if is_other(own.start) { Says::Over } else { Says::Own };
        }
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Says::Over };
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return Says::Over;
        }
        // Other users' processes may be hidden in `/proc`: they live.
        match process_stat(&self.pid.to_string()) {
            Some(process) if has_ended(&process) || is_other(process.start) => Says::Over,
            _ => Says::Lives,
        }
    }
}

/// When this process, `me`, began; 0: unknown.
fn own_start(me: u32) -> u64 {
    /// The process for which it was asked, and the answer.
    static KNOWN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    if KNOWN[0].load(Ordering::Acquire) != u64::from(me) {
        KNOWN[1].store(process_stat("self").map_or(0, |process| process.start), Ordering::Relaxed);
        KNOWN[0].store(me.into(), Ordering::Release);
    }
    KNOWN[1].load(Ordering::Relaxed)
}

/// A first thread that has ended waits for the others.
fn has_ended(process: &ProcessStat) -> bool {
    b"ZX".contains(&process.state) && process.threads <= 1
}

/// Calls `visit` with each note on the file, and with what this process's would be. One system call if there is none.
fn each(file: BorrowedFd<'_>, mut visit: impl FnMut(&str, &Note, Says)) -> Result<()> {
    let mut few = [0; 256];
    let mut many = Vec::new();
    let list = match flistxattr(file, &mut few[..]) {
        Ok(length) => &few[..length],
        Err(Errno::RANGE) => {
            many.resize(LIST_MAX, 0);
            let length = flistxattr(file, &mut many[..])?;
            &many[..length]
        }
        Err(e) => return Err(e.into()),
    };
    let mut own = None;
    for name in list.split(|&byte| byte == 0).filter_map(|name| core::str::from_utf8(name).ok()) {
        let Some(note) = Note::parse(name) else { continue };
        let own = match &own {
            Some(own) => own,
            None => own.insert(Note::own(file)?),
        };
        visit(name, &note, note.says(own));
    }
    Ok(())
}

fn remove_by_name(file: BorrowedFd<'_>, name: &str) {
    // Without the right to, it stays, and the next process that looks at it removes it.
    let _ = as_owner(file, || fremovexattr(file, name));
}

/// Notes that this process writes the file through the kernel. Notes of processes that have ended go.
///
/// # Errors
/// It may not change the file's attributes, or there is no room for one.
pub(crate) fn set(file: BorrowedFd<'_>) -> Result<()> {
    let mut is_there = false; // an `exec` keeps it
    each(file, |name, _, says| match says {
        Says::Own => is_there = true,
        Says::Lives => {}
        Says::Over => remove_by_name(file, name),
    })?;
    if is_there {
        return Ok(());
    }
    let name = Note::own(file)?.name();
    Ok(as_owner(file, || fsetxattr(file, &*name, &[], XattrFlags::CREATE))?)
}

/// Removes this process's note, and those of processes that have ended.
pub(crate) fn remove(file: BorrowedFd<'_>) {
    let _ = each(file, |name, _, says| {
        if says != Says::Lives {
            remove_by_name(file, name);
        }
    });
}

/// Another process that writes the file through the kernel, as it may be told to a user. Notes of processes that have
/// ended go.
pub(crate) fn of_another(file: BorrowedFd<'_>) -> Option<u32> {
    find(file, &[Says::Over])
}

/// Whether this process keeps a note to its end: it may store to a demoted file through a map.
static IS_ONE_KEPT: AtomicBool = AtomicBool::new(false);

/// This process keeps its note on some file to its end.
pub(crate) fn keep() {
    IS_ONE_KEPT.store(true, Ordering::Release);
}

/// As [`of_another`], by a process that begins a session. A note of its own, unless it keeps one, is from before, when
/// it was another user, who could not remove it: it goes.
pub(crate) fn of_another_at_begin(file: BorrowedFd<'_>) -> Option<u32> {
    if IS_ONE_KEPT.load(Ordering::Acquire) { of_another(file) } else { find(file, &[Says::Over, Says::Own]) }
}

/// The process of a note that lives. Removes those that say one of these.
fn find(file: BorrowedFd<'_>, outdated: &[Says]) -> Option<u32> {
    let mut found = None;
    let _ = each(file, |name, note, says| {
        if says == Says::Lives {
            found = Some(note.pid);
        }
        if outdated.contains(&says) {
            remove_by_name(file, name);
        }
    });
    found
}

/// Whether any process has noted that.
#[cfg(test)]
fn is_there(file: BorrowedFd<'_>) -> bool {
    let mut found = false;
    let _ = each(file, |_, _, _| found = true);
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::Scratch;
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    fn note_of(pid: u32, own: &Note) -> Note {
        Note { pid, start: process_stat(&pid.to_string()).unwrap().start, ..*own }
    }

    fn put(file: &File, note: &Note) {
        fsetxattr(file, &*note.name(), &[], XattrFlags::CREATE).unwrap();
    }

    #[test]
    fn a_note_lasts_as_long_as_its_process() {
        let dir = Scratch::new();
        let file = File::create(dir.path("f")).unwrap();
        let own = Note::own(file.as_fd()).unwrap();
        assert!(own.start > 0 && own.namespace > 0);
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        put(&file, &note_of(child.id(), &own));
        assert_eq!(of_another(file.as_fd()), Some(child.id()));
        drop(child.stdin.take());
        // A zombie, which has no descriptors any more.
        while !has_ended(&process_stat(&child.id().to_string()).unwrap()) {
            std::thread::yield_now();
        }
        assert!(is_there(file.as_fd()));
        assert_eq!(of_another(file.as_fd()), None);
        assert!(!is_there(file.as_fd()));
        child.wait().unwrap();
    }

    #[test]
    fn a_process_ignores_its_own_and_removes_it() {
        let dir = Scratch::new();
        let file = File::create(dir.path("f")).unwrap();
        set(file.as_fd()).unwrap();
        set(file.as_fd()).unwrap();
        assert!(is_there(file.as_fd()));
        assert_eq!(of_another(file.as_fd()), None);
        remove(file.as_fd());
        assert!(!is_there(file.as_fd()));
    }

    #[test]
    fn notes_of_other_files_boots_and_processes_do_not_count() {
        let dir = Scratch::new();
        let file = File::create(dir.path("f")).unwrap();
        let own = Note::own(file.as_fd()).unwrap();
        let parent = note_of(std::os::unix::process::parent_id(), &own);
        let over = [
            Note { file: parent.file ^ 1, ..parent },
            Note { boot: parent.boot ^ 1, ..parent },
            Note { start: parent.start + 1, ..parent },
            Note { start: own.start + 1, ..own },
            Note { pid: u32::MAX, ..parent },
        ];
        over.iter().for_each(|note| put(&file, note));
        fsetxattr(&file, "user.famio.demoted.of-a-later-version", &[], XattrFlags::CREATE).unwrap();
        assert_eq!(of_another(file.as_fd()), None);
        let mut left = [0; 2048];
        let length = flistxattr(&file, &mut left[..]).unwrap();
        assert_eq!(&left[..length], b"user.famio.demoted.of-a-later-version\0");
        // Of another container: it cannot be told that they have ended.
        for other in [Note { namespace: own.namespace ^ 1, ..parent }, parent] {
            put(&file, &other);
            assert_eq!(of_another(file.as_fd()), Some(parent.pid));
            remove_by_name(file.as_fd(), &other.name());
        }
    }
}
