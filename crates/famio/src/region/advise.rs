//! Advice about a map of an atomic file: for the kernel on its addresses, and for map-ahead, of the map itself and of the library's
//! own map of the shadow, by which bytes are copied into it.

use crate::error::{Error, Result};
use crate::file::shadow::{self, Part};
use crate::map::Advice;
use crate::sys::{check, syscall};

const PAGE: usize = 4096;

/// Advises about `len` bytes at `address`, in whole pages.
///
/// - `Sequential`: the map-ahead window is at its widest at once; the first of it is mapped in the background.
/// - `WillNeed`: what the file has there is read in and mapped in the background; where there is none, before this returns.
/// - `Random`: nothing is mapped ahead any more. `Normal`: what is seen decides again.
/// - `DontNeed`: page tables go, and what the [mapping cache](crate::map::cache) has of the file; bytes stay, and are found again by
///   the next fault.
///
/// The kernel is told the same, of the range. Windows are the map's: for loads by [`copy`](super::copy) from this map, and for all copies
/// into maps of the file.
///
/// # Errors
/// `EINVAL`: `address` is not the beginning of a page. `ENOMEM`: not all of it is a map of an atomic file. Others: the kernel's.
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
            follow(part, advice)?; // first: nobody builds again what goes
        }
        // A copied page of a private map would be lost with what was stored there.
        if advice != Advice::DontNeed || !part.private {
            madvise(part.start, len, kernels)?;
        }
    }
    if advice == Advice::DontNeed { Ok(()) } else { follow(part, advice) }
}

/// What the kernel is told of all of a range that a program gives: the same for map-ahead, for what of it are maps of atomic files.
/// Before the kernel does it for `DontNeed`, else after.
pub(crate) fn advised(start: usize, end: usize, advice: Advice) {
    for part in shadow::parts(start & !(PAGE - 1), end) {
        let _ = follow(&part, advice);
    }
}

/// All of an advice but the kernel's.
fn follow(part: &Part, advice: Advice) -> Result<()> {
    let in_file = part.offset..part.offset + part.len as u64;
    part.file.advise_maps(in_file, advice);
    let len = if advice == Advice::WillNeed { part.there() } else { part.len };
    let background = part.ahead.as_ref().is_some_and(|ahead| ahead.advise(part.start - part.map, len, advice));
    if background || advice != Advice::WillNeed || !part.in_memory || len == 0 {
        return Ok(());
    }
    // Not before Linux 5.14.
    match madvise(part.start, len, libc::MADV_POPULATE_READ) {
        // The file was cut meanwhile: the rest is not there to be needed.
        Err(e) if [libc::EINVAL, libc::EFAULT].contains(&e.errno()) => Ok(()),
        done => done,
    }
}

impl Part {
    /// Bytes of it, in whole pages, as far as the file goes: beyond its end nothing can be had.
    fn there(&self) -> usize {
        let len = self.file.size().saturating_sub(self.offset).min(self.len as u64) as usize;
        len.next_multiple_of(PAGE)
    }
}

fn madvise(start: usize, len: usize, advice: i32) -> Result<()> {
    // SAFETY: of a map of a file: no byte of it changes.
    check(unsafe { syscall(libc::SYS_madvise, [start, len, advice as usize, 0, 0, 0]) }).map(|_| ())
}
