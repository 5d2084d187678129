//! What is known of private maps of a file (`cow`).

use super::page_tables::PageTables;
use super::shadow_pages as pages;
use super::shadow_pages::new_memory;
use crate::error::{Error, Result};
use crate::sys::{InternalFd, openat};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::fs::{CWD, Mode, OFlags};

pub(in crate::file) const PAGE: u64 = pages::PAGE as u64;

/// The program's private maps of one file.
pub(in crate::file) struct CowMaps {
    pub(in crate::file) tables: PageTables,
    /// This process's memory, for writing to pages that the program may not store to.
    pub(in crate::file) process: InternalFd,
    /// An empty file.
    pub(in crate::file) nothing: InternalFd,
    /// See the module; in whole pages.
    pub(in crate::file) ground: AtomicU64,
    /// The most bytes of pages copied since copies were dropped last, and the bytes left then.
    pub(in crate::file) copied: AtomicU64,
    pub(in crate::file) kept: AtomicU64,
    /// All copied pages are to be compared at the next SYNC, since not all stores were taken at the last one.
    pub(in crate::file) look_at_all: AtomicBool,
    /// The notice that copies cannot be dropped was given.
    pub(in crate::file) said: AtomicBool,
}

impl CowMaps {
    /// # Errors
    /// The kernel cannot say which pages were copied, or `/proc` is not usable.
    pub(in crate::file) fn new() -> Result<Self> {
        let process = openat(CWD, c"/proc/self/mem", OFlags::RDWR, Mode::empty())?;
        let (tables, nothing) = (PageTables::open()?, new_memory(0)?);
        let [ground, copied, kept] = [const { AtomicU64::new(0) }; 3];
        let (look_at_all, said) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { tables, process, nothing, ground, copied, kept, look_at_all, said })
    }

    pub(in crate::file) fn ground(&self) -> u64 {
        self.ground.load(Ordering::Acquire)
    }

    pub(in crate::file) fn count_copied(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The end of the page in which `offset` lies, or `offset` at a page boundary.
pub(in crate::file) fn page_end(offset: u64) -> u64 {
    offset.next_multiple_of(PAGE)
}

/// The error for a second map of bytes that the program may store to.
pub(in crate::file) fn second_map() -> Error {
    Error::with(
        libc::ENOMEM,
        "a file larger than what map-memory allows (by default a quarter of this machine's memory) can't have two maps of the same bytes of which one may be stored to",
    )
}
