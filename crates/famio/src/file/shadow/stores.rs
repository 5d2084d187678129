//! What the program stored through its maps becomes part of the open epoch.

use super::memory::{PIECE, Shadow, next_data};
use super::ranges;
use crate::error::Result;
use crate::file::UserBuf;
use crate::file::atomic::AtomicFile;
use crate::file::bits::GRANULE;
use core::ops::Range;

impl AtomicFile {
    /// Writes what was stored since the last time. For a SYNC: what is stored while it runs may be left to the next.
    ///
    /// # Errors
    /// Those of a write; what was stored stays to be written.
    pub(in crate::file) fn take_stores(&self) -> Result<()> {
        match self.shadow() {
            Some(shadow) if !self.is_disowned() => self.take_stores_of(shadow),
            _ => Ok(()),
        }
    }

    #[cold]
    fn take_stores_of(&self, shadow: &Shadow) -> Result<()> {
        Self::may_lock()?;
        let _changing = shadow.lock();
        let (wanted, serial) = ranges::lock().take_stored(self.key(), shadow.size());
        let wanted = merged(wanted);
        let taken =
            wanted.iter().try_for_each(|range| self.take_range(shadow, range.start..range.end.min(shadow.size())));
        // After an error all is to be looked at again.
        let again = if taken.is_ok() { Vec::new() } else { wanted };
        ranges::lock().were_taken(self.key(), serial, again);
        taken
    }

    fn take_range(&self, shadow: &Shadow, range: Range<u64>) -> Result<()> {
        let mut piece = vec![0; PIECE];
        let mut at = range.start;
        // Handed back meanwhile, by a write of ours: then its maps are the kernel's, and newer than the shadow.
        while at < range.end && !self.is_demoted() {
            // What has no memory was never stored to.
            match next_data(shadow.memory()?, at)?.filter(|&data| data < range.end) {
                Some(data) => at = at.max(data),
                None => break,
            }
            let want = PIECE.min((range.end - at) as usize);
            // SAFETY: the piece is ours.
            let got = unsafe { self.read_file(at, &[UserBuf::of(&mut piece[..want])]) }?;
            if got == 0 {
                break;
            }
            self.take_piece(shadow, at, &piece[..got])?;
            at += got as u64;
        }
        Ok(())
    }

    /// Writes the granules of the shadow that differ from what the file has at `at`.
    fn take_piece(&self, shadow: &Shadow, at: u64, file: &[u8]) -> Result<()> {
        let base = shadow.at(at, file.len())?;
        let differs = |index: usize| {
            let start = index * GRANULE;
            let len = GRANULE.min(file.len() - start);
            // SAFETY: below the shadow's size, which cannot change under its lock. The program may store there meanwhile: as
            // raw memory, compared by libc.
            unsafe { libc::memcmp(base.add(start).cast(), file[start..].as_ptr().cast(), len) != 0 }
        };
        // SAFETY: as above; most pieces are the same.
        if unsafe { libc::memcmp(base.cast(), file.as_ptr().cast(), file.len()) } == 0 {
            return Ok(());
        }
        let granules = file.len().div_ceil(GRANULE);
        let mut index = 0;
        while index < granules {
            let from = index;
            while index < granules && differs(index) {
                index += 1;
            }
            if from == index {
                index += 1;
                continue;
            }
            let (start, end) = (from * GRANULE, (index * GRANULE).min(file.len()));
            // SAFETY: within the shadow.
            let buf = UserBuf { base: unsafe { base.add(start) }, len: end - start };
            let mut done = 0;
            while done < buf.len {
                let rest = UserBuf { base: buf.base.wrapping_add(done), len: buf.len - done };
                // SAFETY: our memory.
                done += unsafe { self.write_file(at + (start + done) as u64, &[rest]) }?;
            }
        }
        Ok(())
    }
}

/// In order, each byte once.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(merged(vec![8..9, 0..4, 4..6, 1..3]), [0..6, 8..9]);
        assert!(merged(Vec::new()).is_empty());
    }
}
