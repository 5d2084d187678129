//! Private maps are made, moved and unmapped.

use super::super::Shadow;
use super::super::mapped_range::MappedRange;
use super::super::ranges;
use super::super::request::{MapRequest, map_at};
use super::super::watch;
use super::layout::{advise, belongs_to_process};
use super::{CowMaps, PAGE, page_end, second_map};
use crate::error::{Error, Result};
use crate::file::atomic::AtomicFile;
use crate::sys::{check, syscall};
use core::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

impl AtomicFile {
    /// Maps a part of the file as the program requested. `None`: the file was demoted meanwhile.
    ///
    /// # Errors
    /// The kernel's. `ENOMEM` also if the part is mapped already, and one of the maps may be stored to.
    pub(in crate::file::shadow) fn map_private(
        self: &Arc<Self>,
        request: &MapRequest,
        shadow: &Shadow,
        cow: &CowMaps,
    ) -> Result<Option<usize>> {
        let _changing = self.shadow.lock();
        if self.session_for_write()?.is_none() {
            return Ok(None);
        }
        let stores = request.range(0, self, true).stores;
        let asked = request.range(0, self, true).in_file();
        let overlaps = |map: &MappedRange| map.cow && (stores || map.stores) && touch(&map.in_file(), &asked);
        if ranges::has(self.key(), overlaps) {
            return Err(second_map());
        }
        if !ranges::has(self.key(), |map| map.cow) {
            self.find_ground(shadow, cow);
        }
        let start = self.by_its_descriptor(|fd| request.carry_out_private(fd.as_raw_fd()))?;
        let mut range = request.range(start, self, true);
        range.cow = true;
        let whole = range.in_file();
        let made = belongs_to_process(&range, start, range.end - start).and_then(|()| {
            watch::begin(&mut range);
            ranges::lock().add(range.clone());
            self.lay(shadow, cow, &range, cow.ground().max(whole.start)..whole.end)?;
            self.show_in_new(shadow, cow, whole, start)
        });
        if let Err(error) = made {
            ranges::lock().take(start, range.end);
            unmap(start..range.end);
            return Err(error);
        }
        if request.flags & (libc::MAP_POPULATE | libc::MAP_LOCKED) != 0 {
            // The kernel's own flag would copy every page.
            let there = page_end(shadow.size()).saturating_sub(range.offset).min((range.end - start) as u64);
            let _ = advise(start, there as usize, libc::MADV_POPULATE_READ);
        }
        Ok(Some(start))
    }

    /// Called before private writable maps are unmapped, or become unreadable. The caller holds the lock.
    pub(in crate::file::shadow) fn take_before_maps_go(&self) {
        let Some((shadow, cow)) = self.shadow().and_then(|shadow| Some((shadow, shadow.cow_maps()?))) else { return };
        if self.is_demoted() || self.is_disowned() || !self.fds.has_writable() {
            return;
        }
        if let Err(error) = self.take_from_maps(shadow, cow) {
            // Stores that cannot be written would be lost while the rest is committed.
            self.with_session(|session| {
                session.arena.shared().poisoned.store(1, core::sync::atomic::Ordering::Release);
            });
            crate::sys::notice(&format!(
                "{}: stores in a map that is unmapped or protected are lost: {error}",
                self.path().to_string_lossy()
            ));
        }
    }
}

impl MapRequest {
    /// Asks the kernel for a private map, in the place of a shared one.
    fn carry_out_private(&self, fd: std::os::fd::RawFd) -> Result<usize> {
        let kind = libc::MAP_TYPE | libc::MAP_SYNC | libc::MAP_POPULATE | libc::MAP_LOCKED;
        let flags = self.flags & !kind | libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        map_at(self.addr, self.length, self.prot, flags, fd, self.offset)
    }
}

