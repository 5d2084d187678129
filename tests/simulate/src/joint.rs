//! Commits of several files, by a transaction or because they are a group: the other file, whose crashes are not
//! examined, and the records, whose are. A file must not show a state before the record with it is written, and must
//! show it once the record is durable: if that holds for each file, they all show the same.

use crate::oracle::Promise;
use famio::Settings;
use famio::file::{Access, AtomicFile, UserBuf};
use famio::pmem::TestHooks;
use famio::pmem::record::{Image, Recorder};
use std::cell::Cell;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Restores the records of a pool as in an image.
pub fn restore(pool: &Path, image: &Image) -> io::Result<()> {
    if image.names.folder.is_none() {
        return Ok(());
    }
    let folder = folder_in(pool);
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    for (name, &record) in &image.names.records {
        let Some(content) = image.content(record) else { continue };
        let file = File::options().write(true).create_new(true).mode(0o600).open(folder.join(name))?;
        file.write_all_at(content.trimmed(), 0)?;
        file.set_len(content.size)?;
    }
    Ok(())
}

/// The folder of a pool's records.
pub fn folder_in(pool: &Path) -> PathBuf {
    pool.join("joint")
}

thread_local! {
    /// The recorder of a commit that is under way, and what is promised as soon as its record is durable.
    static UNDER_WAY: Cell<Option<(&'static Recorder, usize)>> = const { Cell::new(None) };
}

/// From now on the commit may have happened, or has.
fn told(is_durable: bool) {
    if let Some((recorder, state)) = UNDER_WAY.get() {
        let promise = if is_durable { Promise::Kept(state) } else { Promise::Begun(state) };
        recorder.mark(promise.mark());
    }
}

/// Calls `work`, which commits `state` by a record.
pub fn by_record<T>(recorder: &'static Recorder, state: usize, work: impl FnOnce() -> T) -> T {
    UNDER_WAY.set(Some((recorder, state)));
    TestHooks { joint: Some(told), ..TestHooks::current() }.enter();
    let done = work();
    TestHooks { joint: None, ..TestHooks::current() }.enter();
    UNDER_WAY.set(None);
    done
}

/// The other file, open.
pub struct Peer {
    file: File,
    atomic: Arc<AtomicFile>,
    /// It may have something to commit.
    is_open: Cell<bool>,
}

impl Peer {
    /// Its path, beside the file.
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join("peer")
    }

    /// Creates it, and begins its session, without a recorder.
    pub fn new(folder: &Path, settings: &Settings) -> Result<Self, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let path = Self::path_in(folder);
        let options = File::options().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(&path).map_err(|e| text(&e))?;
        let name = CString::new(path.to_string_lossy().as_bytes()).map_err(|e| text(&e))?;
        let test_hooks = TestHooks::current();
        TestHooks { medium: None, ids: Some(1 << 48), ..test_hooks }.enter();
        let begun = AtomicFile::open(file.as_fd(), Access::Write, &name, settings).and_then(|atomic| {
            let bytes = [1; 100];
            let buf = [UserBuf { base: bytes.as_ptr().cast_mut(), len: bytes.len() }];
            // SAFETY: a live buffer.
            unsafe { atomic.write(0, &buf) }?;
            atomic.sync()?;
            Ok(atomic)
        });
        test_hooks.enter();
        Ok(Self { file, atomic: begun.map_err(|e| text(&e))?, is_open: Cell::new(false) })
    }

    /// Whether it may have something to commit.
    pub fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Its group was committed.
    pub fn is_committed(&self) {
        self.is_open.set(false);
    }

    /// Writes something that differs with `number`.
    pub fn write(&self, number: usize) -> Result<(), String> {
        self.is_open.set(true);
        let bytes = [number as u8; 80];
        let buf = [UserBuf { base: bytes.as_ptr().cast_mut(), len: bytes.len() }];
        // SAFETY: a live buffer.
        unsafe { self.atomic.write(10, &buf) }.map(drop).map_err(|e| e.to_string())
    }

    /// SYNC.
    pub fn sync(&self) -> Result<(), String> {
        self.atomic.sync().map_err(|e| e.to_string())
    }

    /// Commits pieces of `atomic`, after setting its size if given, together with some bytes of this file. As soon as
    /// the record is durable, `state` is promised.
    pub fn commit(
        &self,
        atomic: &Arc<AtomicFile>,
        pieces: &[(u64, &[u8])],
        size: Option<u64>,
        (recorder, state): (&'static Recorder, usize),
    ) -> Result<(), String> {
        let commit = || atomic.commit_pieces_with(pieces, size, &self.atomic, &[state as u8; 80]);
        by_record(recorder, state, commit).map_err(|e| e.to_string())
    }

    /// Closes it.
    pub fn close(self) -> Result<(), String> {
        self.atomic.remove_descriptor(self.file.as_raw_fd()).map_err(|e| e.to_string())
    }
}
