//! The layout of a private map: the file, zeros, nothing.

use super::super::Shadow;
use super::super::mapped_range::MappedRange;
use super::super::ranges;
use super::super::request::map_at;
use super::super::watch;
use super::{CowMaps, page_end};
use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::sys::{check, syscall};
use core::ops::Range;
use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What the addresses of a part of the file lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    File,
    Zeros,
    /// An access is a SIGBUS.
    Nothing,
}

/// The intersection of a map with a part of the file: its address, and the part.
pub(super) fn part_of(range: &MappedRange, part: &Range<u64>) -> Option<(usize, Range<u64>)> {
    let in_file = range.in_file();
    let part = part.start.max(in_file.start)..part.end.min(in_file.end);
    (part.start < part.end).then(|| (range.start + (part.start - in_file.start) as usize, part))
}

/// The part of the file at these addresses of a map.
pub(super) fn in_file(range: &MappedRange, run: Range<usize>) -> Range<u64> {
    let start = range.offset + (run.start - range.start) as u64;
    start..start + (run.end - run.start) as u64
}

impl AtomicFile {
    /// Lays out `part` of the file in the map again. No thread stores there meanwhile.
    pub(super) fn lay(&self, shadow: &Shadow, cow: &CowMaps, range: &MappedRange, part: Range<u64>) -> Result<()> {
        let (ground, end) = (cow.ground(), page_end(shadow.size()));
        for (piece, of) in [(Piece::File, 0..ground), (Piece::Zeros, ground..end), (Piece::Nothing, end..u64::MAX)] {
            let of = of.start.max(part.start)..of.end.min(part.end);
            if of.start < of.end
                && let Some((at, of)) = part_of(range, &of)
            {
                self.lay_piece(cow, range, piece, at, of)?;
            }
        }
        Ok(())
    }

    fn lay_piece(&self, cow: &CowMaps, range: &MappedRange, piece: Piece, at: usize, of: Range<u64>) -> Result<()> {
        let len = (of.end - of.start) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
        match piece {
            Piece::File => self.by_its_descriptor(|fd| {
                map_at(at, len, range.prot, flags, fd.as_raw_fd(), of.start as i64).map(drop)
            })?,
            Piece::Zeros => {
                map_at(at, len, range.prot, flags | libc::MAP_ANONYMOUS, -1, 0)?;
                let _ = advise(at, len, libc::MADV_NOHUGEPAGE); // a store is to cost one page
            }
            Piece::Nothing => {
                // At the same offset there, so that neighbours become one map.
                let nothing = cow.nothing.get()?;
                map_at(at, len, range.prot, flags, nothing.as_fd().as_raw_fd(), of.start as i64)?;
            }
        }
        belongs_to_process(range, at, len)
    }

    /// Runs `work` with a descriptor of the file that is written: on an overlay file system, a read-only one may
    /// still lead to another file.
    pub(in crate::file::shadow) fn by_its_descriptor<T>(
        &self,
        work: impl FnOnce(BorrowedFd<'_>) -> Result<T>,
    ) -> Result<T> {
        self.fds.with(self.fds.has_writable(), work)
    }

    /// Before the first map of the file: finds the part that is never cut any more.
    pub(in crate::file::shadow) fn find_ground(&self, shadow: &Shadow, cow: &CowMaps) {
        let bounds = |session: &crate::file::session::Session| {
            let cx = session.context(&self.fds);
            cx.shared().committed_size.load(Ordering::Acquire).min(session.engine.readable(cx))
        };
        // Without a session the kernel's file is complete.
        let sure = self.with_session(bounds).unwrap_or(u64::MAX);
        cow.ground.store(page_end(sure.min(shadow.size())), Ordering::Release);
        [&cow.copied, &cow.kept].iter().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
    }

    /// The file has another size: its maps end there. The caller holds the lock.
    pub(in crate::file::shadow) fn lay_for_size(&self, shadow: &Shadow, cow: &CowMaps, size: u64) -> Result<()> {
        let old = shadow.size();
        let (from, to) = (page_end(old.min(size)), page_end(old.max(size)));
        shadow.set_size(size);
        cow.ground.fetch_min(page_end(size), Ordering::AcqRel);
        let maps = ranges::private_of(self.key());
        maps.iter().try_for_each(|range| self.lay(shadow, cow, range, from..to))
    }

    /// Turns maps of the file itself into private ones. There is no session, and no thread writes.
    pub(in crate::file::shadow) fn make_maps_private(&self, shadow: &Shadow, cow: &CowMaps) -> Result<()> {
        let mut ranges = ranges::lock();
        for range in ranges.of(self.key()).filter(|range| !range.shadow) {
            range.ahead.end();
            self.lay(shadow, cow, range, 0..u64::MAX)?;
            (range.shadow, range.cow) = (true, true);
        }
        Ok(())
    }
}

/// Keeps a new mapping out of forked children, and has the kernel watch it if it watches the map.
pub(super) fn belongs_to_process(range: &MappedRange, at: usize, len: usize) -> Result<()> {
    advise(at, len, libc::MADV_DONTFORK)?;
    if range.watched { watch::join(at, at + len) } else { Ok(()) }
}

pub(super) fn advise(at: usize, len: usize, advice: i32) -> Result<()> {
    // SAFETY: of a map of the program's; the advice loses no bytes of it, as the callers make sure.
    check(unsafe { syscall(libc::SYS_madvise, [at, len, advice as usize, 0, 0, 0]) }).map(drop)
}
