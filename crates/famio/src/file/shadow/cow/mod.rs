//! Private maps, which take memory only for pages with stores, for files larger than a quarter of the machine's
//! memory. The program maps private copy-on-write pages of the file itself. A page that is only read belongs to the
//! page cache; the kernel copies a page at its first store, and the next SYNC finds the copy. So no store reaches the
//! file before its epoch is committed. When the file has the same bytes, the copy is dropped (`trim.rs`).
//!
//! **Invariant.** A page that is not a copy shows the bytes of the file on the medium. So a page has to be a copy if
//! those bytes are not what the program should see, or may change: writes by calls are copied into the maps
//! (`show.rs`), and a block with anything in the journal stays a copy until its checkpoint.
//!
//! The *ground* is the part of the file that no checkpoint can cut. Beyond it the program maps zeros instead of the
//! file, since the kernel drops copies where a file is cut; beyond the end of the file an empty file, for the SIGBUS.
//! Both bounds are the same for all maps of the file (`lay.rs`).
//!
//! Private pages belong to one process. So ownership stays with the process while such maps exist, a forked child
//! does not get them, and bytes that one map may store to have no second map.

mod copied;
mod lay;
mod map;
mod outgrow;
mod read;
mod show;
mod take;
mod trim;

use super::memory::new_memory;
use crate::error::{Error, Result};
use crate::sys::{InternalFd, openat};
use copied::PageTables;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::fs::{CWD, Mode, OFlags};

pub(super) use map::remap;

const PAGE: u64 = super::memory::PAGE as u64;

/// The program's private maps of one file.
pub(in crate::file) struct CowMaps {
    tables: PageTables,
    /// This process's memory, for writing to pages that the program may not store to.
    process: InternalFd,
    /// An empty file.
    nothing: InternalFd,
    /// See the module; in whole pages.
    ground: AtomicU64,
    /// The most bytes of pages copied since copies were dropped last, and the bytes left then.
    copied: AtomicU64,
    kept: AtomicU64,
    /// All copied pages are to be compared at the next SYNC, since not all stores were taken at the last one.
    look_at_all: AtomicBool,
    /// The notice that copies cannot be dropped was given.
    said: AtomicBool,
}

impl CowMaps {
    /// # Errors
    /// The kernel cannot say which pages were copied, or `/proc` is not usable.
    pub(super) fn new() -> Result<Self> {
        let process = openat(CWD, c"/proc/self/mem", OFlags::RDWR, Mode::empty())?;
        let (tables, nothing) = (PageTables::open()?, new_memory(0)?);
        let [ground, copied, kept] = [const { AtomicU64::new(0) }; 3];
        let (look_at_all, said) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { tables, process, nothing, ground, copied, kept, look_at_all, said })
    }

    fn ground(&self) -> u64 {
        self.ground.load(Ordering::Acquire)
    }

    fn count_copied(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The end of the page in which `offset` lies, or `offset` at a page boundary.
fn page_end(offset: u64) -> u64 {
    offset.next_multiple_of(PAGE)
}

/// The error for a second map of bytes that the program may store to.
pub(super) fn second_map() -> Error {
    Error::with(
        libc::ENOMEM,
        "a file larger than a quarter of this machine's memory can't have two maps of the same bytes of which one may be stored to",
    )
}
