//! The program's own maps of an atomic file: made, moved, protected, synced and given up.

use super::memory::{PAGE, PIECE, Shadow, check_size, fill, new_memory};
use super::ranges::{self, MappedRange, keys};
use super::watch;
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::{AtomicFile, PLAIN};
use crate::file::process::disowned;
use crate::sys::{check, syscall};
use core::sync::atomic::Ordering;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// What `mmap(2)` was asked for.
pub(crate) struct MapRequest {
    pub addr: usize,
    pub length: usize,
    pub prot: i32,
    pub flags: i32,
    /// The program's descriptor.
    pub fd: RawFd,
    pub offset: i64,
    /// The descriptor is open for writing: the map may be, or become, writable.
    pub may_store: bool,
}

impl MapRequest {
    fn is_shared(&self) -> bool {
        self.flags & libc::MAP_TYPE != libc::MAP_PRIVATE
    }

    fn end(&self, start: usize) -> usize {
        start + self.length.next_multiple_of(PAGE)
    }

    /// Asks the kernel, for a map of `fd`.
    fn carry_out(&self, fd: RawFd) -> Result<usize> {
        map_at(self.addr, self.length, self.prot, self.flags & !libc::MAP_SYNC, fd, self.offset)
    }

    fn range(&self, start: usize, key: (u64, u64), shadow: bool) -> MappedRange {
        MappedRange {
            start,
            end: self.end(start),
            key,
            offset: self.offset as u64,
            prot: self.prot,
            may_store: self.may_store,
            stores: self.may_store && self.prot & libc::PROT_WRITE != 0,
            shadow,
            watched: false,
            whole: true,
        }
    }
}

/// What became of it.
pub(crate) enum Mapped {
    At(usize),
    /// It can't be done with the file atomic.
    HandBack,
}

fn map_at(addr: usize, length: usize, prot: i32, flags: i32, fd: RawFd, offset: i64) -> Result<usize> {
    // SAFETY: what the program asked for, or a map of ours in the place of one of the program's with the same bytes.
    check(unsafe {
        syscall(libc::SYS_mmap, [addr, length, prot as usize, flags as usize, fd as usize, offset as usize])
    })
}

/// Maps the file, as `mmap(2)`. Shared: what the program stores becomes part of the epoch, what is written shows. Private:
/// the state of now; what others write later may show or not.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` for `MAP_SYNC`; those of a first write, for a map that is writable.
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
    let _kept = file.turns.keep();
    file.arrive()?;
    if file.shadow().is_none() && !(request.is_shared() && request.range(0, file.key(), false).stores) {
        // Nobody attaches the file meanwhile: then the kernel's file is what there is.
        let inner = file.inner();
        let is_plain = file.state.load(Ordering::Acquire) == PLAIN && file.shadow().is_none();
        if is_plain && file.turns.is_quiet().is_some() {
            let start = request.carry_out(request.fd)?;
            if request.is_shared() {
                ranges::lock().add(request.range(start, file.key(), false));
            }
            return Ok(Mapped::At(start));
        }
        drop(inner);
    }
    let too_large = |e: &Error| e.errno() == libc::ENOMEM;
    // Who can't have the turn gets what others have written until now.
    if !request.is_shared() || file.shadow().is_none() && !file.fds.has_writable() {
        let memory = match file.shadow() {
            Some(shadow) => shadow.descriptor(false),
            None => snapshot(file, request),
        };
        return match memory {
            Ok(memory) => Ok(Mapped::At(request.carry_out(memory.as_raw_fd())?)),
            Err(e) if too_large(&e) => Ok(Mapped::HandBack),
            Err(e) => Err(e),
        };
    }
    let shadow = match file.need_shadow_for_good() {
        Ok(Some(shadow)) => shadow,
        Ok(None) => return Ok(Mapped::HandBack),
        Err(e) if too_large(&e) => return Ok(Mapped::HandBack),
        Err(e) => return Err(e),
    };
    let start = request.carry_out(shadow.descriptor(request.may_store)?.as_raw_fd())?;
    let mut range = request.range(start, file.key(), true);
    watch::begin(&mut range);
    ranges::lock().add(range);
    file.need_shadow()?; // filled again, if the turn was given before it was kept
    Ok(Mapped::At(start))
}

/// The bytes that a private map is to show, in memory of its own.
fn snapshot(file: &AtomicFile, request: &MapRequest) -> Result<OwnedFd> {
    let size = file.size();
    let start = request.offset as u64;
    let end = start.saturating_add(request.length as u64).min(size);
    check_size(end.saturating_sub(start))?;
    let memory = new_memory(size)?;
    // SAFETY: the piece is ours.
    fill(&memory, start..end, |at, piece| unsafe { file.read(at, &[UserBuf::of(piece)]) })?;
    Ok(memory)
}

/// Runs `change`, which puts something else or nothing at `addr..addr + length`: what maps of atomic files were there are gone.
/// Where it fails, those stay that are still there. No lock may be held: a file's last map closes it.
pub(crate) fn discard(addr: usize, length: usize, change: impl FnOnce() -> isize) -> isize {
    let Some(end) = end_of(addr, length).filter(|_| ranges::any() && addr.is_multiple_of(PAGE) && length > 0) else {
        return change();
    };
    // Before: the address may be another's at once.
    let mut gone = ranges::lock().take(addr, end);
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
    for key in keys(&gone) {
        if let Some(file) = AtomicFile::find(key.0, key.1)
            && let Err(error) = file.maps_are_gone()
        {
            crate::sys::notice(&format!("{}: {error}", file.path().to_string_lossy()));
        }
    }
    done
}

