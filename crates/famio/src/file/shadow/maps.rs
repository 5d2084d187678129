//! The program's maps of an atomic file: made, moved, protected, synced and unmapped.

use super::cow;
use super::loads::Loads;
use super::mapped_range::MappedRange;
use super::ranges::{self, keys};
use super::request::MapRequest;
use super::watch;
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::disowned;
use crate::file::atomic::{AtomicFile, PLAIN};
use crate::file::state::cow_maps::second_map;
use crate::file::state::shadow_pages::{PAGE, check_size, fill, new_memory, size_limit};
use crate::file::state::shadow_slot::Changing;
use crate::index::KERNELS;
use crate::map::ahead::Ahead;
use crate::sys::{InternalFd, syscall};
use core::sync::atomic::Ordering;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The outcome.
pub(crate) enum Mapped {
    At(usize),
    /// It is impossible while the file is atomic: demote it.
    Demote,
}

/// Maps the file, as `mmap(2)`. Shared: stores of the program become part of the epoch, and writes show. Private: the
/// present bytes; later writes of others may show or not.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` for `MAP_SYNC`; `EBUSY` in a forked child; for a writable map those of a first write.
pub(crate) fn map(file: &Arc<AtomicFile>, request: &MapRequest) -> Result<Mapped> {
    if request.flags & libc::MAP_TYPE == libc::MAP_SHARED_VALIDATE && request.flags & libc::MAP_SYNC != 0 {
        return Err(Error::new(libc::EOPNOTSUPP));
    }
    if request.length == 0 || !(request.offset as usize).is_multiple_of(PAGE) {
        return Err(Error::new(libc::EINVAL));
    }
    if request.length > isize::MAX as usize {
        return Err(Error::new(libc::ENOMEM));
    }
    if request.offset < 0 {
        return Err(Error::new(libc::EOVERFLOW));
    }
    AtomicFile::may_lock()?;
    if file.is_disowned() {
        return Err(disowned()); // its memory is the parent's
    }
    file.grow_no_more()?;
    if let Some(start) = file.map_unattached(request)? {
        return Ok(Mapped::At(start));
    }
    let _in_progress = file.ownership.begin_map();
    match file.become_member() {
        // A process that may only read the file sees the kernel's bytes, as a program without this library does.
        Err(e) if file.is_mere_reader(&e) => return Ok(Mapped::At(request.carry_out(request.fd)?)),
        attached => attached?,
    }
    file.join_shadow()?;
    file.look_after_dead()?;
    if file.shadow().is_none() && !(request.is_shared() && request.range(0, file, false).changes()) {
        // No thread or other process attaches the file meanwhile, so the kernel's file is complete.
        let inner = file.inner();
        let mapping = file.ownership.begin_kernel_map();
        if request.is_shared() {
            file.ownership.membership.set_maps(KERNELS, true);
        }
        let is_plain = file.state.load(Ordering::Acquire) == PLAIN && file.shadow().is_none();
        if is_plain && file.quiet().is_some() && file.ownership.membership.shadow().is_none() {
            let start = request.carry_out(request.fd)?;
            if request.is_shared() {
                let mut range = request.range(start, file, false);
                Loads::begin(&mut range);
                ranges::lock().add(range);
                // To notice processes that change the file.
                if file.is_wanted.load(Ordering::Acquire) {
                    crate::file::base::background_wakeup::watch_members();
                } else {
                    crate::file::base::background_wakeup::start();
                }
            }
            return Ok(Mapped::At(start));
        }
        drop(inner);
        drop(mapping);
        file.publish_maps();
    }
    let too_large = |e: &Error| e.errno() == libc::ENOMEM;
    if request.is_shared() && file.shadow().is_none() && !file.fds.has_writable() {
        match file.share_as_reader() {
            Err(e) if !too_large(&e) && e.errno() != libc::ENOSPC && !file.ownership.has_view(&file.fds) => {
                return Err(e);
            }
            _ => {}
        }
    }
    // A process that cannot be the owner gets what others have written until now.
    if !request.is_shared() || file.shadow().is_none() && !file.fds.has_writable() {
        let memory = match file.shadow() {
            Some(shadow) if shadow.cow_maps().is_none() => shadow.descriptor(false),
            _ => snapshot(file, request),
        };
        return match memory {
            Ok(memory) => Ok(Mapped::At(request.carry_out(memory.as_raw_fd())?)),
            Err(e) if too_large(&e) => Ok(Mapped::Demote),
            Err(e) => Err(e),
        };
    }
    if request.range(0, file, true).changes() {
        file.own_for_stores()?;
    }
    let shadow = match file.need_shadow_for_good() {
        Ok(Some(shadow)) => shadow,
        Ok(None) => return Ok(Mapped::Demote),
        Err(e) if too_large(&e) => return Ok(Mapped::Demote),
        Err(e) => return Err(e),
    };
    let start = match shadow.cow_maps() {
        // Copies to private pages are found like stores.
        Some(cow) => match file.map_private(&request.for_stores(), shadow, cow)? {
            Some(start) => start,
            None => return Ok(Mapped::Demote),
        },
        None => {
            let start = request.carry_out(shadow.descriptor(request.may_store)?.as_raw_fd())?;
            let mut range = request.range(start, file, true);
            watch::begin_new(&mut range, shadow.size(), |at| shadow.next_data(at));
            Loads::begin(&mut range);
            ranges::lock().add(range);
            start
        }
    };
    file.publish_maps();
    // If a process is reaping a dead member, and has not seen that this process may store, it has finished when the
    // program gets the map.
    let _ = file.look_after_dead();
    crate::file::base::background_wakeup::watch_members(); // others may store there and die, which shows without a call
    file.need_shadow()?; // filled again, if ownership changed before the map was announced
    Ok(Mapped::At(start))
}

