//! The changes of a transaction become part of a file's open epoch, as a whole. What a transaction is to its program is in
//! [`crate::transaction`]; here is what needs the file's session.
//!
//! A transaction changes nothing before its commit. Its commit goes in as the only writer ([`apply`]): it looks whether what the
//! transaction has relied on still holds ([`seen`]), makes room for all of it, and copies. Then it is SYNCed as any epoch is. So a crash
//! shows all of it or nothing, for the reason for which it shows all of an epoch or nothing.

mod apply;
mod joint;
mod rollback;
mod seen;
mod whole;
mod write_set;

pub(crate) use crate::file::parts::commits::Commits;
pub(in crate::file) use crate::file::parts::joint_records::Joint;
pub(crate) use joint::{Share, commit_joint};
pub(crate) use seen::Seen;
pub(crate) use write_set::{AT_END, WriteSet};

use super::AtomicFile;
use super::session::Session;
use crate::error::{Error, Result};
use core::sync::atomic::Ordering;
use std::sync::Arc;

impl AtomicFile {
    /// Commits a transaction: all of `set`, if what `seen` says still holds. `durable`: with a SYNC, which is one of all that was
    /// written to the file before; else it is part of the open epoch, as a whole.
    ///
    /// # Errors
    /// `EAGAIN`: something that was seen has changed. `ENOSPC`, `EDQUOT`, `EFBIG`, `ENOMEM`: no room. Nothing was changed then. `EIO`: it
    /// can't be copied or made durable; the file takes no more writes, and when it is opened again has all of it or nothing.
    /// `EOPNOTSUPP`: the file is the kernel's.
    pub(crate) fn commit_transaction(&self, set: &WriteSet, seen: Option<&Seen>, durable: bool) -> Result<()> {
        Self::may_lock()?;
        let _under_way = self.commits.begin()?;
        let mut is_durable = !durable;
        if !set.is_empty() || seen.is_some_and(|seen| !seen.is_empty()) {
            // What a SYNC does beside its commit it does where there is something of the kind.
            let at_once = durable && self.shadow().is_none() && !self.turns.has_foreign();
            let apply = || {
                let work = |session: &Session| {
                    if self.turns.door.is_read_along() {
                        session.may_be_alone.store(false, Ordering::Relaxed); // as at a SYNC
                    }
                    let committed = || self.turns.committed(session.arena.shared());
                    let committed: Option<&dyn Fn()> = if at_once { Some(&committed) } else { None };
                    let applied = session.apply(&self.fds, set, seen, committed);
                    is_durable |= *applied.as_ref().unwrap_or(&false);
                    applied.map(drop)
                };
                self.writing(work, || Err(self.without_transactions()))
            };
            self.changing_ranges(apply, || set.ranges())?;
        }
        if is_durable {
            self.after_commit();
            return Ok(());
        }
        self.sync()
    }

    /// What comes after a SYNC. Whether another process asks for the session was seen to already.
    #[inline]
    fn after_commit(&self) {
        if let Some(session) = self.session() {
            if self.lease.is_due(&session) {
                self.lease.ask(&session);
            }
            if session.was_lost.load(Ordering::Relaxed) && session.was_lost.swap(false, Ordering::Relaxed) {
                drop(session);
                self.come_back();
            }
        }
    }

    /// For tests of the layer below: a transaction that writes these pieces, in order.
    #[doc(hidden)]
    pub fn commit_pieces(&self, pieces: &[(u64, &[u8])], durable: bool) -> Result<()> {
        let mut set = WriteSet::default();
        pieces.iter().try_for_each(|&(offset, bytes)| set.write_slice(offset, bytes))?;
        self.commit_transaction(&set, None, durable)
    }

    /// The same, together with one that writes `to_other` to another file.
    #[doc(hidden)]
    pub fn commit_pieces_with(
        self: &Arc<Self>,
        pieces: &[(u64, &[u8])],
        size: Option<u64>,
        other: &Arc<Self>,
        to_other: &[u8],
    ) -> Result<()> {
        let [mut set, mut others] = [WriteSet::default(), WriteSet::default()];
        size.map_or(Ok(()), |size| set.set_size(size))?;
        pieces.iter().try_for_each(|&(offset, bytes)| set.write_slice(offset, bytes))?;
        others.write_slice(0, to_other)?;
        let share = |file, set| Share { file, set, seen: None };
        commit_joint(vec![share(self, &set), share(other, &others)])
    }

    pub(in crate::file) fn without_transactions(&self) -> Error {
        let path = self.path().to_string_lossy();
        let what = format!("{path}: it was demoted to an ordinary file, and has no transactions");
        Error::with(libc::EOPNOTSUPP, what)
    }

    /// Whether a descriptor of the program's leads to it that may be written to.
    pub(crate) fn is_open_for_writing(&self) -> bool {
        self.fds.has_writable()
    }

    /// Whether this is a forked child, and the file its parent's.
    pub(crate) fn is_parents(&self) -> bool {
        self.is_disowned()
    }
}
