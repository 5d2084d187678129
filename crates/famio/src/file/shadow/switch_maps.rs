//! Maps of the kernel's file become maps of its shadow, and the other way round.

use super::mapped_range::MappedRange;
use super::ranges;
use super::request::map_at;
use crate::error::Result;
use crate::file::UserBuf;
use crate::file::atomic::AtomicFile;
use crate::file::state::shadow_memory::Shadow;
use crate::file::state::shadow_pages::{PIECE, next_data};
use crate::sys::InternalFd;
use core::sync::atomic::Ordering;
use std::os::fd::{AsRawFd, RawFd};

/// Turns maps of the file itself into maps of its shadow, which has the same bytes.
pub(super) fn replace(key: (u64, u64), descriptor: impl Fn(bool) -> Result<InternalFd>) -> Result<()> {
    let mut ranges = ranges::lock();
    for range in ranges.of(key).filter(|range| !range.shadow) {
        let memory = descriptor(range.may_store)?;
        put_at(range, memory.as_raw_fd())?;
        range.ahead.forget();
        range.shadow = true;
    }
    Ok(())
}

pub(super) fn put_at(range: &MappedRange, fd: RawFd) -> Result<()> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    map_at(range.start, range.end - range.start, range.prot, flags, fd, range.offset as i64).map(|_| ())
}

impl AtomicFile {
    /// The file lost its name, and is the kernel's from now on, with its maps and what was stored in them. A store of
    /// another thread at this very moment may be lost; the next crash loses all of the file anyway.
    pub(in crate::file) fn maps_to_kernel(&self) -> Result<()> {
        let Some(shadow) = self.shadow() else { return Ok(()) };
        if let Some(cow) = shadow.cow_maps() {
            return self.private_to_kernel(shadow, cow);
        }
        let mut ranges = ranges::lock();
        // They are of maps that are stored to, all of which is copied.
        shadow.notes().map(|notes| notes.take(shadow.size()));
        let (stored, serial) = ranges.stored(self.key());
        for range in stored {
            copy_back(shadow, self, range.start, range.end.min(shadow.size()))?;
        }
        ranges.were_taken(self.key(), serial, Vec::new());
        for range in ranges.of(self.key()).filter(|range| range.shadow) {
            if core::mem::take(&mut range.copies) {
                (range.stores, range.prot) = (true, range.prot | libc::PROT_WRITE);
            }
            self.fds.with(range.may_store, |fd| put_at(range, fd.as_raw_fd()))?;
            range.ahead.forget();
            range.shadow = false;
        }
        Ok(())
    }

    /// Called after the state says that the file is the kernel's: copies into maps that began earlier may have gone
    /// to the shadow.
    pub(in crate::file) fn late_copies_to_kernel(&self) {
        let Some((shadow, notes)) = self.shadow().and_then(|shadow| Some((shadow, shadow.notes()?))) else { return };
        // Every later copy sees the state at its end; the notes of earlier ones are seen here.
        if !crate::sys::membarrier::on_all_threads() {
            core::sync::atomic::fence(Ordering::SeqCst);
        }
        for range in notes.take(shadow.size()) {
            if let Err(error) = copy_back(shadow, self, range.start, range.end) {
                crate::sys::notice(&format!("{}: {error}", self.path().to_string_lossy()));
            }
        }
    }
}

/// Where nothing was ever stored in the shadow, the file has a hole, too, and keeps it.
fn copy_back(shadow: &Shadow, file: &AtomicFile, mut at: u64, end: u64) -> Result<()> {
    while let Some(data) = next_data(shadow.memory()?, at)?.filter(|&data| data < end) {
        at = data;
        let len = PIECE.min((end - at) as usize);
        let base = shadow.at(at, len)?;
        let done = file.kernel_write(at, &[UserBuf { base, len }])?;
        at += done as u64;
    }
    Ok(())
}
