//! What a recovery would do to a file that cannot be written any more (`chattr +i`): read from the journal, without
//! changing either.

use crate::error::{Error, Result};
use crate::index::OwnerLock;
use crate::journal::header::Kind;
use crate::journal::records::apply;
use crate::journal::{GrowingMark, Verdict};
use crate::pmem::{Domain, Medium, medium};
use crate::recovery::examine::{Examined, conflict, examine};
use crate::recovery::formats::{Source, growing, in_place, tiered};
use crate::recovery::found_file::FoundFile;
use crate::settings::Settings;
use crate::thread::Mutex;
use core::sync::atomic::AtomicU64;
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use std::os::fd::{AsFd, BorrowedFd};

/// A step of a recovery.
#[derive(Debug)]
pub(crate) enum Step {
    /// The file gets this size.
    Size(u64),
    /// Bytes are written.
    Bytes { offset: u64, data: Vec<u8> },
}

/// Whether the file is immutable, or may only be appended to.
pub(crate) fn is_immutable(file: BorrowedFd<'_>) -> bool {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::empty());
    stat.is_ok_and(|stat| stat.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND))
}

/// The steps, in order, with at most `most` bytes of data.
///
/// # Errors
/// `EIO`: file and journal contradict each other, or the journal is damaged. `EFBIG`: there is more data.
pub(crate) fn steps(file: BorrowedFd<'_>, owner_lock: &OwnerLock, settings: &Settings, most: u64) -> Result<Vec<Step>> {
    let Examined { verdict, growing, header, journal, pool, .. } =
        examine(file, Some(owner_lock), settings, false, FoundFile::default())?;
    match verdict {
        Verdict::Recover => {}
        Verdict::Conflict(text) => return Err(conflict(&text)),
        Verdict::Growing => return growing.map_or(Ok(Vec::new()), |mark| steps_of_growing(file, &mark, most)),
        Verdict::Nothing | Verdict::Leftover => return Ok(Vec::new()), // the file has everything
    }
    let (Some(header), Some((journal, length))) = (header, journal) else { return Ok(Vec::new()) };
    // A program that reads committed data relies on it, so the journal is made durable first.
    medium(header.domain, false).fdatasync(journal.as_fd())?;
    let native = medium(header.file_domain, false);
    let list = List { native, steps: Mutex::default(), left: Mutex::new(most) };
    let source = Source { file, journal: journal.as_fd(), length, header: &header, medium: native };
    let listed = match header.kind {
        Kind::InPlace => in_place::list(source, &list),
        Kind::Records => apply(journal.as_fd(), &header, file, &list),
        Kind::Tiered => tiered::list(source, &list),
    };
    let epoch = listed.map_err(|e| e.context("its journal can't be read"))?;
    crate::recovery::formats::joint::refuse_unfinished(pool.as_ref(), file, &header, epoch)?;
    Ok(core::mem::take(&mut *list.steps.lock()))
}

/// The steps for a file that grew without a journal.
fn steps_of_growing(file: BorrowedFd<'_>, mark: &GrowingMark, most: u64) -> Result<Vec<Step>> {
    let native = medium(Domain::PageCache, false);
    if mark.boot.is_none() && !mark.overwrites.is_empty() {
        native.fsync(file)?; // as a journal: after a kill, the mark may be in the kernel's cache only
    }
    let list = List { native, steps: Mutex::default(), left: Mutex::new(most) };
    growing::apply(file, mark, &list)?;
    Ok(core::mem::take(&mut *list.steps.lock()))
}

/// A medium for the file that only lists the changes it is told to make.
struct List {
    native: &'static dyn Medium,
    steps: Mutex<Vec<Step>>,
    /// How many more bytes may come.
    left: Mutex<u64>,
}

// SAFETY: operations on mapped memory go to a medium that keeps the trait's promises; no file is mapped here.
unsafe impl Medium for List {
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.native.copy(dst, src, len) }
    }

    unsafe fn zero(&self, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.native.zero(dst, len) }
    }

    unsafe fn stage(&self, dst: *mut u8, src: *const u8, len: usize, hot: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.native.stage(dst, src, len, hot) }
    }

    fn store(&self, word: &AtomicU64, value: u64) {
        self.native.store(word, value);
    }

    unsafe fn flush(&self, addr: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.native.flush(addr, len) }
    }

    fn fence(&self) {
        self.native.fence();
    }

    fn pwritev(&self, _: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> Result<()> {
        let data = bufs.concat();
        let mut left = self.left.lock();
        *left = left.checked_sub(data.len() as u64).ok_or(Error::new(libc::EFBIG))?;
        self.steps.lock().push(Step::Bytes { offset, data });
        Ok(())
    }

    fn fdatasync(&self, _: BorrowedFd<'_>) -> Result<()> {
        Ok(())
    }

    fn fsync(&self, _: BorrowedFd<'_>) -> Result<()> {
        Ok(())
    }

    fn ftruncate(&self, _: BorrowedFd<'_>, size: u64) -> Result<()> {
        self.steps.lock().push(Step::Size(size));
        Ok(())
    }
}
