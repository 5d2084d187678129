//! Atomic files for Rust: owned, safe, opened by path.
// Cycle: mod, options: options open a file, and a file is opened by options

mod forks;
mod options;
mod stream;
mod transaction;

pub use options::OpenOptions;
pub use transaction::{Tx, TxFile};

use crate::error::{Error, Result};
use crate::file::{self, Access, UserBuf, Whole};
use crate::region::{Purpose, Region};
use core::ops::{Bound, RangeBounds};
use core::sync::atomic::AtomicU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A file whose changes between two [SYNC](Self::sync)s are durable as a whole or, after a crash, gone as a whole.
///
/// Opened by [`options`](Self::options). All methods take `&self`, and may be called from any thread. Several values
/// may be open for one file: they share its epoch. So do all processes that have the file open: one of them at a time
/// owns and changes it, all read the same bytes, and a SYNC by any of them commits what all have written.
///
/// The traits `Read`, `Write` and `Seek` of `std::io` use a position that each value has for itself.
///
/// When the last value of a file is dropped, the file is committed and closed clean; [`close`](Self::close) reports
/// errors of that. If the process ends without it, the effect is that of a kill: the next open finds the file as at
/// the last SYNC. If other processes have the file open for writing, they commit what this process wrote.
///
/// A forked child cannot use the value (`EBUSY`); it must open the file itself. In a signal handler that interrupted a
/// call on an atomic file, methods may fail with `EDEADLK`.
#[derive(Debug)]
pub struct AtomicFile {
    file: Arc<file::AtomicFile>,
    /// Until it is closed.
    fd: Option<OwnedFd>,
    writable: bool,
    /// For `std::io`'s traits.
    position: AtomicU64,
}

impl AtomicFile {
    /// Options for opening a file; by default an existing file, for reading and writing.
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    fn new(fd: OwnedFd, access: Access, path: &std::ffi::CStr, settings: &crate::Settings) -> Result<Self> {
        forks::watch();
        // The caller asks for an atomic file, so it must not get another kind.
        let settings = crate::Settings { require: true, ..settings.clone() };
        let file = file::AtomicFile::open(fd.as_fd(), access, path, &settings)?;
        Ok(Self { file, fd: Some(fd), writable: access == Access::Write, position: AtomicU64::new(0) })
    }

    fn named(&self, errno: i32, what: impl core::fmt::Display) -> Error {
        Error::with(errno, format!("{}: {what}", self.file.path().to_string_lossy()))
    }

    fn may_write(&self) -> Result<()> {
        if self.writable { Ok(()) } else { Err(self.named(libc::EBADF, "it was opened for reading")) }
    }

