//! Changing the size of an attached file: part of the epoch, no system call.

use super::Descriptors;
use super::session::Session;
use super::write::SIZE_MAX;
use crate::error::{Error, Result};
use core::sync::atomic::Ordering;

impl Session {
    /// Sets the logical size. Growing shows zeros. `EFBIG` beyond what a file can have; `ESTALE`: attach anew.
    pub fn set_size(&self, fds: &Descriptors, size: u64) -> Result<()> {
        self.change_size(fds, |_| size)
    }

    /// As [`set_size`](Self::set_size), unless the file is longer already.
    pub fn grow(&self, fds: &Descriptors, size: u64) -> Result<()> {
        self.change_size(fds, |old| old.max(size))
    }

    fn change_size(&self, fds: &Descriptors, to: impl FnOnce(u64) -> u64) -> Result<()> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let _closed = self.close_gate(fds)?;
        self.check_change(cx)?;
        let old = shared.size();
        let size = to(old);
        if size > SIZE_MAX {
            return Err(Error::new(libc::EFBIG));
        }
        self.touch(cx);
        if size == old {
            return Ok(());
        }
        self.engine.room_for_size(cx)?;
        shared.dirty.store(1, Ordering::Release);
        if size < old {
            self.engine.cut(cx, size)?;
        } else {
            self.zero_gap(cx, old, size)?;
        }
        shared.epoch_low.fetch_min(size, Ordering::Release);
        shared.turn_low.fetch_min(size, Ordering::Release);
        shared.size.store(size, Ordering::Release);
        Ok(())
    }
}
