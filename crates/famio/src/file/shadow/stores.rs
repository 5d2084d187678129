//! Takes the program's stores through its maps into the open epoch.

use super::ranges;
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::AtomicFile;
use crate::file::base::bits::GRANULE;
use crate::file::base::doing::doing;
use crate::file::session::Session;
use crate::file::state::shadow_memory::{Shadow, WORDS};
use crate::file::state::shadow_pages::PIECE;
use crate::rule::{Rule, holds};
use core::ops::Range;

impl AtomicFile {
    /// Writes what was stored since the last call. For a SYNC: stores during the call may be left to the next.
    ///
    /// # Errors
    /// Those of a write; the stores are then still to be written.
    pub(in crate::file) fn take_stores(&self) -> Result<()> {
        match self.shadow() {
            // A process that cannot write commits nothing, whichever process stored it.
            Some(shadow) if !self.is_disowned() && self.fds.has_writable() => self.take_stores_of(shadow),
            Some(_) => Ok(()),
            None => self.check_maps(),
        }
    }

    /// Before a hand-over of ownership: takes stores in maps that are gone.
    ///
    /// # Errors
    /// As [`take_stores`](Self::take_stores).
    pub(in crate::file) fn take_last_stores(&self) -> Result<()> {
        if !super::is_mapped(self.key()) && self.has_last_stores() {
            return self.take_stores();
        }
        Ok(())
    }

    /// Whether there are such stores.
    pub(in crate::file) fn has_last_stores(&self) -> bool {
        self.shadow().is_some() && ranges::has_gone(self.key()) && holds(Rule::LastStoresGoAlong)
    }

    #[cold]
    fn take_stores_of(&self, shadow: &Shadow) -> Result<()> {
        Self::may_lock()?;
        let _changing = self.shadow.lock();
        if let Some(cow) = shadow.cow_maps() {
            if super::is_mapped(self.key()) {
                self.take_from_maps(shadow, cow)?;
            }
            return Ok(());
        }
        // Other processes do not say where they have stored.
        let (membership, shared) = (&self.ownership.membership, self.has_shared_shadow());
        if shared && membership.has_dead_stores() && self.session_for_write()?.is_some() {
            self.leave_dead_stores(shadow)?;
        }
        let (unknown, others) = (membership.unknown_stores(), shared && membership.others_store());
        if others {
            // As the owner, here and below: otherwise another process may cut the shadow while it is compared. Under
            // our lock, ownership is not handed over.
            self.session_for_write()?;
            self.take_size(shadow)?;
        } else if shared && shadow.notes().is_some() {
            self.session_for_write()?; // another process might cut what was copied while it is written
        }
        self.take_noted(shadow)?;
        let (mut wanted, serial) = ranges::lock().take_stored(self.key(), shadow);
        if others {
            wanted.push(0..shadow.size());
        }
        let wanted = merged(wanted);
        let begun = if !wanted.is_empty() && (shared || self.ownership.is_disturbed()) {
            self.session_for_write().map(drop).map_err(Error::from) // the session is what is compared
        } else {
            Ok(())
        };
        let longest = wanted.iter().map(|range| range.end - range.start).max().unwrap_or(0);
        let mut piece = vec![0; PIECE.min(longest as usize)];
        let mut take =
            |range: &Range<u64>| self.take_range(shadow, range.start..range.end.min(shadow.size()), &mut piece);
        let taken = begun.and_then(|()| wanted.iter().try_for_each(&mut take));
        // After an error everything is to be looked at again.
        let again = if taken.is_ok() { Vec::new() } else { wanted };
        ranges::lock().were_taken(self.key(), serial, again);
        if taken.is_ok() && others {
            membership.found_unknown_stores(unknown);
        }
        self.publish_maps();
        taken
    }

    /// A session has begun, and no thread is inside yet. If the shadow has kept a dead process's stores, it has kept
    /// the size as well: the file gets that before any thread writes to both.
    pub(in crate::file) fn take_size_left(&self, session: &Session) -> Result<()> {
        match self.shadow() {
            Some(shadow)
                if self.has_shared_shadow()
                    && self.ownership.membership.unknown_stores() != 0
                    && session.arena.shared().size() != shadow.size() =>
            {
                let _doing = doing();
                Ok(session.set_size(&self.fds, shadow.size())?)
            }
            _ => Ok(()),
        }
    }

    /// A dead process may have changed the size, which stays with its stores.
    fn take_size(&self, shadow: &Shadow) -> Result<()> {
        let size = shadow.size();
        if !self.is_demoted() && self.size() != size { Ok(self.set_size_of_file(size)?) } else { Ok(()) }
    }

    /// Writes what copies into the file's maps have stored.
    fn take_noted(&self, shadow: &Shadow) -> Result<()> {
        let Some(notes) = shadow.notes() else { return Ok(()) };
        let noted = notes.take(shadow.size());
        for (index, range) in noted.iter().enumerate() {
            if self.is_demoted() {
                break; // its maps are the kernel's, with all that was stored in them
            }
            if let Err(e) = self.take_bytes(shadow, range.clone()) {
                for range in &noted[index..] {
                    notes.note(range.start, (range.end - range.start) as usize);
                }
                return Err(e);
            }
        }
        Ok(())
    }

    /// Writes these bytes of the shadow, which lie below its end.
    fn take_bytes(&self, shadow: &Shadow, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at) as usize;
            let rest = UserBuf { base: shadow.at(at, len)?, len };
            // SAFETY: our memory.
            at += unsafe { self.write_file(at, &[rest]) }? as u64;
        }
        Ok(())
    }

    /// Compares by pieces as long as `piece`.
    fn take_range(&self, shadow: &Shadow, range: Range<u64>, piece: &mut [u8]) -> Result<()> {
        let mut at = range.start;
        // Demoted meanwhile, by our own write: then its maps are the kernel's, and newer than the shadow.
        while at < range.end && !self.is_demoted() {
            // Holes were never stored to.
            match shadow.next_data(at)?.filter(|&data| data < range.end) {
                Some(data) => at = at.max(data),
                None => break,
            }
            let want = piece.len().min((range.end - at) as usize);
            // SAFETY: our piece.
            let got = unsafe { self.read_file(at, &[UserBuf::of(&mut piece[..want])]) }?;
            if got == 0 {
                break;
            }
            self.take_piece(shadow, at, &piece[..got])?;
            at += got as u64;
        }
        Ok(())
    }

    /// Writes the granules of the shadow that differ from the file's bytes at `at`.
    fn take_piece(&self, shadow: &Shadow, at: u64, file: &[u8]) -> Result<()> {
        let bits = shadow.differing(at, file)?;
        if bits == [0; WORDS] {
            return Ok(());
        }
        let differs = |index: usize| bits[index / 64] >> (index % 64) & 1 != 0;
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
            self.take_bytes(shadow, at + start as u64..at + end as u64)?;
        }
        Ok(())
    }
}

/// The ranges in order, each byte once.
pub(super) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
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