    /// Reads from `offset`; returns fewer bytes than asked for at the end of the file.
    ///
    /// # Errors
    /// `EIO`: the medium is bad, or an outsider has cut the file. `EBUSY`: another process has mapped the file and
    /// keeps it; or in a forked child.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        // SAFETY: the caller's buffer, which is borrowed.
        unsafe { self.file.read(offset, &[UserBuf::of(bytes)]) }.map_err(|e| self.file.named(e))
    }

    /// Fills `bytes` from `offset`.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at). `ENXIO`: the file ends before `bytes` is full.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.read_at(&mut bytes[done..], offset + done as u64)? {
                0 => {
                    let what = format!("{} bytes at {offset} lie beyond the end of the file", bytes.len());
                    return Err(self.named(libc::ENXIO, what));
                }
                n => done += n,
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`; part of the open epoch until the next [`sync`](Self::sync). A crash before
    /// that takes it back, and so does a kill, unless [`OnKill::Keep`](crate::OnKill::Keep) is set. With
    /// [`Atomicity::Write`](crate::Atomicity::Write) it is durable on return, as a whole.
    ///
    /// # Errors
    /// `EBADF`: it was opened for reading only. `EFBIG`, `ENOSPC`, `EDQUOT`: there is no space; a part may
    /// have been written (with [`Atomicity::Write`](crate::Atomicity::Write), nothing). `EIO`: an earlier SYNC failed,
    /// so the file takes no more writes. `EBUSY`: another process owns the file and does not hand it over; or in a
    /// forked child. At the first write: `EINVAL`: settings that would weaken durability without saying so;
    /// `EOPNOTSUPP`: the file system is not supported.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.may_write()?;
        if self.file.is_write_atomic() {
            return self.write_whole(Some(offset), bytes).map(drop);
        }
        let mut done = 0;
        while done < bytes.len() {
            let rest = UserBuf { base: bytes[done..].as_ptr().cast_mut(), len: bytes.len() - done };
            // SAFETY: a slice, which is only read.
            match unsafe { self.file.write(offset + done as u64, &[rest]) }.map_err(|e| self.file.named(e))? {
                0 => return Err(self.named(libc::ENOSPC, "no space left")),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at the end of the file, contiguously even beside other threads; returns the offset.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at). `ENOSPC` also: there was space for a part only, which is removed again unless
    /// another write has followed it.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.may_write()?;
        if self.file.is_write_atomic() {
            return self.write_whole(None, bytes);
        }
        let all = UserBuf { base: bytes.as_ptr().cast_mut(), len: bytes.len() };
        // SAFETY: a slice, which is only read.
        let (at, done) = unsafe { self.file.append(&[all]) }.map_err(|e| self.file.named(e))?;
        if done == bytes.len() {
            return Ok(at);
        }
        if self.len() == at + done as u64 {
            self.file.set_size(at)?;
        }
        Err(self.named(libc::ENOSPC, format!("there is room for {done} of {} bytes", bytes.len())))
    }

    /// Writes to a file whose calls are each atomic.
    fn write_whole(&self, at: Option<u64>, bytes: &[u8]) -> Result<u64> {
        let all = UserBuf { base: bytes.as_ptr().cast_mut(), len: bytes.len() };
        // SAFETY: a slice, which is only read.
        let done = unsafe { self.file.write_atomically(at, &[all], Whole::All) };
        done.map(|(at, _)| at).map_err(|e| self.file.named(e))
    }

    /// Length in bytes, including what is not committed yet. If the changes of other processes cannot be read, the
    /// kernel's length.
    pub fn len(&self) -> u64 {
        self.file.size()
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the length; part of the open epoch. New bytes are zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.may_write()?;
        let set = self.file.set_size(len).and_then(|()| self.file.sync_if_write_atomic());
        set.map_err(|e| self.file.named(e))
    }

    /// SYNC: when it returns, everything written to the file, and stored in its regions, before the call is durable,
    /// as a whole. What it survives depends on the file's domain (`docs/guarantees.md`). If this process has the file
    /// open for reading only, it commits nothing. If the file has a [group](crate::Settings::group), all files of the
    /// group are committed.
    ///
    /// # Errors
    /// `EIO`: it cannot be made durable. The file then takes no more writes; opened again, it is as at this SYNC or
    /// as at the one before, in either case as a whole. Also the errors of a write, for stores to regions. `EBUSY`:
    /// in a forked child. For a group, nothing is committed after these: `EXDEV`: its files are not in one pool, or
    /// differ in owner, group or mode; `E2BIG`: more than 1 GiB; `EBUSY`: another process has changed a file and not
    /// committed that.
    pub fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| self.file.named(e))
    }

    /// Discards everything written to the file since its last SYNC or commit of a transaction, including other
    /// threads' writes: the file gets back its bytes and length. Waits for commits of other threads that are under
    /// way. Takes as long as a recovery (milliseconds).
    ///
    /// # Errors
    /// `EBUSY`: another process has written to the file since then, and would lose that; or the file is mapped; or in
    /// a forked child. `EBADF`: it was opened for reading only. `EOPNOTSUPP`: it was demoted. `EIO`: a SYNC failed
    /// before; or the journal cannot be recovered, and the next open tries again.
    pub fn rollback(&self) -> Result<()> {
        self.may_write()?;
        self.file.rollback().map_err(|e| self.file.named(e))
    }

    /// Tells how a range of the file will be read by calls, for the maps through which it is read. Advice only: never
    /// an error, and no byte changes.
    ///
    /// - `Sequential`, `WillNeed`: what will be read soon is mapped in the background.
    /// - `Random`: stops mapping ahead. `Normal`: mapping ahead depends on the observed reads again.
    /// - `DontNeed`: drops page tables, and what the [mapping cache](crate::map::cache) has of the file.
    pub fn advise(&self, range: impl RangeBounds<u64>, advice: crate::map::Advice) {
        let (start, end) = bounds(range, u64::MAX);
        self.file.advise(start..end, advice);
    }

    /// Maps a part of the file, beginning at a multiple of 4096; for writing, too, if the file is open for writing. A
    /// range without an end goes to the current end of the file.
    ///
    /// # Errors
    /// `EINVAL`: a bad or empty range. `ENOMEM`: the file is larger than [`map_memory`](crate::Settings::map_memory),
    /// and either the kernel is older than Linux 6.7, or the part is mapped already and one of the maps is writable; or
    /// there is no address space. Those of [`write_at`](Self::write_at).
    pub fn map(&self, range: impl RangeBounds<u64>) -> Result<Region> {
        self.map_for(range, if self.writable { Purpose::Stores } else { Purpose::Reading })
    }

    /// Maps a part of the file that is changed by copies alone: [`Region::write_at`], [`copy`](crate::region::copy) and
    /// the like, and transactions. A store through a pointer to it is a SIGSEGV, so a stray pointer does not change the
    /// file; and a SYNC need not ask the kernel for each page of the region whether it was stored to, which takes
    /// 0.4 ms a GiB in use. For reading, if the file is not open for writing; as [`map`](Self::map), if it is larger than
    /// [`map_memory`](crate::Settings::map_memory). In a forked child, a copy to it is `EBUSY`.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_for_copies(&self, range: impl RangeBounds<u64>) -> Result<Region> {
        self.map_for(range, if self.writable { Purpose::Copies } else { Purpose::Reading })
    }

    /// Maps a part of the file for reading.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_read(&self, range: impl RangeBounds<u64>) -> Result<Region> {
        self.map_for(range, Purpose::Reading)
    }

    fn map_for(&self, range: impl RangeBounds<u64>, purpose: Purpose) -> Result<Region> {
        let (start, end) = bounds(range, self.len());
        let Some(fd) = &self.fd else { return Err(Error::new(libc::EBADF)) };
        Region::new(&self.file, fd.as_raw_fd(), start..end, purpose).map_err(|e| self.file.named(e))
    }

    /// Closes the file. The last value of the file in this process, with no region left, commits it and checkpoints it,
    /// and leaves an ordinary file. If other processes have it open for writing, they commit it instead. Any other
    /// close commits nothing.
    ///
    /// # Errors
    /// Those of that commit. The file is closed all the same; opened again, it is as it was closed, or as at the last
    /// SYNC.
    pub fn close(mut self) -> Result<()> {
        self.let_go()
    }

    fn let_go(&mut self) -> Result<()> {
        let Some(fd) = self.fd.take() else { return Ok(()) };
        // Before the kernel closes it.
        self.file.remove_descriptor(fd.as_raw_fd()).map_err(|e| self.file.named(e))
    }
}

/// The beginning and the end of a range; `all`: the end of a range without one.
fn bounds(range: impl RangeBounds<u64>, all: u64) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => all,
    };
    (start, end)
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Err(error) = self.let_go() {
            crate::sys::notice(&self.file.named(error).to_string());
        }
    }
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<AtomicFile>();
    shared::<Region>();
    shared::<OpenOptions>();
};
