//! All atomic files of the process: at its end, before an exec, and in a forked child.

use crate::error::Result;
use crate::file::atomic::DISOWNED;
use crate::file::base::calls;
use crate::file::groups;
use crate::file::lifetime::demotion_note::note_in_child;
use crate::file::registry::{files, inherited};
use crate::file::state::deferred::StandIn;
use crate::file::state::joint_records;
use crate::thread::Held;
use core::sync::atomic::Ordering;
use std::os::fd::RawFd;

/// Closes every file of the process clean: commits, makes a checkpoint, removes the journal. For a clean exit and
/// before `exec`; a later write attaches again. Returns the first error; the other files are closed nevertheless.
pub fn close_all() -> Result<()> {
    let all: Vec<_> = files().values().cloned().collect();
    let mut result = Ok(());
    for file in all {
        let closed = file.part();
        if result.is_ok() {
            result = closed;
        }
    }
    result
}

/// After [`close_all`], also releases every owner lock, so that nothing of ours is left in `/dev/shm`. For the end of
/// the process, and before `exec`.
pub fn release_all() {
    let all: Vec<_> = files().values().cloned().collect();
    for file in all {
        let _ = file.leave_membership(); // it stays one of its group: the `exec` may fail
        file.ownership.membership.set_writes(file.fds.has_writable());
    }
}

/// After an `exec` that failed, before which [`release_all`] was called.
pub(crate) fn map_all_again() {
    let all: Vec<_> = files().values().cloned().collect();
    all.iter().for_each(|file| file.map_again());
}

impl crate::file::AtomicFile {
    /// A descriptor of the library, which may stand in for one of the program, has a new number.
    pub(crate) fn renumber(old: RawFd, new: RawFd) {
        let all: Vec<_> = files().values().cloned().collect();
        for file in all {
            file.fds.renumber(old, new);
            file.lease.renumber(old, new);
            file.deferred.renumber(old, new);
        }
    }
}

/// In a forked child: every file that the parent had open returns `EBUSY` from now on, and nothing of the parent's is
/// touched. The child opens files itself, as any other process.
pub fn disown_all() {
    let _held = Held::of_process(); // uninterrupted, for signal handlers
    crate::sys::internal::begin_child();
    crate::sys::address_space::begin_child();
    groups::begin_child();
    joint_records::begin_child();
    for file in inherited() {
        if !file.is_demoted() {
            file.state.store(DISOWNED, Ordering::Release);
        }
        file.fds.forget();
        note_in_child(file.clone());
        file.ownership.membership.forget();
        file.ownership.forget_joined();
        file.forget_kept_locks();
        // Its copy stays until the child ends: a close would drop locks that the child takes.
        if let Some(mut keeper) = file.keeper.try_lock() {
            core::mem::forget(keeper.take());
        }
        if let Some(mut stand_in) = file.deferred.stand_in.try_lock() {
            core::mem::forget(stand_in.take().map(StandIn::into_fd));
        }
        // Closing our copies does not affect the parent's lock; keeping them would let it outlive the parent.
        if let Some(mut inner) = file.inner.try_lock() {
            inner.owner_lock = None;
            let old = inner.old.iter().map(|old| &old.session.arena);
            let left = inner.left.iter().map(|left| &left.arena);
            old.chain(left).chain(&inner.arena).for_each(|arena| arena.forget_file());
        }
    }
    crate::journal::pools::shares::forget_parents();
    crate::index::LIVES.forget();
    // If the child has the same process id, in a PID namespace of its own, the parent's threads would seem to be
    // there.
    crate::file::base::background_wakeup::forget_parents();
    crate::file::base::lease_wakeup::forget_parents();
    crate::file::locks::begin_child();
    crate::map::ahead::workers::forget_parents();
    crate::thread::forget_parents();
    crate::thread::main_thread::begin_child();
    calls::forget_all();
    crate::file::shadow::disown();
    crate::sys::internal::forget_parents();
}
