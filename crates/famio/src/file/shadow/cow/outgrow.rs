//! A file outgrows the memory that its shadow may take. If it has no writable maps and no other process has it open,
//! the maps become private ones of the file. Otherwise the shadow grows with the file.

use super::super::Shadow;
use super::super::mapped_range::MappedRange;
use super::super::ranges;
use super::map::{move_pages, reserve, unmap};
use super::{CowMaps, page_end};
use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::file::state::shadow_pages::check_size;
use core::sync::atomic::Ordering;
use rustix::fs::ftruncate;

const GROWS: &[u8] = b": its map takes more than what map-memory allows (by default a quarter of this machine's memory): the file grew while it was mapped for writing, or by several processes";

impl AtomicFile {
    /// The file, and its maps, are about to have `size` bytes. Returns whether the maps are private ones now and have
    /// them. The caller holds the lock.
    pub(in crate::file::shadow) fn outgrow(&self, shadow: &Shadow, size: u64) -> Result<bool> {
        let grows = shadow.cow_maps().is_none() && size > shadow.size();
        if !grows || check_size(size, self.map_limit()).is_ok() || self.with_session(|_| ()).is_none() {
            return Ok(false);
        }
        let in_the_way = |map: &MappedRange| map.changes() || !map.shadow;
        let goes_on = || {
            if check_size(shadow.size(), self.map_limit()).is_ok() {
                crate::sys::notice_parts(&[self.path.to_bytes(), GROWS]);
            }
            Ok(false)
        };
        if ranges::has(self.key(), in_the_way) || ranges::has_gone(self.key()) {
            return goes_on();
        }
        let Ok(made) = Shadow::cow(size) else { return Ok(false) };
        let membership = &self.ownership.membership;
        let was_shared = self.has_shared_shadow();
        if was_shared {
            membership.hide_shadow();
        }
        if membership.has_others() {
            if was_shared {
                membership.set_shadow(); // a process that came meanwhile may have it
            }
            return goes_on();
        }
        if was_shared {
            membership.forget_shadow();
        }
        let new = self.shadow.put(made, &self.shadowed, |_| false);
        if let Some(cow) = new.cow_maps() {
            self.find_ground(new, cow);
            new.filled.store(true, Ordering::Release);
            self.replace_by_private(new, cow)?;
        }
        // A call that was reading there reads again. If this fails, such a call gets the bytes from before, and the
        // memory goes with the file.
        if let Ok(memory) = shadow.memory() {
            let _ = memory.run(|memory| Ok(ftruncate(memory, 0)?));
        }
        Ok(true)
    }

    /// Builds each map elsewhere, with all that it has to show, and then puts it in the place of the old one.
    fn replace_by_private(&self, shadow: &Shadow, cow: &CowMaps) -> Result<()> {
        let maps: Vec<_> =
            ranges::lock().of(self.key()).filter(|map| map.shadow && !map.cow).map(|map| map.clone()).collect();
        for mut old in maps {
            old.ahead.end();
            let len = old.end - old.start;
            let mut beside = old.clone();
            beside.start = reserve(0, len, 0)?;
            (beside.end, beside.cow) = (beside.start + len, true);
            let whole = beside.in_file();
            ranges::lock().add(beside.clone());
            let shown = self
                .lay(shadow, cow, &beside, whole.clone())
                .and_then(|()| self.show_in_new(shadow, cow, whole.clone(), beside.start));
            ranges::lock().take(beside.start, beside.end);
            let (ground, end) = (cow.ground(), page_end(shadow.size()));
            let moved = shown.and_then(|()| {
                for piece in [0..ground, ground..end, end..u64::MAX] {
                    let piece = piece.start.max(whole.start)..piece.end.min(whole.end);
                    if piece.start < piece.end {
                        let at = (piece.start - whole.start) as usize;
                        move_pages(beside.start + at, (piece.end - piece.start) as usize, old.start + at)?;
                    }
                }
                Ok(())
            });
            if moved.is_err() {
                unmap(beside.start..beside.end);
                return moved;
            }
            for map in ranges::lock().inside(old.start, old.end) {
                map.cow = true;
            }
        }
        Ok(())
    }
}
