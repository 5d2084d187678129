//! Drops copies when the file itself has the same bytes.

use super::super::Shadow;
use super::super::mapped_range::MappedRange;
use super::super::ranges;
use super::super::watch;
use super::layout::{advise, in_file};
use super::{CowMaps, PAGE, page_end};
use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::session::Session;
use crate::file::state::page_tables::Wanted;
use crate::file::state::shadow_pages::{PIECE, size_limit};
use crate::sys::{ALL_BUT_LIBCS, block_signals, read_at, restore_signals};
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Bytes of copies from which on a SYNC makes a checkpoint so that they can be dropped.
const TRIM_FROM: u64 = 64 << 20;

const CANNOT_TRIM: &[u8] = b": its map holds more than what map-memory allows (by default a quarter of this machine's memory) in copied pages, which cannot be dropped while the program has several threads";

pub(in crate::file::shadow) fn trim_threshold() -> u64 {
    TRIM_FROM.min(size_limit() / 16)
}

impl AtomicFile {
    /// After a SYNC: if the maps have many copies, drops them as far as a checkpoint makes that possible.
    #[inline]
    pub(in crate::file) fn trim_maps(&self) {
        if let Some(shadow) = self.shadow()
            && let Some(cow) = shadow.cow_maps()
            && cow.copied.load(Ordering::Relaxed) >= trim_threshold()
        {
            // An error here occurs again, and is reported, where it matters: at the next write or SYNC.
            let _ = self.trim(shadow, cow);
        }
    }

    #[cold]
    fn trim(&self, shadow: &Shadow, cow: &CowMaps) -> Result<()> {
        Self::may_lock()?;
        let _changing = self.shadow.lock();
        let maps = ranges::private_of(self.key());
        // Pages that are stored to again and again were counted each time.
        let mut copied = 0;
        for map in &maps {
            copied += copied_below(cow, map, page_end(shadow.size()))?.iter().map(|run| run.len() as u64).sum::<u64>();
        }
        let before = cow.kept.load(Ordering::Relaxed);
        if copied < before + trim_threshold() {
            cow.copied.store(copied.saturating_sub(before), Ordering::Relaxed);
            return Ok(());
        }
        // A store between the comparison and the drop would be lost unnoticed: so no other thread may exist.
        if maps.iter().any(|map| map.stores) && !is_alone() {
            cow.copied.store(0, Ordering::Relaxed);
            cow.kept.store(copied, Ordering::Relaxed);
            if copied > size_limit() && !cow.said.swap(true, Ordering::Relaxed) {
                crate::sys::notice_parts(&[self.path.to_bytes(), CANNOT_TRIM]);
            }
            return Ok(());
        }
        let before = block_signals(ALL_BUT_LIBCS); // a signal handler may store, too
        let trimmed = self.session().map(|session| self.trim_by(&session, shadow, cow, &maps));
        restore_signals(before);
        trimmed.transpose().map(drop)
    }

    fn trim_by(&self, session: &Session, shadow: &Shadow, cow: &CowMaps, maps: &[MappedRange]) -> Result<()> {
        let _closed = session.close_gate(&self.fds)?;
        let cx = session.context(&self.fds);
        session.check(cx)?;
        keeping_bits(&self.fds, || session.engine.make_room(cx))?;
        // Bytes appended to the block in which the committed file ends have no entry, but may be moved from there.
        let last = cx.shared().committed_size.load(Ordering::Acquire) / PAGE;
        let in_file_alone = |at: u64| {
            let cell = cx.index().lookup(at / PAGE);
            at / PAGE != last && cell.is_none_or(|cell| cell.entry.load(Ordering::Acquire) == 0)
        };
        let mut kept = 0;
        for map in maps {
            kept += self.drop_copies(shadow, cow, map, &in_file_alone)?;
        }
        let shared = cx.shared();
        if shared.dirty.load(Ordering::Acquire) == 0 {
            let sure = shared.committed_size.load(Ordering::Acquire).min(session.engine.readable(cx));
            kept -= self.raise_ground(shadow, cow, maps, sure)?.min(kept);
        }
        cow.copied.store(0, Ordering::Relaxed);
        cow.kept.store(kept, Ordering::Relaxed);
        Ok(())
    }

