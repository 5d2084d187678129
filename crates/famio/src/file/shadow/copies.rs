//! Copies into a map and out of one (`nvmemcpy` and the like). They use the library's own map of the shadow, which is
//! not watched and so does not fault once per epoch, note what they store (`file::state::shadow_notes`), and take no
//! lock.

use super::Shadow;
use super::places::{self, End, Slot};
use crate::error::{Error, Result};
use crate::file::Call;
use crate::file::atomic::{AtomicFile, disowned};
use crate::map::guard;
use crate::rule::{Rule, holds};
use std::sync::Arc;

/// The source of a copy: bytes at an address, or one repeated byte.
#[derive(Clone, Copy)]
pub(crate) enum Bytes {
    From(*const u8),
    Of(u8),
}

impl Bytes {
    /// The bytes after the first `len`.
    fn skip(self, len: usize) -> Self {
        match self {
            Bytes::From(at) => Bytes::From(at.wrapping_add(len)),
            of => of,
        }
    }

    /// Stores them. Source and target may overlap.
    ///
    /// # Safety
    /// As `memmove` and `memset`.
    #[inline]
    unsafe fn put(self, to: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Bytes::From(from) => libc::memmove(to.cast(), from.cast(), len),
                Bytes::Of(byte) => libc::memset(to.cast(), byte.into(), len),
            }
        };
    }

    /// Stores them to our memory, guarded.
    ///
    /// # Safety
    /// `to` is ours; a bad source is a fault.
    #[inline]
    unsafe fn put_guarded(self, to: *mut u8, len: usize) -> core::result::Result<(), guard::Fault> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Bytes::From(from) => guard::copy_overlapping(to, from, len),
                Bytes::Of(_) => guard::run_on(to, len, || self.put(to, len)),
            }
        }
    }
}

/// The error for a piece of a map beyond the end of the file.
#[cold]
fn beyond() -> Error {
    Error::new(libc::ENXIO)
}

/// Bytes from `address` on that lie in the slot's map, or in its gap.
#[inline]
fn run(slot: &Slot, address: usize) -> usize {
    (if address < slot.end { slot.end } else { slot.next }) - address
}

/// The file whose map lies at `address`, if there is one.
#[inline]
fn map_at(slot: &Slot, address: usize) -> Option<&AtomicFile> {
    if address < slot.end { slot.file.as_deref() } else { None }
}

#[inline]
fn in_file(slot: &Slot, address: usize) -> u64 {
    slot.offset + (address - slot.start) as u64
}

impl AtomicFile {
    /// The shadow, while it is mapped.
    #[inline]
    fn mapped_shadow(&self) -> Option<&Shadow> {
        self.shadow().filter(|_| !self.is_demoted())
    }

    /// Checks that `len` bytes can be read in a map.
    #[inline]
    fn may_load(&self, offset: u64, len: usize) -> Result<()> {
        let size = match self.mapped_shadow() {
            Some(shadow) => shadow.size(),
            None => self.size(),
        };
        if offset.saturating_add(len as u64) <= size { Ok(()) } else { Err(beyond()) }
    }

    /// Bytes of the slot's map that can be loaded now.
    #[cold]
    fn loadable(&self, slot: &Slot) -> usize {
        let size = self.mapped_shadow().map_or_else(|| self.size(), Shadow::size);
        usize::try_from(size.saturating_sub(slot.offset)).unwrap_or(usize::MAX).min(slot.end - slot.start)
    }