fn touch(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

pub(super) fn unmap(range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    // SAFETY: addresses of a map that is not in the list any more.
    unsafe { syscall(libc::SYS_munmap, [range.start, range.end - range.start, 0, 0, 0, 0]) };
}

/// `mremap(2)` of `addr..addr + old_length`, if that lies in a private map; otherwise `None`. Returns the kernel's
/// answer. The target has no maps any more.
pub(in crate::file::shadow) fn remap(
    addr: usize,
    old_length: usize,
    length: usize,
    (flags, target): (i32, Option<usize>),
) -> Option<isize> {
    let old_end = addr.saturating_add(old_length.max(1).next_multiple_of(PAGE as usize));
    let there = joined(addr, old_end);
    let first = there.first()?;
    // Private pages cannot have a second map (a length of zero), nor leave an empty one in the old place.
    if old_length == 0 || flags & libc::MREMAP_DONTUNMAP != 0 || length == 0 {
        return Some(-(libc::EINVAL as isize));
    }
    if there.len() > 1 || addr < first.start || old_end > first.end {
        return Some(-(libc::EFAULT as isize));
    }
    let file = first.file.0.clone()?;
    let length = length.next_multiple_of(PAGE as usize);
    let moved = file.remap_private(addr..old_end, length, flags, target);
    Some(moved.map_or_else(|error| -(error.errno() as isize), |start| start as isize))
}

/// Private maps in `start..end`, in order. Parts that a change of protection has split are joined if they are equal
/// again.
fn joined(start: usize, end: usize) -> Vec<MappedRange> {
    let mut ranges = ranges::lock();
    let mut there: Vec<MappedRange> = ranges.touching(start, end).filter(|map| map.cow).cloned().collect();
    there.sort_unstable_by_key(|map| map.start);
    let of = |map: &MappedRange| (map.key, map.prot, map.may_store, map.stores, map.copies, map.watched);
    let follows = |pair: &[MappedRange]| {
        pair[0].end == pair[1].start && pair[0].in_file().end == pair[1].offset && of(&pair[0]) == of(&pair[1])
    };
    if let [first, .., last] = there.as_slice()
        && there.windows(2).all(follows)
    {
        let whole = MappedRange { end: last.end, ..first.clone() };
        ranges.take(whole.start, whole.end);
        ranges.add(whole.clone());
        return vec![whole];
    }
    there
}

impl AtomicFile {
    fn remap_private(&self, old: Range<usize>, length: usize, flags: i32, target: Option<usize>) -> Result<usize> {
        Self::may_lock()?;
        let _changing = self.shadow.lock();
        if length < old.end - old.start {
            self.take_before_maps_go();
        }
        let Some((shadow, cow)) = self.shadow().and_then(|shadow| Some((shadow, shadow.cow_maps()?))) else {
            return Err(Error::new(libc::EFAULT));
        };
        let taken = ranges::lock().take(old.start, old.end);
        let [map] = taken.as_slice() else {
            taken.into_iter().for_each(|map| ranges::lock().add(map));
            return Err(Error::new(libc::EFAULT));
        };
        let mut new = map.clone();
        let longer = map.in_file().start..map.in_file().start + length as u64;
        let overlaps =
            |other: &MappedRange| other.cow && (map.stores || other.stores) && touch(&other.in_file(), &longer);
        if length > old.end - old.start && ranges::has(self.key(), overlaps) {
            ranges::lock().add(map.clone());
            return Err(second_map());
        }
        let moved = self.move_map(shadow, cow, &mut new, length, flags, target);
        if moved.is_err() {
            ranges::lock().add(map.clone());
            return moved.map(|()| 0);
        }
        let (start, old_len) = (new.start, (old.end - old.start).min(length) as u64);
        watch::begin(&mut new);
        // The part beyond the end of the file was not moved.
        let stays = if start == old.start { u64::MAX } else { page_end(shadow.size()).max(new.offset) };
        let added = (new.offset + old_len).min(stays)..new.in_file().end;
        ranges::lock().add(new.clone());
        if added.start < added.end {
            self.lay(shadow, cow, &new, added.clone())?;
            self.show_in_new(shadow, cow, added, start)?;
        }
        Ok(start)
    }

    /// Gives the map another length, and another address if asked. What is added is not laid out yet.
    fn move_map(
        &self,
        shadow: &Shadow,
        cow: &CowMaps,
        map: &mut MappedRange,
        length: usize,
        flags: i32,
        target: Option<usize>,
    ) -> Result<()> {
        let old = map.start..map.end;
        let old_length = old.end - old.start;
        if target.is_none() {
            if length <= old_length {
                if length < old_length {
                    unmap(old.start + length..old.end);
                }
                map.end = old.start + length;
                return Ok(());
            }
            if reserve(old.end, length - old_length, libc::MAP_FIXED_NOREPLACE).is_ok() {
                map.end = old.start + length;
                return Ok(());
            }
            if flags & libc::MREMAP_MAYMOVE == 0 {
                return Err(Error::new(libc::ENOMEM));
            }
        }
        let to = match target {
            Some(target) => reserve(target, length, libc::MAP_FIXED)?,
            None => reserve(0, length, 0)?,
        };
        // One kernel mapping at a time, with its copies.
        let stays = map.in_file().start..map.in_file().start + old_length.min(length) as u64;
        let (ground, end) = (cow.ground(), page_end(shadow.size()));
        let pieces =
            [0..ground, ground..end].map(|piece| piece.start.max(stays.start)..piece.end.min(stays.end)).map(|piece| {
                (piece.start.saturating_sub(stays.start) as usize, piece.end.saturating_sub(piece.start) as usize)
            });
        let pieces: Vec<_> = pieces.into_iter().filter(|&(_, len)| len > 0).collect();
        for (index, &(at, len)) in pieces.iter().enumerate() {
            if let Err(error) = move_pages(old.start + at, len, to + at) {
                for &(at, len) in &pieces[..index] {
                    // If this fails, too, the program has lost these pages of its map: the error is all it gets.
                    let _ = move_pages(to + at, len, old.start + at);
                }
                unmap(to..to + length);
                return Err(error);
            }
        }
        let moved: usize = pieces.iter().map(|&(_, len)| len).sum();
        unmap(old.start + moved..old.end); // the rest, which is still there
        (map.start, map.end) = (to, to + length);
        Ok(())
    }

    /// A new map, or a part added to one, shows the file's bytes.
    pub(super) fn show_in_new(&self, shadow: &Shadow, cow: &CowMaps, part: Range<u64>, start: usize) -> Result<()> {
        let part = part.start..part.end.min(shadow.size());
        if part.start >= part.end {
            return Ok(());
        }
        for part in self.to_be_shown(cow, part, Some(start))? {
            self.show_bytes(cow, part, Some(start))?;
        }
        Ok(())
    }
}

/// Reserves addresses.
pub(super) fn reserve(at: usize, len: usize, flags: i32) -> Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
    let got = map_at(at, len, libc::PROT_NONE, flags, -1, 0)?;
    if at != 0 && got != at {
        unmap(got..got + len); // the kernel does not know `MAP_FIXED_NOREPLACE`
        return Err(Error::new(libc::ENOMEM));
    }
    Ok(got)
}

pub(super) fn move_pages(from: usize, len: usize, to: usize) -> Result<()> {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: a map of the program's goes where it asked, or to addresses reserved for it.
    let moved = check(unsafe { syscall(libc::SYS_mremap, [from, len, len, flags, to, 0]) });
    match moved {
        // The kernel has more than one mapping there: move each half separately.
        Err(error) if error.errno() == libc::EFAULT && len > PAGE as usize => {
            let half = (len / 2).next_multiple_of(PAGE as usize);
            move_pages(from, half, to)?;
            move_pages(from + half, len - half, to + half).inspect_err(|_| {
                let _ = move_pages(to, half, from); // if this fails, too, that half is lost
            })
        }
        moved => moved.map(drop),
    }
}