/// Whether something is mapped there.
fn is_there(range: &MappedRange) -> bool {
    // SAFETY: looks at the address space, and changes nothing.
    let looked =
        unsafe { syscall(libc::SYS_msync, [range.start, range.end - range.start, libc::MS_ASYNC as usize, 0, 0, 0]) };
    looked == 0
}

/// Where `length` bytes from `addr` on end, in whole pages; `None`: no address space is that large.
fn end_of(addr: usize, length: usize) -> Option<usize> {
    (length <= isize::MAX as usize).then(|| addr.saturating_add(length.next_multiple_of(PAGE)))
}

/// `msync(2)` with `MS_SYNC`: SYNC of every file that is mapped there.
///
/// # Errors
/// Those of [`AtomicFile::sync`]. `EBUSY` in a forked child, for its parent's maps.
pub(crate) fn msync(addr: usize, length: usize) -> Result<()> {
    let end = addr.saturating_add(length);
    let there: Vec<_> = ranges::lock().touching(addr, end).filter(|range| range.shadow).cloned().collect();
    keys(&there).iter().try_for_each(|key| AtomicFile::find(key.0, key.1).ok_or_else(disowned)?.sync())
}

/// `mprotect(2)`, which `kernel` carries out.
///
/// # Errors
/// Those of a first write, for what becomes writable. `EACCES` where the program may not write.
pub(crate) fn protect(addr: usize, length: usize, prot: i32, kernel: impl FnOnce() -> isize) -> Result<isize> {
    let Some(end) = end_of(addr, length) else { return Ok(kernel()) };
    if prot & libc::PROT_WRITE != 0 {
        let mut there: Vec<_> = ranges::lock().touching(addr, end).cloned().collect();
        if there.iter().any(|range| !range.may_store) {
            return Err(Error::new(libc::EACCES)); // the kernel's descriptor may be wider than the program's
        }
        there.retain(|range| !range.shadow);
        for key in keys(&there) {
            if let Some(file) = AtomicFile::find(key.0, key.1) {
                file.need_shadow()?;
            }
        }
    }
    let mut ranges = ranges::lock();
    if prot & libc::PROT_WRITE != 0 {
        for range in ranges.inside(addr, end).filter(|range| !range.stores) {
            range.stores = true;
            watch::begin(range);
        }
    }
    let done = kernel();
    if done >= 0 {
        ranges.inside(addr, end).for_each(|range| range.prot = prot);
    }
    Ok(done)
}

/// `mremap(2)`, which `kernel` carries out; `target` is where it is to go, if that was said.
pub(crate) fn remap(
    (addr, old_length): (usize, usize),
    length: usize,
    (flags, target): (i32, Option<usize>),
    kernel: impl FnOnce() -> isize,
) -> isize {
    let (Some(old_end), Some(_)) = (end_of(addr, old_length), end_of(0, length)) else { return kernel() };
    let carry_out = || {
        let mut ranges = ranges::lock();
        // An old length of zero makes one more map of the same.
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

/// Maps of the file itself become maps of its shadow, which has the same bytes.
pub(super) fn replace(key: (u64, u64), descriptor: impl Fn(bool) -> Result<OwnedFd>) -> Result<()> {
    let mut ranges = ranges::lock();
    for range in ranges.of(key).filter(|range| !range.shadow) {
        let memory = descriptor(range.may_store)?;
        put_at(range, memory.as_raw_fd())?;
        range.shadow = true;
    }
    Ok(())
}

fn put_at(range: &MappedRange, fd: RawFd) -> Result<()> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    map_at(range.start, range.end - range.start, range.prot, flags, fd, range.offset as i64).map(|_| ())
}

impl AtomicFile {
    /// The file lost its name, and is the kernel's from now on: so are its maps, with what was stored in them. What another
    /// thread stores at this very moment may be lost, with all of the file, at the next crash at the latest.
    pub(in crate::file) fn maps_to_kernel(&self) -> Result<()> {
        let Some(shadow) = self.shadow() else { return Ok(()) };
        let mut ranges = ranges::lock();
        let (stored, serial) = ranges.stored(self.key());
        for range in stored {
            copy_back(shadow, self, range.start, range.end.min(shadow.size()))?;
        }
        ranges.were_taken(self.key(), serial, Vec::new());
        for range in ranges.of(self.key()).filter(|range| range.shadow) {
            self.fds.with(range.may_store, |fd| put_at(range, fd.as_raw_fd()))?;
            range.shadow = false;
        }
        Ok(())
    }
}

fn copy_back(shadow: &Shadow, file: &AtomicFile, mut at: u64, end: u64) -> Result<()> {
    while at < end {
        let len = PIECE.min((end - at) as usize);
        let base = shadow.at(at, len)?;
        let done = file.kernel_write(at, &[UserBuf { base, len }])?;
        at += done as u64;
    }
    Ok(())
}
