//! For a copy of a file whose processes were killed: what a recovery would keep (`on-kill = keep`).

use super::leftover::{Leftover, look};
use crate::error::{Error, Result};
use crate::file::state::hand_over_image::What;
use crate::index::OwnerLock;
use crate::recovery::Step;
use crate::settings::Settings;
use std::os::fd::BorrowedFd;

/// The steps that lead from the last commit to what a recovery would keep; none if it would keep nothing. No process
/// is attached to the file, and this one has the owner lock. Changes nothing.
///
/// # Errors
/// `EIO`: only a recovery can tell. Those of reading it.
pub(crate) fn steps_to_keep(file: BorrowedFd<'_>, owner_lock: &OwnerLock, settings: &Settings) -> Result<Vec<Step>> {
    let control = owner_lock.control();
    let found = look(file, owner_lock, settings).map_err(|e| {
        e.context("what a killed process had written since the last SYNC is to stay, and can't be read")
    })?;
    match found {
        Leftover::Whole(changes) if !control.has_lost_stores() => Ok(changes.into_iter().flat_map(steps_of).collect()),
        // Whose changes it has, and which of them stay, is known only with the processes' slots.
        _ if control.has_kept_image() => Err(Error::with(
            libc::EIO,
            "killed processes left writes that are to stay (on-kill=keep) in memory; run famio recover on it first",
        )),
        _ => Ok(Vec::new()),
    }
}

fn steps_of(change: What) -> Vec<Step> {
    match change {
        What::Size { low, size } => vec![Step::Size(low), Step::Size(size)],
        What::Bytes { offset, data } => vec![Step::Bytes { offset, data }],
    }
}
