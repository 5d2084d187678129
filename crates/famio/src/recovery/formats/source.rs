//! What a recovery reads.

use crate::journal::Header;
use crate::pmem::Medium;
use std::os::fd::BorrowedFd;

/// A file and its journal, as they were found.
#[derive(Clone, Copy)]
pub(in crate::recovery) struct Source<'a> {
    pub file: BorrowedFd<'a>,
    pub journal: BorrowedFd<'a>,
    /// The journal's size.
    pub length: u64,
    pub header: &'a Header,
    /// Of the journal and the file.
    pub medium: &'static dyn Medium,
}
