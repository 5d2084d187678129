//! The file in which traced programs count: created before they run, read afterwards.

use super::layout::{self, Count, MAGIC, RECORDS};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

/// The mapped file; removed when dropped.
pub struct Shared {
    path: PathBuf,
    map: *mut layout::Shared,
    _file: OwnedFd,
}

/// The counts at the time of reading.
pub struct Seen {
    /// Programs that the library was loaded into.
    pub programs: u64,
    /// Files for which there was no room.
    pub left_out: u64,
    /// The files.
    pub files: Vec<File>,
}

/// A file that was opened for writing.
pub struct File {
    /// Absolute.
    pub path: PathBuf,
    counts: [u64; Count::End as usize],
}

impl File {
    /// One counter.
    pub fn count(&self, what: Count) -> u64 {
        self.counts[what as usize]
    }

    #[cfg(test)]
    pub fn with(path: &str, counts: &[(Count, u64)]) -> Self {
        let mut file = Self { path: path.into(), counts: [0; Count::End as usize] };
        for &(what, count) in counts {
            file.counts[what as usize] = count;
        }
        file
    }
}

impl Shared {
    /// An unnamed file in memory: nothing of it is left, however this process ends. All its space is allocated, so
    /// that no store to it can fail.
    pub fn new() -> Result<Self, String> {
        let failed = |error: String| format!("memory to count in can't be had: {error}");
        crate::limit::permits(size_of::<layout::Shared>() as u64).map_err(failed)?;
        Self::make().map_err(|errno| failed(errno.to_string()))
    }

    fn make() -> rustix::io::Result<Self> {
        let file = rustix::fs::memfd_create("famio-trace", MemfdFlags::CLOEXEC)?;
        let size = size_of::<layout::Shared>();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size as u64)?;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let map = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
        let shared = Self { path, map: map.cast(), _file: file };
        shared.get().magic.store(MAGIC, Ordering::Release);
        Ok(shared)
    }

    /// A path for the library: it can be opened while this process has the file open.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn get(&self) -> &layout::Shared {
        // SAFETY: mapped as long as the value lives, of the right size, and made of atomics only.
        unsafe { &*self.map }
    }

    /// Reads all counts.
    pub fn seen(&self) -> Seen {
        let shared = self.get();
        let used = (shared.used.load(Ordering::Acquire) as usize).min(RECORDS);
        let files = shared.records[..used].iter().filter_map(|record| {
            let path = shared.path(record)?.iter().map(|byte: &AtomicU8| byte.load(Ordering::Relaxed)).collect();
            let counts = std::array::from_fn(|index| record.counts[index].load(Ordering::Relaxed));
            Some(File { path: OsString::from_vec(path).into(), counts })
        });
        Seen {
            files: files.collect(),
            programs: shared.programs.load(Ordering::Relaxed),
            left_out: shared.left_out.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        let _ = unsafe { rustix::mm::munmap(self.map.cast(), size_of::<layout::Shared>()) };
    }
}
