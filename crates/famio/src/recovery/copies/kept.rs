//! For a copy of a file whose processes were killed: the writes since the last SYNC that a recovery would make durable
//! (`on-kill = keep`).

use super::copying::kernels;
use crate::error::Result;
use crate::index::{Control, OwnerLock};
use crate::recovery::copies::view::Step;
use crate::settings::Settings;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Lists the steps from the last commit to what a recovery would keep. The caller has the owner lock.
pub(crate) type Kept = dyn Fn(BorrowedFd<'_>, &OwnerLock, &Settings) -> Result<Vec<Step>>;

/// A file that killed processes have left with such writes.
pub(super) struct Left {
    control: Arc<Control>,
    changes: u64,
}

impl Left {
    /// `None`: there is nothing to keep, or a living process has the file, and its last SYNC counts.
    pub fn find(control: Option<Control>) -> Option<Self> {
        let control = control?;
        let changes = control.changes();
        let is_left = control.may_keep() && !control.is_owned() && !control.has_members();
        is_left.then(|| Self { control: Arc::new(control), changes })
    }

    /// Adds these writes to `to`, a copy of the last commit. Returns whether there were any that a recovery would keep.
    /// `None`: meanwhile a process has begun to use the file.
    pub fn add(
        &self,
        file: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        settings: &Settings,
        kept: &Kept,
    ) -> Result<Option<bool>> {
        let owner_lock = match OwnerLock::take(self.control.clone(), false) {
            Err(e) if e.errno() == libc::EBUSY => return Ok(None),
            owner_lock => owner_lock?,
        };
        let is_as_found = self.control.has_name() && self.control.changes() == self.changes && self.control.may_keep();
        let steps = if is_as_found { kept(file, &owner_lock, settings).map(Some) } else { Ok(None) };
        owner_lock.leave();
        let Some(steps) = steps? else { return Ok(None) };
        steps.iter().try_for_each(|step| match step {
            Step::Size(size) => kernels().ftruncate(to, *size),
            Step::Bytes { offset, data } => kernels().pwritev(to, &[data], *offset),
        })?;
        Ok(Some(!steps.is_empty()))
    }
}
