//! Private maps of a file that nobody changes, by a process that is not attached to it: the kernel's own, as compilers
//! and `git` make one of each file that they read.

use super::request::MapRequest;
use crate::error::Result;
use crate::file::atomic::{AtomicFile, PLAIN};
use crate::sys::syscall;
use core::sync::atomic::Ordering;

impl AtomicFile {
    /// Maps the file privately. `None`: others may be changing it, or the map is shared; this process has to attach.
    pub(super) fn map_unattached(&self, request: &MapRequest) -> Result<Option<usize>> {
        let membership = &self.ownership.membership;
        if request.is_shared() || membership.has_attached() || membership.is_attached() || !self.grows_never() {
            return Ok(None);
        }
        let Some(quiet) = self.quiet_alone() else { return Ok(None) };
        let start = request.carry_out(request.fd)?;
        if self.is_still(quiet) && self.state.load(Ordering::Acquire) == PLAIN {
            return Ok(Some(start));
        }
        // The map that is made after attaching takes the place of a fixed one.
        if request.flags & libc::MAP_FIXED == 0 {
            // SAFETY: mapped above, and no other code has seen it.
            unsafe { syscall(libc::SYS_munmap, [start, request.length, 0, 0, 0, 0]) };
        }
        Ok(None)
    }

    /// From now on the file does not begin to grow: what lies beyond its committed end could be taken out of the map
    /// again. Returns whether no thread has changed it so far.
    fn grows_never(&self) -> bool {
        let _inner = self.inner();
        let is_unchanged = self.state.load(Ordering::Acquire) == PLAIN;
        if is_unchanged {
            self.growing.is_over.store(true, Ordering::Relaxed);
        }
        is_unchanged
    }
}
