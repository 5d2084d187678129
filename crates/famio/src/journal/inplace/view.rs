//! Read access to the blocks in another process's journal.

use super::{Geometry, SEGMENTS_MAX};
use crate::error::Result;
use crate::index::BLOCK;
use crate::map::Mapping;
use crate::pmem::Domain;
use std::os::fd::BorrowedFd;

/// A mapped journal. The position of its blocks follows from their numbers.
pub(crate) struct View {
    map: Mapping,
    inode: u64,
}

/// Address space for a small journal: a long reservation takes long to unmap, and a view may serve a few reads.
const LEAST: usize = 1 << 20;

impl View {
    /// Maps the journal behind `journal`.
    pub fn of(journal: BorrowedFd<'_>) -> Result<Self> {
        let stat = rustix::fs::fstat(journal)?;
        let map = Mapping::reserve(journal, Domain::PageCache, stat.st_size as u64, false, LEAST)?;
        map.keep_from_children();
        Ok(Self { map, inode: stat.st_ino })
    }

    /// Its inode number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The address of log block `number`, for guarded copies only: it may be gone. `None`: the journal has outgrown
    /// this map.
    #[inline]
    pub fn block(&self, number: u32) -> Option<*mut u8> {
        let (segment, at) = Geometry::place(number);
        let geometry = (segment < SEGMENTS_MAX).then(|| Geometry::of(segment))?;
        self.map.ptr(geometry.block(at), BLOCK)
    }

    /// The same of the block at byte `at` of a tiered journal.
    #[inline]
    pub fn block_at(&self, at: u64) -> Option<*mut u8> {
        self.map.ptr(at, BLOCK)
    }
}
