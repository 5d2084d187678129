//! Reading a file that was made immutable (`chattr +i`) while it had a journal. The committed bytes cannot be written
//! to it, so it is shown with what a recovery would do. The view holds while neither the file's inode nor the control
//! page's state changes.

use crate::error::Result;
use crate::file::Descriptors;
use crate::file::state::hand_over_image::{HandOverImage, MOST, What};
use crate::file::state::ownership::{Ownership, Seen, View};
use crate::index::{HAS_IMAGE, OwnerLock};
use crate::recovery::{self, Step};
use crate::settings::Settings;
use std::sync::Arc;

impl Ownership {
    fn seen(&self, fds: &Descriptors) -> Result<Seen> {
        let state = self.membership.state();
        let stat = fds.stat()?;
        Ok(Seen { state, changed: (stat.st_ctime, stat.st_ctime_nsec) })
    }

    /// After a failed recovery, with the owner lock: if the file is immutable, keeps what the recovery would have
    /// done for readers.
    ///
    /// # Errors
    /// Those of reading the journal.
    pub(super) fn make_view(&self, fds: &Descriptors, owner_lock: &OwnerLock, settings: &Settings) -> Result<()> {
        if !fds.with(false, |fd| Ok(recovery::is_immutable(fd)))? {
            return Ok(());
        }
        let seen = self.seen(fds)?;
        let (steps, mut size) = fds.with(false, |fd| {
            Ok((recovery::steps(fd, owner_lock, settings, MOST)?, rustix::fs::fstat(fd)?.st_size as u64))
        })?;
        let changes = steps.into_iter().map(|step| match step {
            Step::Bytes { offset, data } => {
                size = size.max(offset + data.len() as u64);
                What::Bytes { offset, data }
            }
            Step::Size(to) => {
                let low = to.min(size);
                size = to;
                What::Size { low, size }
            }
        });
        let epoch = Arc::new(HandOverImage::kept(changes));
        *self.view.lock() = Some(View { seen, epoch });
        Ok(())
    }

    /// What a recovery would do if it could, together with what is uncommitted.
    pub(super) fn view(&self, fds: &Descriptors) -> Result<Option<(Seen, Arc<HandOverImage>)>> {
        let mut view = self.view.lock();
        let Some(View { seen, epoch }) = &*view else { return Ok(None) };
        if self.seen(fds)? != *seen {
            *view = None;
            return Ok(None);
        }
        let (seen, committed) = (*seen, epoch.clone());
        drop(view);
        if seen.state & HAS_IMAGE == 0 {
            return Ok(Some((seen, committed)));
        }
        let mut open = self.hand_over_image(fds)?;
        open.roll_back(|writer| self.membership.writer_state(writer));
        let mut all = HandOverImage::clone(&committed);
        all.changes.append(&mut open.changes);
        Ok(Some((seen, Arc::new(all))))
    }

    pub(in crate::file) fn has_view(&self, fds: &Descriptors) -> bool {
        matches!(self.view(fds), Ok(Some(_)))
    }

    /// Whether nothing has changed since [`view`](Self::view).
    pub(super) fn is_still_seen(&self, fds: &Descriptors, seen: Seen) -> bool {
        self.seen(fds).is_ok_and(|now| now == seen)
    }
}
