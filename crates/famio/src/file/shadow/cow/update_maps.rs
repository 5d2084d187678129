//! Copies what calls write to the maps.

use super::super::Shadow;
use super::super::ranges;
use super::layout::{in_file, part_of};
use super::{CowMaps, PAGE, page_end};
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::AtomicFile;
use crate::file::engine::home::{copy_in, copy_out};
use crate::file::state::page_tables::Wanted;
use crate::file::state::shadow_pages::PIECE;
use crate::index::BLOCK;
use crate::sys::{next_data, read_at, write_at};
use core::ops::Range;
use core::sync::atomic::Ordering;

/// A longer range is looked at first: most of it may be holes.
const LONG: u64 = PIECE as u64;

impl CowMaps {
    /// Copies bytes to a map of the program's, whatever its protection.
    pub(super) fn put(&self, prot: i32, at: usize, bytes: &[u8]) -> Result<()> {
        self.count_copied(bytes.len().next_multiple_of(PAGE as usize) as u64);
        let store = || {
            // SAFETY: a map of the program's, in the list; guarded nevertheless. The source is ours.
            unsafe { copy_in(at as *mut u8, bytes.as_ptr(), bytes.len()) }
        };
        if prot & libc::PROT_WRITE != 0 && store().is_ok() {
            return Ok(());
        }
        // By the kernel, which also copies pages that are not writable.
        write_at(self.process.get()?, at as u64, bytes)
    }

    /// As [`put`](Self::put), for a map of zeros instead of the file: equal bytes take no memory.
    fn put_over_zeros(&self, prot: i32, at: usize, bytes: &[u8]) -> Result<()> {
        let mut there = [0; PAGE as usize];
        let mut done = 0;
        while done < bytes.len() {
            let len = (PAGE as usize - (at + done) % PAGE as usize).min(bytes.len() - done);
            let bytes = &bytes[done..done + len];
            self.get(at + done, &mut there[..len])?;
            if *bytes != there[..len] {
                self.put(prot, at + done, bytes)?;
            }
            done += len;
        }
        Ok(())
    }

    /// Copies bytes of a map of the program's to our memory.
    pub(super) fn get(&self, at: usize, to: &mut [u8]) -> Result<()> {
        // SAFETY: as in `put`.
        if unsafe { copy_out(to.as_mut_ptr(), at as *const u8, to.len()) }.is_ok() {
            return Ok(());
        }
        match read_at(self.process.get()?, at as u64, to)? {
            n if n == to.len() => Ok(()),
            _ => Err(Error::new(libc::EIO)),
        }
    }
}

impl AtomicFile {
    /// The file's bytes in `range`, or its size, have changed: updates its maps. The caller holds the lock.
    pub(in crate::file::shadow) fn follow_in_maps(
        &self,
        shadow: &Shadow,
        cow: &CowMaps,
        range: Range<u64>,
        size: u64,
    ) -> Result<()> {
        if !super::super::is_mapped(self.key()) {
            shadow.set_size(size);
            return Ok(());
        }
        let old = shadow.size();
        if size != old {
            self.lay_for_size(shadow, cow, size)?;
            // The rest of the page in which the file ends or ended: stores beyond the end must not show.
            let edge = old.min(size);
            self.clear_in_maps(cow, edge..page_end(edge))?;
            self.show(shadow, cow, edge..page_end(edge), None)?;
        }
        self.show(shadow, cow, range, None)
    }

    /// Clears the range in all maps.
    fn clear_in_maps(&self, cow: &CowMaps, range: Range<u64>) -> Result<()> {
        let zeros = [0; PAGE as usize];
        for map in ranges::lock().of(self.key()).filter(|map| map.cow) {
            if let Some((at, part)) = part_of(map, &range) {
                cow.put(map.prot, at, &zeros[..(part.end - part.start) as usize])?;
            }
        }
        Ok(())
    }

