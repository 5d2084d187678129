//! Descriptors of atomic files that came from elsewhere: from the parent, from the program before `exec`, or through
//! a socket. At the first call on one, this process attaches to its file as one more member (`file::ownership`).

use super::attach;
use super::description::{Description, Handle, KEPT};
use super::{demote, description_mark, table};
use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::journal::demotion_note;
use crate::posix::call::lock::{Lock, not_reentered};
use crate::posix::call::look::stat_of;
use crate::posix::runtime::numbers::each_descriptor;
use crate::posix::runtime::say::say_error;
use crate::posix::runtime::state::{in_vfork_child, is_forked};
use crate::posix::selection::config::Config;
use crate::posix::selection::{ordinary, path_text};
use crate::posix::{Ret, raw};
use crate::sys::identity;
use core::ptr;
use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

/// Held while a thread makes a parent's description the child's own.
static ADOPTING: Lock = Lock::new();

/// In a forked child: another thread of the parent may have held the lock.
pub(in crate::posix) fn forget() {
    ADOPTING.reset();
}

/// In a forked child: makes all descriptors that lead to the parent's description `theirs` lead to a new one of this
/// process. If that fails, nothing changes, and calls are refused ([`Description::check_ours`]).
#[cold]
pub(in crate::posix) fn adopt(fd: RawFd, theirs: &'static Description) {
    if not_reentered().is_err() || in_vfork_child() {
        return;
    }
    let adopting = ADOPTING.lock();
    if theirs.is_ours() || theirs.is_demoted() || !table::leads_to(fd, theirs) {
        return; // another thread was first
    }
    if !has_its_file(fd, theirs) {
        table::forget(fd);
        return;
    }
    if theirs.file().is_demoted() || is_demoted_by_another(fd) || is_ordinary(fd) {
        theirs.forget_lock();
        match demote_here(fd, &path_text::path_of(fd, theirs.path())) {
            Ok(()) => drop(theirs.demote(fd)), // the parent's description is not split
            Err(error) => say_error(theirs.path(), &error),
        }
        return;
    }
    let adopted = adopt_as_own(fd, theirs);
    drop(adopting);
    match adopted {
        // A lease would be the parent's, too.
        Ok(own) => drop(own.file().bar_lease()),
        Err(error) => say_error(theirs.path(), &error),
    }
}

/// In a forked child that has just changed owner or mode of this file: if it is the parent's, makes it this process's
/// own.
#[cold]
pub(in crate::posix) fn adopt_changed(key: (u64, u64)) {
    if !is_forked() || not_reentered().is_err() || in_vfork_child() {
        return;
    }
    let mut foreign = None;
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_foreign() && handle.file().key() == key && has_its_file(fd, handle) {
            foreign = Some((fd, handle.file().clone()));
        }
    });
    if let Some((fd, theirs)) = foreign {
        // SAFETY: the descriptor is open, and stays so during the call.
        theirs.give_parents_files(unsafe { BorrowedFd::borrow_raw(fd) });
        table::adopt_all(|handle| handle.file().key() == key);
    }
}

/// Whether a process that lives has demoted the description of `fd`. The mark on it stays when that process ends, and
/// says nothing then: the parent may have begun a session.
fn is_demoted_by_another(fd: RawFd) -> bool {
    // SAFETY: the descriptor is open, and stays so during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    description_mark::demoted_flags(fd).is_some() && demotion_note::of_another(borrowed).is_some()
}

/// Whether this process has demoted the file behind `fd`, a descriptor that it has not looked at yet.
pub(in crate::posix) fn is_ordinary(fd: RawFd) -> bool {
    // SAFETY: an empty path is the descriptor itself.
    ordinary::any() && stat_of(fd).is_ok_and(|stat| unsafe { ordinary::is(fd, c"".as_ptr(), &stat, true) })
}

/// Makes the file behind `fd`, which is the kernel's there, ordinary in this process, under every name, also where it
/// is open already. Otherwise its bytes would be written past a log.
fn demote_here(fd: RawFd, path: &CStr) -> Result<()> {
    let stat = stat_of(fd).map_err(Error::new)?;
    if let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino)
        && !file.is_demoted()
    {
        return demote::demote_adopted(&file, path, fd, "a descriptor that another process has demoted");
    }
    // SAFETY: an empty path is the descriptor itself.
    ordinary::note_for_good(unsafe { ordinary::Identity::of(fd, c"".as_ptr(), &stat) });
    Ok(())
}

/// Whether `fd` still leads to that file: the program may have closed it unseen.
fn has_its_file(fd: RawFd, description: &Description) -> bool {
    // SAFETY: a number that is no descriptor is an error of the kernel's.
    identity(unsafe { BorrowedFd::borrow_raw(fd) }).ok() == Some(description.file().key())
}

fn adopt_as_own(fd: RawFd, theirs: &'static Description) -> Result<Handle> {
    let kernel_access = theirs.kernel_access();
    let mut all = Vec::new();
    table::for_each(0, u32::MAX, |fd, handle| {
        if ptr::eq(&**handle, theirs) {
            all.push(fd);
        }
    });
    // SAFETY: the descriptor is open, and stays so during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    crate::file::end_lease_of_others(borrowed);
    theirs.file().own_in_child(&all);
    let settings = theirs.file().settings();
    let open = || AtomicFile::open(borrowed, table::access(kernel_access), theirs.path(), settings);
    let file = open().or_else(|error| {
        if error.errno() != libc::EIO {
            return Err(error);
        }
        crate::recovery::await_journal(borrowed, settings); // of the parent, which may be about to end
        open()
    })?;
    let position = (!theirs.is_shared()).then(|| theirs.position(fd));
    let own = Handle::new(file, theirs.path().to_owned(), theirs.flags(), kernel_access, position);
    for other in all {
        if has_its_file(other, theirs) {
            own.file().add_duplicate(fd, other, table::access(kernel_access));
        }
        table::install(other, own.share());
    }
    Ok(own)
}