/// Memory with the bytes that a private map is to show.
fn snapshot(file: &AtomicFile, request: &MapRequest) -> Result<InternalFd> {
    let size = file.size();
    let start = request.offset as u64;
    let end = start.saturating_add(request.length as u64).min(size);
    check_size(end.saturating_sub(start), file.map_limit().max(size_limit()))?;
    let memory = new_memory(size)?;
    // SAFETY: the piece is ours.
    fill(&memory, start..end, |at, piece| unsafe { file.read(at, &[UserBuf::of(piece)]) })?;
    Ok(memory)
}

/// Runs `change`, which replaces or unmaps `addr..addr + length`, and forgets maps of atomic files there. If it
/// fails, maps that are still there stay. The caller holds no lock: the last map of a file closes it.
pub(crate) fn discard(addr: usize, length: usize, change: impl FnOnce() -> isize) -> isize {
    let (done, closed) = discard_telling(addr, length, change);
    if let Err(error) = closed {
        crate::sys::notice(&error.to_string());
    }
    done
}

/// As [`discard`]; also returns the error of closing a file that was open only for its maps.
pub(crate) fn discard_telling(addr: usize, length: usize, change: impl FnOnce() -> isize) -> (isize, Result<()>) {
    let Some(end) = end_of(addr, length).filter(|_| ranges::any() && addr.is_multiple_of(PAGE) && length > 0) else {
        return (change(), Ok(()));
    };
    let private = Private::at(addr, end);
    private.take_stores();
    // Before the change: the address may be reused at once.
    let mut gone = ranges::lock().take(addr, end);
    drop(private);
    let done = change();
    if (-4095..0).contains(&done) {
        let mut ranges = ranges::lock();
        gone.retain(|range| {
            let stays = is_there(range);
            if stays {
                ranges.add(range.clone());
            }
            !stays
        });
    }
    let mut closed = Ok(());
    for key in keys(&gone) {
        if let Some(file) = AtomicFile::find(key.0, key.1) {
            let gone = file.maps_are_gone().map_err(|e| file.named(e));
            closed = closed.and(gone);
        }
    }
    (done, closed)
}

/// The files with private maps in a range. While this lives, no thread lays them out, compares them or takes copies
/// from them.
struct Private {
    locked: Vec<Changing<'static>>,
    files: Vec<Arc<AtomicFile>>,
}

impl Private {
    fn at(start: usize, end: usize) -> Self {
        if !ranges::any_private() {
            return Self { locked: Vec::new(), files: Vec::new() };
        }
        let there: Vec<_> = ranges::lock().touching(start, end).filter(|range| range.cow).cloned().collect();
        let files: Vec<_> =
            keys(&there).into_iter().filter_map(|(device, inode)| AtomicFile::find(device, inode)).collect();
        // SAFETY: the files live longer than the locks, which are released first.
        let locked = files.iter().map(|file| unsafe { &*Arc::as_ptr(file) }.shadow.lock()).collect();
        Self { locked, files }
    }