    /// Makes all maps, or the one at `only`, show the file's bytes in `range`, as far as the file goes. The caller
    /// holds the lock.
    pub(super) fn show(&self, shadow: &Shadow, cow: &CowMaps, range: Range<u64>, only: Option<usize>) -> Result<()> {
        let range = range.start..range.end.min(shadow.size());
        if range.start >= range.end {
            return Ok(());
        }
        if range.end - range.start <= LONG {
            return self.show_bytes(cow, range, only);
        }
        for part in self.to_be_shown(cow, range, only)? {
            self.show_bytes(cow, part, only)?;
        }
        Ok(())
    }

    pub(super) fn show_bytes(&self, cow: &CowMaps, range: Range<u64>, only: Option<usize>) -> Result<()> {
        let (mut piece, ground) = (vec![0; PIECE.min((range.end - range.start) as usize)], cow.ground());
        let mut at = range.start;
        while at < range.end {
            let want = PIECE.min((range.end - at) as usize);
            // SAFETY: our piece.
            let got = unsafe { self.read_file(at, &[UserBuf::of(&mut piece[..want])]) }?;
            if got == 0 {
                break;
            }
            let end = at + got as u64;
            for map in ranges::lock().of(self.key()).filter(|map| map.cow && only.is_none_or(|only| map.start == only))
            {
                let piece = |part: &Range<u64>| &piece[(part.start - at) as usize..(part.end - at) as usize];
                if let Some((address, part)) = part_of(map, &(at..end.min(ground))) {
                    cow.put(map.prot, address, piece(&part))?;
                }
                if let Some((address, part)) = part_of(map, &(at.max(ground)..end)) {
                    cow.put_over_zeros(map.prot, address, piece(&part))?;
                }
            }
            at = end;
        }
        Ok(())
    }

    /// The parts of a long range in which the maps may differ from the file, or may come to.
    pub(super) fn to_be_shown(&self, cow: &CowMaps, range: Range<u64>, only: Option<usize>) -> Result<Vec<Range<u64>>> {
        let mut parts = Vec::new();
        let (ground, block) = (cow.ground(), BLOCK as u64);
        let readable = self.with_session(|session| -> Result<u64> {
            drop(session.close_gate(&self.fds)?); // nothing is deferred
            let cx = session.context(&self.fds);
            cx.index().for_each(range.start / block, (range.end - 1) / block, |number, cell| {
                let start = number * block;
                if start >= ground || cell.entry.load(Ordering::Acquire) != 0 {
                    parts.push(start..start + block);
                }
                Ok(())
            })?;
            // Bytes appended to the block in which the committed file ends are in the file without an entry until
            // they are moved. If the file is about to be cut, it still has the bytes behind.
            let readable = session.engine.readable(cx);
            for end in [cx.shared().committed_size.load(Ordering::Acquire), readable] {
                let last = end / block * block;
                parts.push(last..last.saturating_add(block));
            }
            Ok(readable)
        });
        // Bytes beyond the ground are not mapped from the file, and may exist.
        let readable = readable.transpose()?.unwrap_or(u64::MAX).min(range.end);
        let mut at = ground.max(range.start);
        while at < readable {
            let Some(data) = self.by_its_descriptor(|fd| next_data(fd, at..readable))? else { break };
            at = data.end;
            parts.push(data);
        }
        let maps = ranges::private_of(self.key());
        for map in maps.iter().filter(|map| only.is_none_or(|only| map.start == only)) {
            if let Some((at, part)) = part_of(map, &range) {
                let end = at + (part.end - part.start) as usize;
                let copied = cow.tables.copied(at & !(PAGE as usize - 1)..end, Wanted::All)?;
                parts.extend(copied.into_iter().map(|run| in_file(map, run)));
            }
        }
        let clipped = parts.into_iter().map(|part| part.start.max(range.start)..part.end.min(range.end));
        Ok(super::super::stores::merged(clipped.filter(|part| part.start < part.end).collect()))
    }
}
