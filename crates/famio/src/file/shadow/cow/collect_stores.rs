//! Takes the program's stores in its maps into the open epoch.

use super::super::Shadow;
use super::super::mapped_range::MappedRange;
use super::super::ranges;
use super::super::switch_maps::put_at;
use super::CowMaps;
use super::layout::in_file;
use crate::error::Result;
use crate::file::UserBuf;
use crate::file::atomic::AtomicFile;
use crate::file::base::bits::GRANULE;
use crate::file::state::page_tables::Wanted;
use crate::file::state::shadow_pages::PIECE;
use core::ops::Range;
use core::sync::atomic::Ordering;
use std::os::fd::AsRawFd;

impl AtomicFile {
    /// Writes what was stored since the last call. The caller holds the lock, so no map moves or goes meanwhile.
    ///
    /// # Errors
    /// Those of a write; the stores are then still to be written.
    pub(in crate::file::shadow) fn take_from_maps(&self, shadow: &Shadow, cow: &CowMaps) -> Result<()> {
        let stored_to = |map: &&mut MappedRange| map.cow && map.stores;
        let maps: Vec<_> = ranges::lock().of(self.key()).filter(stored_to).map(|map| map.clone()).collect();
        let all = cow.look_at_all.swap(true, Ordering::AcqRel);
        for map in &maps {
            self.take_from(shadow, cow, map, all)?;
        }
        cow.look_at_all.store(false, Ordering::Release);
        Ok(())
    }

    fn take_from(&self, shadow: &Shadow, cow: &CowMaps, map: &MappedRange, all: bool) -> Result<()> {
        let there = shadow.size().saturating_sub(map.offset).next_multiple_of(super::PAGE);
        let end = map.end.min(map.start.saturating_add(usize::try_from(there).unwrap_or(usize::MAX)));
        if end <= map.start {
            return Ok(());
        }
        // First protected again, then looked at: a store in between is seen twice rather than never.
        let mut runs = if map.watched { cow.tables.copied(map.start..end, Wanted::StoredSince)? } else { Vec::new() };
        if all || !map.watched {
            runs = cow.tables.copied(map.start..end, Wanted::All)?;
        }
        for run in runs {
            if map.watched {
                cow.count_copied((run.end - run.start) as u64);
            }
            self.take_run(shadow, cow, run.start, in_file(map, run))?;
        }
        Ok(())
    }

    /// Writes the granules of `part`, mapped at `from`, that differ from the file.
    fn take_run(&self, shadow: &Shadow, cow: &CowMaps, from: usize, part: Range<u64>) -> Result<()> {
        let end = part.end.min(shadow.size());
        let (mut stored, mut file) = (vec![0; PIECE], vec![0; PIECE]);
        let mut at = part.start;
        // Demoted meanwhile, by our own write: then its maps are the kernel's.
        while at < end && !self.is_demoted() {
            let want = PIECE.min((end - at) as usize);
            // SAFETY: our piece.
            let got = unsafe { self.read_file(at, &[UserBuf::of(&mut file[..want])]) }?;
            if got == 0 {
                break;
            }
            cow.get(from + (at - part.start) as usize, &mut stored[..got])?;
            self.take_granules(at, &mut stored[..got], &file[..got])?;
            at += got as u64;
        }
        Ok(())
    }

    /// Writes what differs.
    fn take_granules(&self, at: u64, stored: &mut [u8], file: &[u8]) -> Result<()> {
        let len = file.len();
        let bounds = |index: usize| index * GRANULE..((index + 1) * GRANULE).min(len);
        let granules = len.div_ceil(GRANULE);
        let mut index = 0;
        while index < granules {
            let from = index;
            while index < granules && stored[bounds(index)] != file[bounds(index)] {
                index += 1;
            }
            if from == index {
                index += 1;
                continue;
            }
            let mut done = from * GRANULE;
            let end = (index * GRANULE).min(len);
            while done < end {
                // SAFETY: our memory.
                done += unsafe { self.write_file(at + done as u64, &[UserBuf::of(&mut stored[done..end])]) }?;
            }
        }
        Ok(())
    }
}

impl AtomicFile {
    /// The file lost its name, and is the kernel's from now on, with what was stored in its maps. It has no session.
    pub(in crate::file::shadow) fn private_to_kernel(&self, shadow: &Shadow, cow: &CowMaps) -> Result<()> {
        let maps = ranges::private_of(self.key());
        let mut piece = vec![0; PIECE];
        for map in maps.iter().filter(|map| map.stores) {
            let there = shadow.size().saturating_sub(map.offset).next_multiple_of(super::PAGE);
            let end = map.end.min(map.start.saturating_add(usize::try_from(there).unwrap_or(usize::MAX)));
            for run in cow.tables.copied(map.start..end.max(map.start), Wanted::All)? {
                let part = in_file(map, run.clone());
                let mut at = part.start;
                while at < part.end.min(shadow.size()) {
                    let len = PIECE.min((part.end.min(shadow.size()) - at) as usize);
                    cow.get(run.start + (at - part.start) as usize, &mut piece[..len])?;
                    at += self.kernel_write(at, &[UserBuf::of(&mut piece[..len])])? as u64;
                }
            }
        }
        let mut ranges = ranges::lock();
        for map in ranges.of(self.key()).filter(|map| map.cow) {
            self.fds.with(map.may_store, |fd| put_at(map, fd.as_raw_fd()))?;
            (map.shadow, map.cow, map.watched) = (false, false, false);
        }
        Ok(())
    }
}