    /// The maps are about to go or to become unreadable: takes their stores into the epoch.
    fn take_stores(&self) {
        debug_assert_eq!(self.locked.len(), self.files.len());
        self.files.iter().for_each(|file| file.take_before_maps_go());
    }
}

/// The parts of `start..end` outside of private maps; `None`: there are no private maps in it.
pub(crate) fn outside_private(start: usize, end: usize) -> Option<Vec<core::ops::Range<usize>>> {
    let ranges = ranges::lock();
    let mut private: Vec<_> = ranges.touching(start, end).filter(|range| range.cow).collect();
    if private.is_empty() {
        return None;
    }
    private.sort_unstable_by_key(|range| range.start);
    let (mut outside, mut at) = (Vec::new(), start);
    for range in private {
        outside.push(at..range.start.max(at));
        at = range.end;
    }
    outside.push(at..end.max(at));
    outside.retain(|part| !part.is_empty());
    Some(outside)
}

/// A part of a map of an atomic file.
pub(crate) struct Part {
    pub start: usize,
    pub len: usize,
    pub offset: u64,
    /// It is memory, so nothing has to be read in.
    pub in_memory: bool,
    /// It is private: the kernel must not drop its pages.
    pub private: bool,
    pub file: Arc<AtomicFile>,
    /// Map-ahead of its map, and where that map begins.
    pub ahead: Option<Arc<Ahead>>,
    pub map: usize,
}

/// The parts of maps in `start..end`, in order.
pub(crate) fn parts(start: usize, end: usize) -> Vec<Part> {
    let ranges = ranges::lock();
    let part = |range: &MappedRange| {
        let (from, to) = (range.start.max(start), range.end.min(end));
        let offset = range.offset + (from - range.start) as u64;
        let (file, ahead) = (range.file.0.clone()?, range.ahead.get());
        let (in_memory, private) = (range.shadow && !range.cow, range.cow);
        Some(Part { start: from, len: to - from, offset, in_memory, private, file, ahead, map: range.start })
    };
    let mut parts: Vec<Part> = ranges.touching(start, end).filter_map(part).collect();
    drop(ranges);
    parts.sort_unstable_by_key(|part| part.start);
    parts
}

/// The error for a map for which the file would be demoted if the program had made it itself.
pub(crate) fn too_large(file: &AtomicFile) -> Error {
    let path = file.path().to_string_lossy();
    let what = format!(
        "{path}: its map would take more than what map-memory allows (by default a quarter of this machine's memory); \
         map no file so large for writing"
    );
    Error::with(libc::ENOMEM, what)
}

/// Whether there is a mapping at the range.
fn is_there(range: &MappedRange) -> bool {
    // SAFETY: looks at the address space without changing it.
    let looked =
        unsafe { syscall(libc::SYS_msync, [range.start, range.end - range.start, libc::MS_ASYNC as usize, 0, 0, 0]) };
    looked == 0
}

/// The end of `length` bytes from `addr` on, in whole pages; `None`: larger than any address space.
fn end_of(addr: usize, length: usize) -> Option<usize> {
    (length <= isize::MAX as usize).then(|| addr.saturating_add(length.next_multiple_of(PAGE)))
}

/// `msync(2)` with `MS_SYNC`: a SYNC of every file mapped there.
///
/// # Errors
/// Those of [`AtomicFile::sync`]. `EBUSY` in a forked child, for its parent's maps.
pub(crate) fn msync(addr: usize, length: usize) -> Result<()> {
    let end = addr.saturating_add(length);
    let there: Vec<_> = ranges::lock().touching(addr, end).filter(|range| range.shadow).cloned().collect();
    keys(&there).iter().try_for_each(|key| AtomicFile::find(key.0, key.1).ok_or_else(disowned)?.sync())
}

