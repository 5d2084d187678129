//! The file that traced programs count in: made before they run, read after.

use super::layout::{self, Count, MAGIC, RECORDS};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

/// The mapped file; removed with the value.
pub struct Shared {
    path: PathBuf,
    map: *mut layout::Shared,
}

/// What was counted, as it was when it was read.
pub struct Seen {
    /// Programs that the library was loaded into.
    pub programs: u64,
    /// Files for which there was no room.
    pub left_out: u64,
    /// The files.
    pub files: Vec<File>,
}

/// One file that was opened for writing.
pub struct File {
    /// From the root on.
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
    /// In memory where that is possible, else among temporary files. All its space is there: no store to it can fail.
    pub fn new() -> Result<Self, String> {
        let folders = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let mut failed = String::new();
        for folder in &folders {
            match Self::below(folder) {
                Ok(shared) => return Ok(shared),
                Err(error) => failed = format!("{}: a file to count in can't be made: {error}", folder.display()),
            }
        }
        Err(failed)
    }

    fn below(folder: &Path) -> rustix::io::Result<Self> {
        let path = folder.join(format!("famio-trace-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        let size = size_of::<layout::Shared>();
        let map = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size as u64).and_then(|()| {
            // SAFETY: a new mapping, at an address that the kernel chooses.
            unsafe {
                rustix::mm::mmap(
                    std::ptr::null_mut(),
                    size,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED,
                    &file,
                    0,
                )
            }
        });
        match map {
            Ok(map) => {
                let shared = Self { path, map: map.cast() };
                shared.get().magic.store(MAGIC, Ordering::Release);
                Ok(shared)
            }
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// What the library is told.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn get(&self) -> &layout::Shared {
        // SAFETY: mapped as long as the value lives, of the right size, and made of atomics only.
        unsafe { &*self.map }
    }

    /// Reads all that was counted.
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
        let _ = std::fs::remove_file(&self.path);
    }
}
