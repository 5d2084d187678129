//! An `exec` that failed: the process goes on with its maps, and has given up the memory that they are of.

use super::switch_maps::put_at;
use super::{is_mapped, ranges, watch};
use crate::error::{Error, Result};
use crate::file::atomic::AtomicFile;
use core::sync::atomic::Ordering;
use std::os::fd::AsRawFd;

impl AtomicFile {
    /// The maps become maps of a shadow again, with the bytes of the file. A store of another thread at this very moment
    /// may be lost.
    pub(in crate::file) fn map_again(&self) {
        if self.is_demoted() || self.is_disowned() || !is_mapped(self.key()) {
            return;
        }
        // Other processes may have kept it.
        if matches!(self.look().and_then(|()| self.join_shadow()), Ok(Some(_))) {
            return;
        }
        ranges::lock().of(self.key()).for_each(|range| {
            watch::end(range);
            range.shadow = false;
        });
        if !self.fds.has_writable() {
            return self.map_kernels_file();
        }
        match self.session_for_write() {
            Ok(Some(_)) => {
                let mut ranges = ranges::lock();
                ranges.of(self.key()).filter(|range| range.stores && range.shadow && !range.cow).for_each(watch::begin);
            }
            Ok(None) => self.map_kernels_file(), // it was demoted
            Err(_) => self.maps_are_lost.store(true, Ordering::Release),
        }
    }

    /// After an error they show what they had.
    fn map_kernels_file(&self) {
        let put = |fd: i32| ranges::lock().of(self.key()).try_for_each(|range| put_at(range, fd));
        let _ = self.fds.with(false, |fd| put(fd.as_raw_fd()));
    }

    /// # Errors
    /// `EIO`: [`map_again`](Self::map_again) failed, and maps for stores are of no file.
    pub(super) fn check_maps(&self) -> Result<()> {
        if !self.maps_are_lost.load(Ordering::Relaxed) || self.is_demoted() {
            return Ok(());
        }
        if !ranges::has(self.key(), |range| range.stores && !range.shadow) {
            self.maps_are_lost.store(false, Ordering::Release); // they are gone
            return Ok(());
        }
        let what =
            "what was stored through its maps since an exec failed is lost, for want of room for a journal: unmap it";
        Err(self.named(Error::with(libc::EIO, what)))
    }
}
