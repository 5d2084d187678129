//! Makes the changes of a transaction part of a file's open epoch, as a whole. [`crate::transaction`] has what a
//! transaction is for programs; this module has what needs the file's session.
//!
//! A transaction changes nothing before its commit. The commit enters as the only writer ([`apply`]): it checks that
//! what the transaction has relied on still holds ([`seen`]), makes room for everything, copies, and SYNCs the epoch
//! as any other.

mod apply;
mod by_record;
mod group;
mod group_room;
mod joint;
mod pair;
mod pieces;
mod rollback;
mod seen;
mod whole;
mod write_set;

pub(crate) use crate::file::state::commits::Commits;
pub(in crate::file) use crate::file::state::joint_records::Joint;
pub(crate) use joint::{Share, check_joint, commit_joint};
pub(crate) use seen::Seen;
pub(crate) use write_set::{AT_END, WriteSet};

use super::AtomicFile;
use super::session::Session;
use crate::error::{Error, Result};
use crate::file::base::waiting::waiting_for_room;
use crate::file::state::commits::UnderWay;
use core::sync::atomic::Ordering;
use std::sync::Arc;

impl AtomicFile {
    /// Commits a transaction: all of `set`, if what `seen` records still holds. `durable`: with a SYNC, which
    /// includes everything written to the file before; otherwise the transaction is part of the open epoch, as a
    /// whole.
    ///
    /// # Errors
    /// `EAGAIN`: something in `seen` has changed. `ENOSPC`, `EDQUOT`, `EFBIG`, `ENOMEM`: no room. Nothing was changed
    /// then. `EIO`: it cannot be copied or made durable; the file takes no more writes, and after the next open has
    /// all of it or nothing. Or the SYNC of its group failed: then it is part of the open epoch. Or the thread that
    /// commits it together with its own has not done so for a minute: it may still. `EOPNOTSUPP`: the file is the
    /// kernel's.
    pub(crate) fn commit_transaction(&self, set: &WriteSet, seen: Option<&Seen>, durable: bool) -> Result<()> {
        Self::may_lock()?;
        let (_under_way, is_durable) = waiting_for_room(|| self.apply_transaction(set, seen, durable))?;
        if is_durable {
            self.after_commit();
            return Ok(());
        }
        self.sync().map_err(|e| match self.settings.group {
            Some(_) if !set.is_empty() && e.errno() != libc::EIO => {
                let what = "the transaction is part of the open epoch, which could not be committed with those of its group: SYNC again";
                self.named(Error::with(libc::EIO, format!("{what} ({e})")))
            }
            _ => e,
        })
    }

    /// Makes the transaction part of the open epoch. Returns the commit, which counts as in progress until that is
    /// dropped, and whether the transaction already is as durable as requested. While it waits for room it does not
    /// count as in progress, so that a rollback need not wait.
    fn apply_transaction(&self, set: &WriteSet, seen: Option<&Seen>, durable: bool) -> Result<(UnderWay<'_>, bool)> {
        let under_way = self.commits.begin()?;
        self.reserve_set_in_record(set)?;
        let mut is_durable = !durable;
        if !set.is_empty() || seen.is_some_and(|seen| !seen.is_empty()) {
            // A SYNC's other work is only done if there is any.
            let apply = || {
                let work = |session: &Session| {
                    if self.ownership.membership.is_read_along() {
                        session.may_be_exclusive.store(false, Ordering::Relaxed); // as at a SYNC
                    }
                    let committed = || self.ownership.committed(session.arena.shared());
                    // Looked at again at each try: the file may have been mapped meanwhile.
                    let at_once = durable && self.shadow().is_none() && self.settings.group.is_none();
                    let is_simple = at_once && !self.ownership.has_foreign();
                    let committed: Option<&dyn Fn()> = if is_simple { Some(&committed) } else { None };
                    let applied = session.apply(&self.fds, set, seen, committed);
                    is_durable |= *applied.as_ref().unwrap_or(&false);
                    applied.map(drop)
                };
                self.writing(work, || Err(self.without_transactions()))
            };
            self.changing_ranges(apply, || set.ranges())?;
        }
        Ok((under_way, is_durable))
    }

    /// What follows a SYNC. A request of another process for the session was handled already.
    #[inline]
    fn after_commit(&self) {
        if let Some(session) = self.session() {
            if self.lease.is_due(&session) {
                self.lease.ask(&session);
            }
            if session.take_was_lost() {
                drop(session);
                self.try_replace_nameless_control_file();
            }
        }
    }

    /// For tests of lower layers: a transaction that writes these pieces, in order.
    #[doc(hidden)]
    pub fn commit_pieces(&self, pieces: &[(u64, &[u8])], durable: bool) -> Result<()> {
        let mut set = WriteSet::default();
        pieces.iter().try_for_each(|&(offset, bytes)| set.write_slice(offset, bytes))?;
        self.commit_transaction(&set, None, durable)
    }

    /// As `commit_pieces`, together with a transaction that writes `to_other` to another file.
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

    /// Whether the program has a writable descriptor of the file.
    pub(crate) fn is_open_for_writing(&self) -> bool {
        self.fds.has_writable()
    }

    /// Whether this is a forked child, and the file its parent's.
    pub(crate) fn is_parents(&self) -> bool {
        self.is_disowned()
    }
}
