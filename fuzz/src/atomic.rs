//! An atomic file, as a program has it.

use famio::Settings;
use famio::file::{Access, AtomicFile, UserBuf};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// An open atomic file.
pub struct Opened {
    file: File,
    atomic: Arc<AtomicFile>,
}

impl Opened {
    /// Opens it, which recovers a journal.
    pub fn new(path: &Path, settings: &Settings) -> famio::Result<Self> {
        let file = File::options().read(true).write(true).open(path).expect("the file");
        let name = CString::new(path.to_str().expect("a path")).expect("no zero byte");
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, settings)?;
        Ok(Self { file, atomic })
    }

    /// Writes everything, or fails.
    pub fn write(&self, offset: u64, data: &[u8]) -> famio::Result<()> {
        let buffer = [UserBuf { base: data.as_ptr().cast_mut(), len: data.len() }];
        // SAFETY: a live buffer, which a write only reads.
        let written = unsafe { self.atomic.write(offset, &buffer) }?;
        assert_eq!(written, data.len());
        Ok(())
    }

    /// Its current contents.
    pub fn read(&self, len: usize) -> famio::Result<Vec<u8>> {
        let mut data = vec![0xEE; len];
        let buffer = [UserBuf { base: data.as_mut_ptr(), len }];
        // SAFETY: a live buffer.
        let read = unsafe { self.atomic.read(0, &buffer) }?;
        data.truncate(read);
        Ok(data)
    }

    /// What the kernel has in the file, read through the open descriptor: another open would end its lease, and with
    /// it the state that a crash should find.
    pub fn raw(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.file.metadata().expect("the file").len() as usize];
        self.file.read_exact_at(&mut bytes, 0).expect("the file");
        bytes
    }

    pub fn set_size(&self, size: u64) -> famio::Result<()> {
        self.atomic.set_size(size)
    }

    pub fn sync(&self) -> famio::Result<()> {
        self.atomic.sync()
    }

    /// Closes it.
    pub fn close(self) -> famio::Result<()> {
        self.atomic.remove_descriptor(self.file.as_raw_fd())
    }
}
