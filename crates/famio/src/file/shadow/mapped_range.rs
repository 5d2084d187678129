//! A map of the program's.

use super::loads::Loads;
use crate::file::atomic::AtomicFile;
use core::ops::Range;
use std::sync::Arc;

/// A map of the program's, or what is left of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MappedRange {
    pub start: usize,
    pub end: usize,
    /// Device and inode of the file.
    pub key: (u64, u64),
    /// The file's offset at `start`.
    pub offset: u64,
    /// Its last known protection.
    pub prot: i32,
    /// The file was opened for writing, so the map may become writable.
    pub may_store: bool,
    /// It was writable at some time, so there may be stores.
    pub stores: bool,
    /// The program may only read it, and changes it by copies, which note what they change.
    pub copies: bool,
    /// It is a map of the shadow, not of the file itself.
    pub shadow: bool,
    /// It is a private map of the file ([`super::cow`]), not of memory.
    pub cow: bool,
    /// The kernel says which of its pages were stored to ([`super::watch`]).
    pub watched: bool,
    /// The address up to which it is watched: nothing behind was ever stored to, as far as was known.
    pub reach: usize,
    /// Page tables of it may go without a trace, so each page has to be looked at.
    pub exact: bool,
    /// All of it has to be looked at again.
    pub whole: bool,
    pub file: OfFile,
    /// Map-ahead of the whole map; a part of a map has none.
    pub ahead: Loads,
}

/// The file of a map; none in tests.
#[derive(Clone, Default)]
pub(super) struct OfFile(pub Option<Arc<AtomicFile>>);

impl PartialEq for OfFile {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl Eq for OfFile {}

impl core::fmt::Debug for OfFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("OfFile").field(&self.0.as_deref()).finish()
    }
}

impl MappedRange {
    /// Whether the program may change the file through it.
    pub fn changes(&self) -> bool {
        self.stores || self.copies
    }

    /// The file's bytes that lie in it.
    pub fn in_file(&self) -> Range<u64> {
        self.offset..self.offset + (self.end - self.start) as u64
    }
}