/// `mprotect(2)`; `kernel` makes the system call.
///
/// # Errors
/// Those of a first write, for maps that become writable: of the kernel's file, or of a file of a group. `EACCES`: the
/// program may not write. `EBUSY` in a forked child, for its parent's maps.
pub(crate) fn protect(addr: usize, length: usize, prot: i32, kernel: impl FnOnce() -> isize) -> Result<isize> {
    let Some(end) = end_of(addr, length) else { return Ok(kernel()) };
    let (mut there, mut files) = (Vec::new(), Vec::new());
    if prot & libc::PROT_WRITE != 0 {
        there.extend(ranges::lock().touching(addr, end).cloned());
        if there.iter().any(|range| !range.may_store) {
            return Err(Error::new(libc::EACCES)); // the kernel's descriptor may allow more than the program's
        }
        there.retain(|range: &MappedRange| !range.stores);
        if there.iter().any(|range| range.key == ranges::NOBODYS) {
            return Err(disowned()); // the parent does not know that the child stores there
        }
        files = keys(&there).into_iter().filter_map(|(device, inode)| AtomicFile::find(device, inode)).collect();
    }
    let _in_progress: Vec<_> = files.iter().map(|file| file.ownership.begin_map()).collect(); // until their maps say that they store
    for file in &files {
        file.own_for_stores()?;
        let is_kernels = there.iter().any(|range| range.key == file.key() && !range.shadow);
        if is_kernels && file.need_shadow()?.is_some() {
            file.kernels_maps_to_shadow()?; // no store may reach the kernel's file
        }
    }
    let private = Private::at(addr, end);
    if prot & libc::PROT_READ == 0 {
        private.take_stores();
    }
    if prot & libc::PROT_WRITE != 0 && has_second_map(addr, end) {
        return Err(second_map());
    }
    let mut changed = Vec::new();
    let mut ranges = ranges::lock();
    if prot & libc::PROT_WRITE != 0 {
        for range in ranges.inside(addr, end).filter(|range| !range.stores) {
            (range.stores, range.copies) = (true, false);
            watch::begin(range);
            if !range.cow {
                Loads::begin(range);
            }
            changed.push(range.key);
        }
    }
    drop(ranges);
    for (device, inode) in changed {
        if let Some(file) = AtomicFile::find(device, inode) {
            file.publish_maps(); // before a store
            file.look_after_dead()?; // as in `map`: a process that reaps may not have seen that
        }
    }
    let mut ranges = ranges::lock();
    let done = kernel();
    if done >= 0 {
        ranges.inside(addr, end).for_each(|range| range.prot = prot);
    }
    drop((ranges, private));
    Ok(done)
}

/// Whether bytes of private maps there are also in another map.
fn has_second_map(start: usize, end: usize) -> bool {
    if !ranges::any_private() {
        return false;
    }
    let ranges = ranges::lock();
    let there: Vec<_> = ranges.touching(start, end).filter(|range| range.cow && !range.stores).collect();
    there.iter().any(|one| {
        let same = |other: &&MappedRange| other.key == one.key && other.cow && other.start != one.start;
        let (from, to) = (one.in_file().start, one.in_file().end);
        ranges
            .touching(0, usize::MAX)
            .filter(same)
            .any(|other| other.in_file().start < to && from < other.in_file().end)
    })
}

/// `mremap(2)`; `kernel` makes the system call. `target`: the new address, if given.
pub(crate) fn remap(
    (addr, old_length): (usize, usize),
    length: usize,
    (flags, target): (i32, Option<usize>),
    kernel: impl FnOnce() -> isize,
) -> isize {
    let (Some(old_end), Some(_)) = (end_of(addr, old_length), end_of(0, length)) else { return kernel() };
    if !addr.is_multiple_of(PAGE) {
        return kernel();
    }
    let carry_out = || {
        if let Some(done) = cow::remap(addr, old_length, length, (flags, target)) {
            return done;
        }
        let mut ranges = ranges::lock();
        // An old length of zero makes another map of the same bytes.
        let moved = match old_length {
            0 => ranges.touching(addr, addr + 1).cloned().collect(),
            _ => ranges.take(addr, old_end),
        };
        let done = kernel();
        let stays = flags & libc::MREMAP_DONTUNMAP != 0 || done < 0;
        if stays && old_length > 0 {
            moved.iter().for_each(|range| ranges.add(range.clone()));
        }
        if done >= 0 {
            let (start, end) = (done as usize, done as usize + length.next_multiple_of(PAGE));
            for range in &moved {
                let mut there = range.clone();
                if old_length == 0 {
                    there.offset += (addr - range.start) as u64;
                    (there.start, there.end) = (start, end);
                } else {
                    there.start = start + (range.start - addr);
                    there.end = if range.end == old_end { end } else { (start + (range.end - addr)).min(end) };
                }
                if there.start < there.end {
                    watch::begin(&mut there);
                    Loads::begin(&mut there);
                }
                ranges.add(there);
            }
        }
        done
    };
    match target {
        Some(target) => discard(target, length, carry_out),
        None => carry_out(),
    }
}