    /// Drops copies of the file's pages that have the same bytes as the file. Returns how many bytes of copies are
    /// left.
    fn drop_copies(
        &self,
        shadow: &Shadow,
        cow: &CowMaps,
        map: &MappedRange,
        in_file_alone: &dyn Fn(u64) -> bool,
    ) -> Result<u64> {
        let mut kept = 0;
        for run in copied_below(cow, map, page_end(shadow.size()))? {
            let part = in_file(map, run.clone());
            let mut goes: Vec<Range<usize>> = Vec::new();
            let mut at = run.start;
            self.compare(shadow, cow, run, part, |offset, same| {
                let page = at..at + PAGE as usize;
                at = page.end;
                match goes.last_mut() {
                    _ if !same || offset >= cow.ground() || !in_file_alone(offset) => kept += PAGE,
                    Some(last) if last.end == page.start => last.end = page.end,
                    _ => goes.push(page),
                }
                true
            })?;
            for pages in goes {
                let len = pages.end - pages.start;
                if map.watched {
                    watch::let_go(pages.start, pages.end)?; // otherwise a marker stays in their place
                }
                if advise(pages.start, len, libc::MADV_DONTNEED).is_err() {
                    kept += len as u64; // locked in memory
                }
            }
        }
        Ok(kept)
    }

    /// Compares copies with the file, page by page, until `seen` stops it.
    fn compare(
        &self,
        shadow: &Shadow,
        cow: &CowMaps,
        run: Range<usize>,
        part: Range<u64>,
        mut seen: impl FnMut(u64, bool) -> bool,
    ) -> Result<()> {
        let (mut copy, mut file) = (vec![0; PIECE], vec![0; PIECE]);
        let end = part.end.min(shadow.size());
        let mut at = part.start;
        while at < end {
            let want = PIECE.min((end - at) as usize);
            cow.get(run.start + (at - part.start) as usize, &mut copy[..want])?;
            let got = self.by_its_descriptor(|fd| read_at(fd, at, &mut file[..want]))?;
            file[got..want].fill(0); // as the kernel shows the rest of the file's last page
            for (index, (copy, file)) in copy[..want].chunks(PAGE as usize).zip(file.chunks(PAGE as usize)).enumerate()
            {
                if !seen(at + index as u64 * PAGE, *copy == file[..copy.len()]) {
                    return Ok(());
                }
            }
            at += want as u64;
        }
        Ok(())
    }

    /// Nothing is uncommitted, and everything committed is in the file: maps from the file what lies below `sure` and
    /// was mapped as zeros, unless the copies differ. Returns how many bytes of copies have gone.
    fn raise_ground(&self, shadow: &Shadow, cow: &CowMaps, maps: &[MappedRange], sure: u64) -> Result<u64> {
        let (old, new) = (cow.ground(), page_end(sure.min(shadow.size())));
        if new <= old {
            return Ok(0);
        }
        let (mut copies, mut all_same) = (0, true);
        for map in maps {
            for run in copied_below(cow, map, new)? {
                self.compare(shadow, cow, run.clone(), in_file(map, run), |offset, same| {
                    copies += if offset >= old { PAGE } else { 0 };
                    all_same &= same || offset < old;
                    all_same
                })?;
            }
        }
        if !all_same {
            return Ok(0);
        }
        cow.ground.store(new, Ordering::Release);
        maps.iter().try_for_each(|map| self.lay(shadow, cow, map, old..new)).inspect_err(|_| {
            // Some maps are still of zeros but count as maps of the file: none of their copies may be dropped, and no
            // commit may follow.
            cow.ground.store(old, Ordering::Release);
            self.with_session(|session| session.arena.shared().poisoned.store(1, Ordering::Release));
        })?;
        Ok(copies)
    }
}

/// Copies in a map, of the file below `end`.
fn copied_below(cow: &CowMaps, map: &MappedRange, end: u64) -> Result<Vec<Range<usize>>> {
    let len = usize::try_from(end.saturating_sub(map.offset)).unwrap_or(usize::MAX);
    let end = map.end.min(map.start.saturating_add(len));
    if end <= map.start { Ok(Vec::new()) } else { cow.tables.copied(map.start..end, Wanted::All) }
}

/// Whether only this thread could store in a map: it is the program's only one, and the kernel has not been asked to
/// read into memory asynchronously.
pub(in crate::file::shadow) fn is_alone() -> bool {
    crate::pmem::TestHooks::current().alone
        || !crate::file::reads_may_end_later()
            && crate::thread::current().ours.get() == 0
            && crate::thread::is_programs_only()
}
