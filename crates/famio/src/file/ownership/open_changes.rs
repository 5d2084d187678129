//! The end of a session whose open epoch another owner continues.

use crate::error::{Error, Result};
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::session::Session;
use crate::file::state::hand_over_image::{Change, HandOverImage, MOST, OpenChanges};
use crate::file::{Descriptors, UserBuf};
use crate::index::{BLOCK, Images, RELEASED};
use core::sync::atomic::Ordering;

impl Session {
    /// Ends the session. If nothing is uncommitted, it is closed clean, after a call of `nothing_open`. Otherwise
    /// returns the changes of the open epoch, and leaves the journal as a crash would.
    ///
    /// # Errors
    /// `EFBIG`: the epoch is too large for a hand-over image; the session goes on. So it does if something is
    /// uncommitted that is committed with a group ([`Refusal::needs_group`]).
    pub(super) fn end(&self, fds: &Descriptors, nothing_open: impl FnOnce()) -> Answer<Option<OpenChanges>> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let _closed = self.close_gate(fds)?;
        if shared.closed.load(Ordering::Acquire) != 0 {
            return Ok(None);
        }
        self.check(cx)?;
        let open_changes = if shared.dirty.load(Ordering::Acquire) == 0 {
            nothing_open();
            keeping_bits(fds, || self.engine.retire(cx))?;
            None
        } else if self.of_group.load(Ordering::Acquire) {
            return Err(Refusal::needs_group());
        } else {
            let open_changes = self.open_changes(fds)?;
            if !self.engine.finds_journal_now(cx) {
                // Recovery needs the journal to take the file back to the last commit.
                self.make_journal_anew(cx)?;
            }
            self.abandon();
            Some(open_changes)
        };
        shared.closed.store(1, Ordering::Release);
        Ok(open_changes)
    }

    /// The changes of the open epoch by their writers, if it has an image of each. With the gate closed.
    fn changes_by_writer(&self, fds: &Descriptors, open: u64, size: u64) -> Result<Option<Vec<Change>>> {
        if !self.saves_images() {
            return Ok(None);
        }
        let read = |offset: u64, block: &mut [u8]| {
            let there = size.saturating_sub(offset).min(block.len() as u64) as usize;
            // SAFETY: our memory.
            let read = unsafe { self.read(fds, offset, &[UserBuf::of(&mut block[..there])]) }?;
            if read == there { Ok(()) } else { Err(Error::new(libc::EIO)) }
        };
        let images = Images::of(&self.arena).all(open)?;
        HandOverImage::by_images(&images, size, &read, &|_| false).map(|epoch| Some(epoch.changes))
    }

    /// With the gate closed.
    fn open_changes(&self, fds: &Descriptors) -> Result<OpenChanges> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let (size, low) = (shared.size(), shared.epoch_low.load(Ordering::Acquire));
        let open = shared.committed() + 1;
        let blocks = self.open_blocks(cx)?;
        if blocks.len() as u64 * BLOCK as u64 > MOST {
            return Err(Error::new(libc::EFBIG));
        }
        let piece = |&block: &u64| Ok((block * BLOCK as u64, self.read_open(fds, block)?));
        let pieces = blocks.iter().map(piece).collect::<Result<Vec<_>>>()?;
        let lowest_since_acquired = shared.lowest_since_acquired.load(Ordering::Acquire);
        let is_released = shared.dirty.load(Ordering::Acquire) == RELEASED;
        let by_writer = self.changes_by_writer(fds, open, size)?;
        Ok(OpenChanges {
            low: lowest_since_acquired.min(size),
            size,
            pieces,
            epoch_low: low.min(size),
            is_released,
            by_writer,
        })
    }
}
