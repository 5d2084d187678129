//! Advice about maps of atomic files: for the kernel, about their addresses; and for map-ahead, about the map itself
//! and about the library's own map of the shadow, by which bytes are copied into it.

use crate::error::{Error, Result};
use crate::file::shadow::{self, Part};
use crate::map::Advice;
use crate::sys::{check, syscall};

const PAGE: usize = 4096;

/// Advises about `len` bytes at `address`, in whole pages.
///
/// - `Sequential`: the map-ahead window is at its widest at once; its first part is mapped in the background.
/// - `WillNeed`: what the file has there is read and mapped in the background; without a background thread, before
///   this returns.
/// - `Random`: stops mapping ahead. `Normal`: mapping ahead depends on the observed accesses again.
/// - `DontNeed`: drops page tables, and what the [mapping cache](crate::map::cache) has of the file; bytes stay, and
///   the next fault finds them.
///
/// The kernel gets the same advice for the range. Windows belong to the map: one for loads by [`copy`](super::copy)
/// from this map, one for all copies into maps of the file. Source: map-ahead (HotStorage 2017), section 4.
///
/// # Errors
/// `EINVAL`: `address` is not at a page boundary. `ENOMEM`: a part of the range is not a map of an atomic file.
/// Others: the kernel's.
pub fn advise(address: usize, len: usize, advice: Advice) -> Result<()> {
    if !address.is_multiple_of(PAGE) {
        return Err(Error::new(libc::EINVAL));
    }
    let len = len.checked_next_multiple_of(PAGE).ok_or(Error::new(libc::ENOMEM))?;
    let parts = shadow::parts(address, address.saturating_add(len));
    if parts.iter().map(|part| part.len).sum::<usize>() < len {
        return Err(Error::new(libc::ENOMEM));
    }
    parts.iter().try_for_each(|part| advise_part(part, advice))
}

fn advise_part(part: &Part, advice: Advice) -> Result<()> {
    let len = match advice {
        Advice::WillNeed => part.there(),
        _ => part.len,
    };
    if len > 0 {
        let kernels = match advice {
            Advice::Normal => libc::MADV_NORMAL,
            Advice::Sequential => libc::MADV_SEQUENTIAL,
            Advice::Random => libc::MADV_RANDOM,
            Advice::WillNeed => libc::MADV_WILLNEED,
            Advice::DontNeed => libc::MADV_DONTNEED,
        };
        if advice == Advice::DontNeed {
            follow(part, advice)?; // first, so that no thread maps again what is dropped
        }
        // Dropping a copied page of a private map would lose the program's stores to it.
        if advice != Advice::DontNeed || !part.private {
            if advice == Advice::DontNeed {
                shadow::may_lose_page_tables(part.start, part.start + len);
            }
            madvise(part.start, len, kernels)?;
        }
    }
    if advice == Advice::DontNeed { Ok(()) } else { follow(part, advice) }
}

/// Applies the program's `madvise` for a range to map-ahead, for the maps of atomic files in it. Called before the
/// kernel's call for `DontNeed`, otherwise after it.
pub(crate) fn advised(start: usize, end: usize, advice: Advice) {
    for part in shadow::parts(start & !(PAGE - 1), end) {
        let _ = follow(&part, advice);
    }
}

/// Everything except the kernel's part.
fn follow(part: &Part, advice: Advice) -> Result<()> {
    let in_file = part.offset..part.offset + part.len as u64;
    part.file.advise_maps(in_file, advice);
    let len = if advice == Advice::WillNeed { part.there() } else { part.len };
    let background = part.ahead.as_ref().is_some_and(|ahead| ahead.advise(part.start - part.map, len, advice));
    if background || advice != Advice::WillNeed || !part.in_memory || len == 0 {
        return Ok(());
    }
    // Needs Linux 5.14.
    match madvise(part.start, len, libc::MADV_POPULATE_READ) {
        // The file was cut meanwhile: the rest does not exist.
        Err(e) if [libc::EINVAL, libc::EFAULT].contains(&e.errno()) => Ok(()),
        done => done,
    }
}

impl Part {
    /// The bytes of it, in whole pages, up to the end of the file.
    fn there(&self) -> usize {
        let len = self.file.size().saturating_sub(self.offset).min(self.len as u64) as usize;
        len.next_multiple_of(PAGE)
    }
}

fn madvise(start: usize, len: usize, advice: i32) -> Result<()> {
    // SAFETY: a map of a file; changes none of its bytes.
    check(unsafe { syscall(libc::SYS_madvise, [start, len, advice as usize, 0, 0, 0]) }).map(|_| ())
}