    /// Stores at `offset` through a map, which the program has at `at`; part of the open epoch. `copies`: the program
    /// may only read there.
    ///
    /// # Errors
    /// `EBUSY`: in a forked child, where the parent would not know of a copy to such a map.
    /// `ENXIO`: the range ends beyond the end of the file; nothing is stored, or the part before the end. `ENOMEM`:
    /// no memory is left. `EACCES`: a private map is protected against stores.
    ///
    /// # Safety
    /// As `memmove` and `memset`; a fault in the source is the caller's.
    #[inline]
    pub(crate) unsafe fn store(&self, offset: u64, at: *mut u8, bytes: Bytes, len: usize, copies: bool) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.store_from(None, offset, at, bytes, len, copies) }
    }

    /// As [`store`](Self::store). `from_file`: where the file itself has the bytes, if it has. Inlined, so that the usual
    /// copy, of other bytes, has code of its own.
    ///
    /// # Safety
    /// As [`store`](Self::store).
    #[inline(always)]
    unsafe fn store_from(
        &self,
        from_file: Option<u64>,
        offset: u64,
        at: *mut u8,
        bytes: Bytes,
        len: usize,
        copies: bool,
    ) -> Result<()> {
        if copies && self.is_disowned() {
            return Err(disowned());
        }
        if let Some(shadow) = self.mapped_shadow() {
            if offset.saturating_add(len as u64) > shadow.size() {
                return Err(beyond());
            }
            if shadow.cow_maps().is_some() {
                // By the map itself: such a store is found like any other.
                // SAFETY: as below.
                match unsafe { bytes.put_guarded(at, len) } {
                    Err(fault) if fault.is_in(at, len) => {
                        let cut = offset.saturating_add(len as u64) > shadow.size();
                        // The program may have protected the map by a system call of its own.
                        let errno = if fault.signal == libc::SIGSEGV { libc::EACCES } else { libc::ENOMEM };
                        return Err(if cut { beyond() } else { Error::new(errno) });
                    }
                    Err(_) => {} // again, as below
                    Ok(()) => return Ok(()),
                }
            }
            if let Some(notes) = shadow.notes_for_copy() {
                // Both ends by our map, in which they overlap exactly where their bytes are the same.
                let (ours, bytes) = match from_file {
                    Some(from) => {
                        let [ours, from] = shadow.at_both([offset, from], len)?;
                        (ours, Bytes::From(from))
                    }
                    None => (shadow.at(offset, len)?, bytes),
                };
                shadow.touch(offset, len);
                if holds(Rule::CopiesAreNoted) && !notes.note(offset, len) {
                    return Err(Error::new(libc::ENOMEM));
                }
                // SAFETY: below the shadow's size, or a fault if it was cut meanwhile; the caller's promise for the
                // rest.
                if let Err(fault) = unsafe { bytes.put_guarded(ours, len) } {
                    if fault.is_in(ours, len) {
                        let cut = offset.saturating_add(len as u64) > shadow.size();
                        return Err(if cut { beyond() } else { Error::new(libc::ENOMEM) });
                    }
                    // SAFETY: a fault of the caller's, as in `memcpy`: again, now unguarded.
                    unsafe { bytes.put(ours, len) };
                }
                if holds(Rule::CopiesAreNoted) {
                    notes.note(offset, len);
                }
                if !self.is_demoted() {
                    return Ok(());
                }
                // Demoted meanwhile: the map is the kernel's.
            }
        }
        // SAFETY: the caller's promise.
        unsafe { bytes.put(at, len) };
        Ok(())
    }
}

/// Copies `len` bytes to `to`. Each side may lie in maps of atomic files; bytes stored to a map are part of its
/// file's open epoch. Sides may overlap, as in `memmove`, also as two maps of the same bytes.
///
/// # Errors
/// `ENXIO`: a map is used beyond the end of its file. `EACCES`: the map is not writable. Nothing is stored then; with
/// the errors of [`AtomicFile::store`], a part may be.
///
/// # Safety
/// As `memmove` and `memset`.
#[inline]
pub(crate) unsafe fn copy(to: *mut u8, bytes: Bytes, len: usize) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let call = Call::begin();
    let Some(target) = places::find(&call, to as usize, End::To) else {
        drop(call); // a fault may be the program's to handle, by a jump out of here
        // SAFETY: there are no maps. The caller's promise.
        unsafe { bytes.put(to, len) };
        return Ok(());
    };
    let source = match bytes {
        Bytes::From(from) => places::find(&call, from as usize, End::From).map(|slot| (slot, from as usize)),
        Bytes::Of(_) => None,
    };
    if len > run(target, to as usize) || source.is_some_and(|(slot, from)| len > run(slot, from)) {
        // SAFETY: the caller's promise.
        return unsafe { copy_pieces(&call, to, bytes, len) };
    }
    if map_at(target, to as usize).is_none() && source.is_none_or(|(slot, from)| map_at(slot, from).is_none()) {
        drop(call); // as above
        // SAFETY: neither side is a map. The caller's promise.
        unsafe { bytes.put(to, len) };
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { copy_one(target, source, to, bytes, len) }
}

/// Copies a range that lies in one map, or in none, at both ends.
///
/// # Safety
/// As [`copy`].
#[inline]
unsafe fn copy_one(target: &Slot, source: Option<(&Slot, usize)>, to: *mut u8, bytes: Bytes, len: usize) -> Result<()> {
    let mut from_file = None;
    if let Some((slot, from)) = source
        && let Some(file) = map_at(slot, from)
    {
        let offset = in_file(slot, from);
        file.may_load(offset, len)?;
        if map_at(target, to as usize).is_some_and(|other| core::ptr::eq(file, other))
            && let Some(shadow) = file.mapped_shadow()
            && shadow.notes_for_copy().is_some()
        {
            shadow.touch(offset, len);
            from_file = Some(offset);
        } else if let Some(ahead) = &slot.ahead {
            ahead.touch_pages(from - slot.start, len, || file.loadable(slot));
        }
    }
    let Some(file) = map_at(target, to as usize) else {
        // SAFETY: the caller's promise.
        unsafe { bytes.put(to, len) };
        return Ok(());
    };
    if !target.changes {
        return Err(Error::new(libc::EACCES));
    }
    let offset = in_file(target, to as usize);
    // SAFETY: the caller's promise.
    unsafe {
        match from_file {
            Some(_) => file.store_from(from_file, offset, to, bytes, len, target.copies),
            None => file.store(offset, to, bytes, len, target.copies),
        }
    }
}

