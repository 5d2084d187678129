//! Private maps whose stores stay with the program, for the private regions of vNVML (`posix::nv`).
//!
//! Such a map is the kernel's private map of the file itself, and is in no list of this module's: no SYNC looks for
//! stores in it, and no write is shown in it. A page that is only read belongs to the page cache; a page that is
//! stored to becomes the program's copy.
//!
//! **Invariant.** A page that is not a copy shows the committed bytes of the file. So the file has no session when the
//! map is made; only the user of the map changes the file later, and stores each change in the map before its commit;
//! and a copy is dropped only if a checkpoint has left nothing of its block in the journal.

use super::cow::{is_alone, trim_threshold};
use super::request::map_at;
use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, PLAIN, disowned};
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::engine::home::copy_in;
use crate::file::state::page_tables::{PageTables, Wanted};
use crate::file::state::shadow_pages::{PAGE, PIECE};
use crate::sys::{ALL_BUT_LIBCS, block_signals, check, read_at, restore_signals, syscall};
use core::ops::Range;
use core::sync::atomic::Ordering;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Whether copies of which this many bytes are new may be dropped now, unasked: they are worth it, and no other thread
/// could store to them meanwhile.
pub(crate) fn may_drop_copies(new: u64) -> bool {
    new >= trim_threshold() && is_alone()
}

impl AtomicFile {
    /// Maps the first `length` bytes privately; `fd` is a descriptor of the file.
    ///
    /// # Errors
    /// `EBUSY`: another process, or another part of this one, is changing the file; or in a forked child.
    /// `EOPNOTSUPP`: it was demoted. The kernel's.
    pub(crate) fn map_isolated(self: &Arc<Self>, fd: BorrowedFd<'_>, length: usize) -> Result<usize> {
        Self::may_lock()?;
        if self.is_disowned() {
            return Err(disowned());
        }
        if self.is_demoted() {
            return Err(self.without_transactions());
        }
        self.grow_no_more()?;
        let _in_progress = self.ownership.begin_map();
        self.become_member()?;
        self.look_after_dead()?;
        let _inner = self.inner();
        if !self.is_complete() {
            let what =
                "another process, or another part of this one, is changing it: a private region has its file alone";
            return Err(self.named(Error::with(libc::EBUSY, what)));
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        map_at(0, length, protection, flags, fd.as_raw_fd(), 0)
    }

    /// Whether the kernel's file has everything, and no process is changing it.
    fn is_complete(&self) -> bool {
        self.state.load(Ordering::Acquire) == PLAIN
            && self.shadow().is_none()
            && self.quiet().is_some()
            && self.ownership.membership.shadow().is_none()
    }

    /// Makes a checkpoint, and drops the copied pages of a map made by [`map_isolated`](Self::map_isolated) that have
    /// the same bytes as the file. Returns how many bytes of copies were dropped, and how many are left. No thread
    /// stores to the map meanwhile.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the kernel cannot say which pages were copied (before Linux 6.7). Those of a checkpoint.
    pub(crate) fn trim_isolated(&self, map: Range<usize>) -> Result<(u64, u64)> {
        Self::may_lock()?;
        let tables = PageTables::open().map_err(|error| {
            let what = format!("the kernel cannot say which pages of a private region were stored to ({error})");
            self.named(Error::with(libc::EOPNOTSUPP, what))
        })?;
        let _changing = self.shadow.lock();
        let before = block_signals(ALL_BUT_LIBCS); // a signal handler may store, too
        let dropped = self.drop_by(&tables, &map);
        restore_signals(before);
        dropped
    }

    fn drop_by(&self, tables: &PageTables, map: &Range<usize>) -> Result<(u64, u64)> {
        let Some(session) = self.session() else {
            let is_complete = self.is_complete();
            return self.drop_same(tables, map, &|_| is_complete);
        };
        let _closed = session.close_gate(&self.fds)?;
        let cx = session.context(&self.fds);
        session.check(cx)?;
        keeping_bits(&self.fds, || session.engine.make_room(cx))?;
        // Bytes appended to the block in which the committed file ends have no entry, but may be moved from there.
        let last = cx.shared().committed_size.load(Ordering::Acquire) / PAGE as u64;
        self.drop_same(tables, map, &|at| {
            let block = at / PAGE as u64;
            let cell = cx.index().lookup(block);
            block != last && cell.is_none_or(|cell| cell.entry.load(Ordering::Acquire) == 0)
        })
    }

    /// Drops the copies of pages that the file alone has (`is_in_file`, by offset), with the same bytes.
    fn drop_same(
        &self,
        tables: &PageTables,
        map: &Range<usize>,
        is_in_file: &dyn Fn(u64) -> bool,
    ) -> Result<(u64, u64)> {
        let (mut copy, mut file) = (vec![0; PIECE], vec![0; PIECE]);
        let (mut same, mut dropped, mut kept) = (Vec::<Range<usize>>::new(), 0, 0);
        for run in tables.copied(map.clone(), Wanted::All)? {
            for at in run.clone().step_by(PIECE) {
                let len = PIECE.min(run.end - at);
                let offset = (at - map.start) as u64;
                // SAFETY: our buffer; the program's memory, in which a fault is an error.
                unsafe { copy_in(copy.as_mut_ptr(), at as *const u8, len) }.map_err(|_| Error::new(libc::EIO))?;
                let got = self.by_its_descriptor(|fd| read_at(fd, offset, &mut file[..len]))?;
                file[got..len].fill(0); // as the kernel shows the rest of the file's last page
                for page in (0..len).step_by(PAGE) {
                    let goes = copy[page..page + PAGE] == file[page..page + PAGE] && is_in_file(offset + page as u64);
                    match same.last_mut() {
                        _ if !goes => kept += PAGE,
                        Some(last) if last.end == at + page => last.end += PAGE,
                        _ => same.push(at + page..at + page + PAGE),
                    }
                }
            }
        }
        for pages in same {
            // It fails for pages that are locked in memory.
            *if let_go(&pages).is_ok() { &mut dropped } else { &mut kept } += pages.end - pages.start;
        }
        Ok((dropped as u64, kept as u64))
    }
}

fn let_go(pages: &Range<usize>) -> Result<()> {
    let len = pages.end - pages.start;
    // SAFETY: pages of a private map, with the bytes of the file, which they show from now on.
    check(unsafe { syscall(libc::SYS_madvise, [pages.start, len, libc::MADV_DONTNEED as usize, 0, 0, 0]) }).map(drop)
}