/// Before other processes may get this process's descriptors, by a fork or otherwise: positions become the kernel's,
/// and descriptions are marked.
pub(in crate::posix) fn share_all() {
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_live() {
            handle.pass_on(fd);
        } else {
            stay_demoted(fd, handle);
        }
    });
}

/// Other processes may have a descriptor of a demoted file: it stays demoted here even after its last descriptor is
/// closed.
fn stay_demoted(fd: RawFd, handle: &Description) {
    if handle.is_ours() && handle.file().is_demoted() {
        let _ = handle.demote(fd); // while no other process has the position
    }
    if handle.is_demoted() && has_its_file(fd, handle) {
        let _ = demote_here(fd, handle.path()); // the file is demoted already; this notes it
    }
}

/// Before a fork or an `exec`: if this process has changed its root or its user, its child cannot reach what the
/// members of a file share. Such files are demoted.
pub(in crate::posix) fn demote_out_of_reach(why: &str) {
    let why = format!("{why} a change of root or user: its control file could not be reached");
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_live() && handle.file().is_out_of_childs_reach() {
            let handed = demote::demote_adopted(&handle.file().clone(), handle.path(), fd, &why);
            handed.unwrap_or_else(|error| say_error(handle.path(), &error));
        }
    });
}

/// Before a descriptor is sent through a socket. A lease ends first: the receiver would have it, too.
pub fn pass_descriptor(fd: RawFd) {
    let Some(handle) = table::get(fd) else { return };
    if !handle.is_live() {
        stay_demoted(fd, &handle);
    } else if handle.file().bar_lease().is_ok() {
        handle.pass_on(fd);
    }
}

/// Makes a descriptor from elsewhere an atomic file's if it is marked. If that fails, the descriptor is closed: used
/// past the log, it would read and write wrong data.
///
/// # Errors
/// Those of opening an atomic file.
pub(in crate::posix) fn receive(config: &Config, fd: RawFd) -> Result<()> {
    if let Some(flags) = description_mark::demoted_flags(fd) {
        return receive_demoted(config, fd, flags);
    }
    let Some(flags) = description_mark::get(fd) else { return Ok(()) };
    if is_ordinary(fd) {
        return receive_demoted(config, fd, flags);
    }
    let stat = stat_of(fd).map_err(Error::new)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(());
    }
    // SAFETY: no memory is passed.
    let kernel = unsafe { raw!(SYS_fcntl, fd, libc::F_GETFL) } as i32;
    let kernel_access = kernel & libc::O_ACCMODE;
    let asked = if flags & libc::O_WRONLY != 0 { libc::O_WRONLY } else { kernel_access };
    let flags = asked | (flags | kernel) & KEPT;
    let handle = attach::attach(config, fd, c"?", flags, kernel_access, None).inspect_err(|error| {
        say_error(&path_text::path_of(fd, c"?"), error);
        // SAFETY: the program has not seen the descriptor.
        unsafe { raw!(SYS_close, fd) };
    })?;
    let _ = handle.file().bar_lease(); // the other processes would have the lease, too
    if demote::unless_standard(fd as Ret) < 0 {
        return Err(Error::new(libc::EBUSY));
    }
    Ok(())
}

/// Receives a descriptor of a file that its sender has demoted: the file becomes ordinary here, too, under every
/// name. Otherwise its bytes would be written past a log.
fn receive_demoted(config: &Config, fd: RawFd, flags: i32) -> Result<()> {
    let stat = stat_of(fd).map_err(Error::new)?;
    // SAFETY: no memory is passed.
    let kernel = unsafe { raw!(SYS_fcntl, fd, libc::F_GETFL) } as i32;
    let (kernel_access, writes_only) = (kernel & libc::O_ACCMODE, flags & libc::O_WRONLY != 0);
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || writes_only && kernel_access == libc::O_RDONLY {
        return Ok(()); // the mark is not Famio's
    }
    let asked = if writes_only { libc::O_WRONLY } else { kernel_access };
    install_demoted(config, fd, path_text::path_of(fd, c"?"), asked | (flags | kernel) & KEPT, kernel_access).map(drop)
}

/// Makes `fd` a descriptor of a file that is ordinary in this process.
pub(in crate::posix) fn install_demoted(
    config: &Config,
    fd: RawFd,
    path: CString,
    flags: i32,
    kernel_access: i32,
) -> Result<Arc<AtomicFile>> {
    demote_here(fd, &path)?;
    // SAFETY: the descriptor is open, and stays so during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let settings = config.settings_of(&path);
    let file = AtomicFile::open_demoted(borrowed, table::access(kernel_access), &path, &settings)?;
    let handle = Handle::new(file.clone(), path, flags, kernel_access, None);
    handle.note_demoted();
    table::install(fd, handle);
    Ok(file)
}

/// After `exec`, at the start: receives the descriptors that the previous program left open.
pub(in crate::posix) fn receive_all(config: &Config) {
    let mut all = Vec::new();
    each_descriptor(|fd| all.push(fd));
    for fd in all {
        table::fresh(fd as isize);
        let _ = receive(config, fd); // reported, and closed
    }
}