/// Copies across the ends of maps: first checks everything, then copies.
///
/// # Safety
/// As [`copy`].
#[cold]
#[inline(never)]
unsafe fn copy_pieces(call: &Call, to: *mut u8, bytes: Bytes, len: usize) -> Result<()> {
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < len {
        let at = to as usize + done;
        let Some(target) = places::find(call, at, End::To) else { return Err(Error::new(libc::EFAULT)) };
        let mut n = (len - done).min(run(target, at));
        let mut source = None;
        if let Bytes::From(from) = bytes {
            let from = from as usize + done;
            source = places::find(call, from, End::From).map(|slot| (slot, from));
            n = source.map_or(n, |(slot, from)| n.min(run(slot, from)));
        }
        if let Some((slot, from)) = source
            && let Some(file) = map_at(slot, from)
        {
            file.may_load(in_file(slot, from), n)?;
        }
        if let Some(file) = map_at(target, at) {
            if !target.changes {
                return Err(Error::new(libc::EACCES));
            }
            file.may_load(in_file(target, at), n)?;
        }
        pieces.push((target, source, done, n));
        done += n;
    }
    // As `memmove`: from the end if the beginning would overwrite the source.
    let backwards =
        matches!(bytes, Bytes::From(from) if (from as usize) < to as usize && to as usize - (from as usize) < len);
    if backwards {
        pieces.reverse();
    }
    for (target, source, done, n) in pieces {
        // SAFETY: the caller's promise.
        unsafe { copy_one(target, source, to.wrapping_add(done), bytes.skip(done), n) }?;
    }
    Ok(())
}

/// The file whose map has `len` bytes at `address`, and their offset in it.
///
/// # Errors
/// `EINVAL`: no map of an atomic file has all of them. `EACCES`: the map is not writable. `ENXIO`: they lie beyond
/// the end of the file.
pub(crate) fn file_at(address: usize, len: usize) -> Result<(Arc<AtomicFile>, u64)> {
    let call = Call::begin();
    let slot = places::find(&call, address, End::To).filter(|slot| address < slot.end && len <= slot.end - address);
    let Some((slot, file)) = slot.and_then(|slot| Some((slot, slot.file.as_ref()?))) else {
        return Err(Error::with(libc::EINVAL, "no map of an atomic file has these bytes"));
    };
    if !slot.changes {
        return Err(Error::new(libc::EACCES));
    }
    let offset = in_file(slot, address);
    file.may_load(offset, len)?;
    Ok((file.clone(), offset))
}

/// Bytes of the string at `from` with its terminator.
///
/// # Errors
/// `ENXIO`: it lies in a map, and is not terminated before the end of the file.
///
/// # Safety
/// As `strlen`.
pub(crate) unsafe fn string_length(from: *const u8) -> Result<usize> {
    let call = Call::begin();
    let mut done = 0;
    loop {
        let at = from as usize + done;
        let found = places::find(&call, at, End::From).and_then(|slot| Some((slot, map_at(slot, at)?)));
        let Some((slot, file)) = found else {
            drop(call); // as in `copy`
            // SAFETY: the caller's promise.
            return Ok(done + unsafe { libc::strlen(from.wrapping_add(done).cast()) } + 1);
        };
        let size = file.mapped_shadow().map_or_else(|| file.size(), Shadow::size);
        let there = (size.saturating_sub(in_file(slot, at)).min(usize::MAX as u64) as usize).min(slot.end - at);
        // SAFETY: below the end of the file; the caller's promise.
        let length = unsafe { libc::strnlen(from.wrapping_add(done).cast(), there) };
        if length < there {
            return Ok(done + length + 1);
        }
        if there < slot.end - at {
            return Err(beyond());
        }
        done += there;
    }
}

/// Whether a map lies at `address`.
#[inline]
pub(crate) fn is_mapped_at(address: usize) -> bool {
    places::find(&Call::begin(), address, End::To).is_some_and(|slot| map_at(slot, address).is_some())
}
