//! The atomic file as its process knows it.

use super::Descriptors;
use super::session::{OldSession, Session};
use super::shadow::Slot;
use super::transaction::{Commits, Joint};
use crate::error::Error;
use crate::file::state::arrivals::Arrivals;
use crate::file::state::deferred::Deferred;
use crate::file::state::growing_state::Growing;
use crate::file::state::hand_over_image::OpenChanges;
use crate::file::state::kernels_size::KernelsSize;
use crate::file::state::lease_state::Lease;
use crate::file::state::lock_state::Locks;
use crate::file::state::ownership::Ownership;
use crate::file::state::plain::PlainReads;
use crate::index::{Arena, OwnerLock};
use crate::journal::JournalId;
use crate::settings::Settings;
use crate::sys::InternalFd;
use crate::thread::{Guard, Mutex};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// Nothing was written yet: there is no journal and no index; reads go to the kernel.
pub(super) const PLAIN: u8 = 0;
/// There is a session.
pub(super) const ATTACHED: u8 = 1;
/// Demoted: every call goes to the kernel.
pub(super) const DEMOTED: u8 = 2;
/// The process forked, and this is the child: the file is the parent's.
pub(super) const DISOWNED: u8 = 3;

/// There is no session, and none is needed: the file only grows, or few of its bytes are overwritten (`growing`).
pub(super) const GROWING: u8 = 4;

/// What a forked child is told.
pub(super) fn disowned() -> Error {
    Error::with(
        libc::EBUSY,
        "an atomic file belongs to the process that opened it; a forked child has to open it itself",
    )
}

/// One file of this process. Everything written to it between two SYNCs is durable as a whole or, after a crash, gone
/// as a whole. The domain decides what a SYNC survives (`docs/guarantees.md`).
///
/// All calls take `&self` and may be made from any thread.
// What every call looks at comes first, in one cache line: a program that writes much leaves nothing else in the
// cache.
#[repr(C)]
pub struct AtomicFile {
    pub(super) session: AtomicPtr<Session>,
    pub(super) state: AtomicU8,
    pub(super) shadowed: AtomicBool,
    /// Other processes may want to own the session: looked at after each change.
    pub(super) is_wanted: AtomicBool,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) fds: Descriptors,
    pub(super) inner: Mutex<Inner>,
    pub(super) path: CString,
    pub(super) settings: Settings,
    pub(super) plain: PlainReads,
    pub(super) growing: Growing,
    /// The size of the kernel's file when it was opened.
    pub(super) found_size: u64,
    pub(super) kernels_size: KernelsSize,
    pub(super) lease: Lease,
    pub(super) locks: Locks,
    /// Made when the program, or another process, maps the file; it stays.
    pub(super) shadow: Slot,
    /// A descriptor of ours, while there are maps and the program has closed all its own.
    pub(super) keeper: Mutex<Option<InternalFd>>,
    pub(super) deferred: Deferred,
    pub(super) ownership: Ownership,
    pub(super) commits: Commits,
    pub(super) arrivals: Arrivals,
    /// The records of its transactions with other files.
    pub(super) joint: Joint,
    /// The most bytes that this file can need in the record of its group's SYNC (`transaction/group_room.rs`).
    pub(super) in_record: AtomicU64,
    /// The journal of the last session, if it has ended, and it or its mark could not be removed
    /// (`lifetime/left_journal.rs`).
    pub(super) left_journal: Mutex<Option<JournalId>>,
    /// Why it was left to the kernel when it was only read, for a notice when it is opened for writing. 0: no notice
    /// is due.
    pub(super) pending_notice: AtomicI32,
    /// The process that has noted on the file that it writes it through the kernel (`lifetime/demotion_note.rs`): this
    /// one, or the one that forked it. 0: none.
    pub(super) noted_by: AtomicU32,
    /// The note stays to the end of the process: it has mapped the demoted file.
    pub(super) keeps_note: AtomicBool,
    /// After an `exec` that failed, its maps could not be made maps of the file again.
    pub(super) maps_are_lost: AtomicBool,
}

pub(super) struct Inner {
    /// What `AtomicFile::session` points to.
    pub session: Option<Box<Session>>,
    /// Sessions that have ended, but that calls may still use.
    pub old: Vec<OldSession>,
    /// The arena of this ownership, from its first session on.
    pub arena: Option<Arc<Arena>>,
    /// While this process owns the file.
    pub owner_lock: Option<OwnerLock>,
    /// A session that this process owned earlier, now unowned or another process's. Reused if this process owns it
    /// again.
    pub left: Option<Box<Session>>,
    /// The open epoch, if it could not be handed over and has not been taken up again. The process stays the owner
    /// meanwhile.
    pub unsent: Option<OpenChanges>,
}

impl AtomicFile {
    /// The error with the file's path in front, if it is not there yet.
    #[cold]
    pub(crate) fn named(&self, error: Error) -> Error {
        let path = self.path.to_string_lossy();
        if error.detail().is_some_and(|said| said.starts_with(&*path)) { error } else { error.context(path) }
    }

    pub(super) fn inner(&self) -> Guard<'_, Inner> {
        crate::thread::faults::let_through(crate::thread::current());
        self.inner.lock()
    }

    /// The path by which it was first opened, for messages.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// The settings with which it was opened.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Device and inode.
    pub fn key(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

impl core::fmt::Debug for AtomicFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AtomicFile").field("path", &self.path).finish_non_exhaustive()
    }
}
