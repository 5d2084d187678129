//! A tiered file for tests.

use crate::file::session::Session;
use crate::file::{Access, AtomicFile, UserBuf};
use crate::index::BLOCK;
use crate::pmem::TestHooks;
use crate::settings::Durability;
use crate::{Settings, TierChoice};
use core::sync::atomic::Ordering;
use famio_test_support::place::{self, Place};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

/// Runs `test` with a tiered file of zeros that has this many blocks. Afterwards the file has what was written.
pub(super) fn with_tiered(name: &str, blocks: usize, hooks: TestHooks, test: impl FnOnce(&AtomicFile, &mut Vec<u8>)) {
    let (folder, pool) = (place::disk().unwrap(), Place::new(place::memory(), name).unwrap());
    let folder = Place::new(&folder, name).unwrap();
    let path = folder.path().join("file");
    let mut model = vec![0; blocks * BLOCK];
    std::fs::write(&path, &model).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.clone().into_os_string().into_encoded_bytes()).unwrap();
    let pool = Some(pool.path().to_owned());
    let settings = Settings { pool, durability: Durability::Process, tier: TierChoice::Auto, ..Settings::default() };
    TestHooks { still: true, busy: true, ..hooks }.enter();
    let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &settings).unwrap();
    test(&atomic, &mut model);
    atomic.remove_descriptor(file.as_raw_fd()).unwrap();
    TestHooks::default().enter();
    assert!(std::fs::read(&path).unwrap() == model);
}

/// Writes these bytes.
pub(super) fn write(atomic: &AtomicFile, model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    model.resize(model.len().max(at + bytes.len()), 0);
    model[at..at + bytes.len()].copy_from_slice(bytes);
    // SAFETY: the test's memory, which is read.
    let done = unsafe { atomic.write(at as u64, &[UserBuf::of(&mut bytes.to_vec())]) };
    assert_eq!(done.unwrap(), bytes.len());
}

/// Writes and commits a block. Returns the bytes that this added to the journal.
pub(super) fn commit_block(atomic: &AtomicFile, model: &mut Vec<u8>, block: usize, value: u8) -> u64 {
    write(atomic, model, block * BLOCK, &[value; BLOCK]);
    let journal = |session: &Session| session.context(&atomic.fds).shared().totals.journal.load(Ordering::Relaxed);
    let before = atomic.with_session(journal).unwrap();
    atomic.sync().unwrap();
    atomic.with_session(journal).unwrap() - before
}

/// All that can be read is as expected.
pub(super) fn check(atomic: &AtomicFile, model: &[u8]) {
    let mut read = vec![0; model.len() + 1];
    // SAFETY: the test's memory.
    let done = unsafe { atomic.read(0, &[UserBuf::of(&mut read)]) }.unwrap();
    read.truncate(done);
    assert!(read == model);
}
