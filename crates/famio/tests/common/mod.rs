//! Shared by the tests of atomic files.
#![allow(dead_code)] // each test uses a part

pub mod arenas;

use famio::file::{Access, AtomicFile, UserBuf};
use famio::{Durability, JournalChoice, PolicyChoice, Settings, TierChoice, WriteBackRange};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that is removed with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn on_tmpfs(name: &str) -> Self {
        Self::below(Path::new("/dev/shm"), name)
    }

    /// On the file system of the build folder.
    pub fn on_disk(name: &str) -> Self {
        Self::below(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
    }

    /// No folder.
    pub fn none() -> Self {
        Self(PathBuf::new())
    }

    fn below(parent: &Path, name: &str) -> Self {
        // Two tests at the same time may use one name.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("famio-test-{}-{number}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            forget_arenas(&self.0);
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Removes what killed processes left in shared memory for the files below a folder.
fn forget_arenas(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(stat) if stat.is_dir() => forget_arenas(&entry.path()),
            Ok(_) => {
                let _ = std::fs::remove_file(arenas::arena(&entry.path()));
            }
            Err(_) => {}
        }
    }
}

/// For files on a disk with their journals in memory: all tests share one pool, which stays. `tight`: blocks are
/// written back all the time.
pub fn tiered_settings(tight: bool) -> Settings {
    let pool = PathBuf::from("/dev/shm/famio-test-tier");
    std::fs::create_dir_all(&pool).unwrap();
    let (durability, emulated) = (Durability::Process, true);
    let settings = Settings { pool: Some(pool), durability, emulated, tier: TierChoice::Auto, ..Settings::default() };
    if tight {
        let write_back = WriteBackRange { from: 10, to: 1 };
        Settings { journal_limit: 4 << 20, write_back, ..settings }
    } else {
        settings
    }
}

/// A file opened as an atomic file; closed clean when dropped.
pub struct Opened {
    file: File,
    atomic: Option<Arc<AtomicFile>>,
}

impl Opened {
    pub fn new(path: &Path, settings: &Settings) -> Self {
        Self::try_new(path, settings).unwrap()
    }

    pub fn try_new(path: &Path, settings: &Settings) -> famio::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, settings)?;
        Ok(Self { file, atomic: Some(atomic) })
    }

    pub fn atomic(&self) -> &AtomicFile {
        self.atomic.as_ref().unwrap()
    }

    pub fn shared(&self) -> &Arc<AtomicFile> {
        self.atomic.as_ref().unwrap()
    }

    pub fn close(mut self) -> famio::Result<()> {
        self.atomic.take().map_or(Ok(()), |atomic| atomic.remove_descriptor(self.file.as_raw_fd()))
    }

    /// Closes it, and ignores errors.
    pub fn close_anyhow(self) {
        let _ = self.close();
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn try_write(&self, offset: u64, data: &[u8]) -> famio::Result<usize> {
        let buf = [UserBuf { base: data.as_ptr().cast_mut(), len: data.len() }];
        // SAFETY: a live buffer.
        unsafe { self.atomic().write(offset, &buf) }
    }

    pub fn write(&self, offset: u64, data: &[u8]) {
        assert_eq!(self.try_write(offset, data).unwrap(), data.len());
    }

    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        self.try_read(offset, len).unwrap()
    }

    pub fn try_read(&self, offset: u64, len: usize) -> famio::Result<Vec<u8>> {
        let mut data = vec![0xEE; len];
        let buf = [UserBuf { base: data.as_mut_ptr(), len }];
        // SAFETY: a live buffer.
        let n = unsafe { self.atomic().read(offset, &buf) }?;
        data.truncate(n);
        Ok(data)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(atomic) = self.atomic.take() {
            let closed = atomic.remove_descriptor(self.file.as_raw_fd());
            assert!(closed.is_ok() || std::thread::panicking(), "{closed:?}");
        }
    }
}

/// Waits for something that another thread or process does; false if it is not done in ten seconds.
pub fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        if condition() {
            return true;
        }
        if std::time::Instant::now() > end {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(1)); // pause between two checks
    }
}

/// The number of kills in `FAMIO_KILLS`, if set.
pub fn kills_asked() -> Option<u64> {
    std::env::var("FAMIO_KILLS").ok()?.parse().ok()
}

/// Every policy on tmpfs, with and without flushes and fences.
pub fn in_place_settings() -> Vec<Settings> {
    let mut all = Vec::new();
    for policy in [PolicyChoice::Undo, PolicyChoice::Redo, PolicyChoice::Alternate, PolicyChoice::Auto] {
        for emulated in [false, true] {
            all.push(Settings { policy, emulated, journal: JournalChoice::Always, ..Settings::default() });
        }
    }
    all
}

/// Whether a file with these settings uses the write lease.
pub fn takes_lease(settings: &Settings) -> bool {
    matches!(settings.policy, PolicyChoice::Auto | PolicyChoice::Alternate)
}

/// Waits until the file has its lease. It has been written to, and no other process has it open.
pub fn take_lease(opened: &Opened) {
    let begun = std::time::Instant::now();
    while !opened.atomic().has_lease() {
        assert!(begun.elapsed().as_secs() < 120, "no lease is to be had");
        // Again: an attempt under way may have begun before another process had closed the file.
        opened.atomic().ask_for_lease();
        std::thread::yield_now();
    }
}
