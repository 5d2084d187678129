//! Reads by calls, which see stores through maps at once.

use super::super::Shadow;
use super::super::ranges;
use super::CowMaps;
use super::layout::part_of;
use crate::error::Result;
use crate::file::UserBuf;
use crate::file::atomic::AtomicFile;
use crate::file::engine::home::copy_out;
use crate::file::state::shadow_pages::PIECE;

impl AtomicFile {
    /// Reads into the caller's buffers.
    ///
    /// # Safety
    /// As [`AtomicFile::read`].
    pub(in crate::file::shadow) unsafe fn read_beside_maps(
        &self,
        shadow: &Shadow,
        cow: &CowMaps,
        offset: u64,
        bufs: &[UserBuf],
    ) -> Result<usize> {
        let mut piece = Vec::new();
        let mut done = 0;
        for buf in bufs {
            let mut of_buf = 0;
            while of_buf < buf.len {
                let at = offset + done as u64;
                let want =
                    (buf.len - of_buf).min(PIECE).min(shadow.size().saturating_sub(at).min(PIECE as u64) as usize);
                if want == 0 {
                    return Ok(done);
                }
                piece.resize(want, 0);
                let to = buf.base.wrapping_add(of_buf);
                let read = match self.read_map(cow, at, &mut piece) {
                    // SAFETY: the source is ours; the caller's promise for the rest.
                    Some(len) => unsafe { copy_out(to, piece.as_ptr(), len) }.map(|()| len),
                    // SAFETY: the caller's promise.
                    None => unsafe { self.read_file(at, &[UserBuf { base: to, len: self.before_maps(at, want) }]) },
                };
                match read {
                    Ok(0) => return Ok(done),
                    Ok(len) => (of_buf, done) = (of_buf + len, done + len),
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => return Ok(done),
                }
            }
        }
        Ok(done)
    }

    /// Reads from a writable map, if one has the byte at `at`; returns how much. The map stays meanwhile.
    fn read_map(&self, cow: &CowMaps, at: u64, piece: &mut [u8]) -> Option<usize> {
        let mut ranges = ranges::lock();
        let mut maps = ranges.of(self.key()).filter(|map| map.cow && map.stores);
        let (address, part) =
            maps.find_map(|map| part_of(map, &(at..at + piece.len() as u64)).filter(|found| found.1.start == at))?;
        let len = (part.end - part.start) as usize;
        // If it is unreadable, its stores were taken before.
        cow.get(address, &mut piece[..len]).ok().map(|()| len)
    }

    /// How many of `want` bytes from `at` on lie before the next writable map; at least one.
    fn before_maps(&self, at: u64, want: usize) -> usize {
        let mut ranges = ranges::lock();
        let starts = ranges.of(self.key()).filter(|map| map.cow && map.stores).map(|map| map.offset);
        let next = starts.filter(|&start| start > at).min().unwrap_or(u64::MAX);
        want.min(usize::try_from(next - at).unwrap_or(usize::MAX))
    }
}
