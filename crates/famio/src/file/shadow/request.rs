//! What the program asked `mmap(2)` for.

use super::loads::Loads;
use super::mapped_range::{MappedRange, OfFile};
use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::file::state::shadow_pages::PAGE;
use crate::sys::{check, syscall};
use std::os::fd::RawFd;
use std::sync::Arc;

/// The arguments of `mmap(2)`.
pub(crate) struct MapRequest {
    pub addr: usize,
    pub length: usize,
    pub prot: i32,
    pub flags: i32,
    /// The program's descriptor.
    pub fd: RawFd,
    pub offset: i64,
    /// The descriptor is open for writing, so the map may be, or become, writable.
    pub may_store: bool,
    /// Only copies are to change it: `prot` is for reading.
    pub copies: bool,
}

impl MapRequest {
    /// A map for copies, as one that may be stored to.
    pub(super) fn for_stores(&self) -> Self {
        let prot = if self.copies { self.prot | libc::PROT_WRITE } else { self.prot };
        Self { prot, copies: false, ..*self }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.flags & libc::MAP_TYPE != libc::MAP_PRIVATE
    }

    pub(super) fn end(&self, start: usize) -> usize {
        start + self.length.next_multiple_of(PAGE)
    }

    /// Asks the kernel to map `fd`.
    pub(super) fn carry_out(&self, fd: RawFd) -> Result<usize> {
        map_at(self.addr, self.length, self.prot, self.flags & !libc::MAP_SYNC, fd, self.offset)
    }

    pub(super) fn range(&self, start: usize, file: &Arc<AtomicFile>, shadow: bool) -> MappedRange {
        MappedRange {
            start,
            end: self.end(start),
            key: file.key(),
            offset: self.offset as u64,
            prot: self.prot,
            may_store: self.may_store,
            stores: self.may_store && self.prot & libc::PROT_WRITE != 0,
            copies: self.may_store && self.copies,
            shadow,
            cow: false,
            watched: false,
            reach: 0,
            exact: false,
            whole: true,
            file: OfFile(Some(file.clone())),
            ahead: Loads::default(),
        }
    }
}

pub(in crate::file) fn map_at(
    addr: usize,
    length: usize,
    prot: i32,
    flags: i32,
    fd: RawFd,
    offset: i64,
) -> Result<usize> {
    // SAFETY: the program's request, or our map that replaces a map of the program with the same bytes.
    check(unsafe {
        syscall(libc::SYS_mmap, [addr, length, prot as usize, flags as usize, fd as usize, offset as usize])
    })
}
