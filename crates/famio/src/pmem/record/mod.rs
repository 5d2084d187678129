//! A recording [`Medium`]: to find out what a crash could have left, at any moment of a run.
//!
//! 1. A [`Recorder`] stands in for the hardware. It carries every operation out, so that the program runs on, and keeps
//!    a [`Trace`]. The test says what a caller was promised, and when, by [`Recorder::mark`].
//! 2. A [`Replay`] runs the trace again on a model of the medium (see `model`).
//! 3. At each moment at which something became certain, [`Replay::crashes`] builds the images that a crash could have
//!    left. The test recovers each, under a recorder of its own if need be, and compares with what was promised.
//!
//! A tool for tests: it allocates, takes a lock, and panics where an operation touches memory that nobody has shown it
//! by [`Medium::watch`] or [`Recorder::watch_memory`].

mod crash;
mod model;

pub use crash::{Image, Plan, Replay};

use super::{Domain, Medium, medium};
use crate::error::{Error, Result};
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

/// Something watched: a file, its mappings included, or a piece of memory. Numbered as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub usize);

/// The calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Medium::pwritev`]: writes nothing.
    Pwritev,
    /// [`Medium::fdatasync`]: what it covered is forgotten, as Linux does: no later success makes it durable.
    Fdatasync,
    /// [`Medium::ftruncate`]: changes nothing.
    Ftruncate,
}

/// One operation as it was asked for.
#[derive(Clone, Debug)]
enum Op {
    Watch { object: ObjectId, bytes: Vec<u8>, is_file: bool },
    Copy { object: ObjectId, at: u64, bytes: Vec<u8> },
    Stage { object: ObjectId, at: u64, bytes: Vec<u8> },
    Store { object: ObjectId, at: u64, value: u64 },
    Flush { object: ObjectId, at: u64, len: usize },
    Fence,
    Write { object: ObjectId, at: u64, bytes: Vec<u8> },
    Resize { object: ObjectId, to: u64 },
    Sync { object: ObjectId },
    SyncFailed { object: ObjectId },
    Mark(u64),
}

/// What was recorded so far. Cheap to clone.
#[derive(Clone)]
pub struct Trace {
    domain: Domain,
    ops: Arc<Vec<(ThreadId, Op)>>,
}

impl Trace {
    /// How many operations it holds, marks included.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Starts to replay it.
    pub fn replay(&self) -> Replay {
        Replay::new(self.clone())
    }
}

/// The recording medium. Made by [`Recorder::new`], it lives for ever, as every medium does.
pub struct Recorder {
    domain: Domain,
    real: &'static dyn Medium,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ops: Arc<Vec<(ThreadId, Op)>>,
    objects: usize,
    /// (device, inode) of the watched files.
    files: Vec<((u64, u64), ObjectId)>,
    /// Address ranges, and which byte of which object their first is.
    ranges: Vec<(usize, usize, ObjectId, u64)>,
    failures: Vec<(Call, usize, i32)>,
}

impl State {
    fn push(&mut self, op: Op) {
        Arc::make_mut(&mut self.ops).push((std::thread::current().id(), op));
    }

    fn new_object(&mut self, bytes: Vec<u8>, is_file: bool) -> ObjectId {
        let object = ObjectId(self.objects);
        self.objects += 1;
        self.push(Op::Watch { object, bytes, is_file });
        object
    }

    fn find(&self, address: *const u8, len: usize) -> (ObjectId, u64) {
        let address = address as usize;
        // The latest first: an address can have been unmapped and mapped again.
        let range = self.ranges.iter().rev().find(|r| address >= r.0 && address + len <= r.0 + r.1);
        let Some(&(start, _, object, at)) = range else {
            panic!("recorder: {address:#x}, {len} bytes, is not in watched memory");
        };
        (object, at + (address - start) as u64)
    }

    /// The object of a file; one that was not watched yet is taken as durable as it is now.
    fn file(&mut self, fd: BorrowedFd<'_>) -> Result<ObjectId> {
        let stat = rustix::fs::fstat(fd)?;
        let key = (stat.st_dev, stat.st_ino);
        if let Some(&(_, object)) = self.files.iter().find(|file| file.0 == key) {
            return Ok(object);
        }
        let mut bytes = vec![0; stat.st_size as usize];
        let mut read = 0;
        while read < bytes.len() {
            match rustix::io::pread(fd, &mut bytes[read..], read as u64)? {
                0 => break,
                n => read += n,
            }
        }
        let object = self.new_object(bytes, true);
        self.files.push((key, object));
        Ok(object)
    }

    /// Whether this call is the one that is to fail.
    fn fails(&mut self, call: Call) -> Option<Error> {
        let at = self.failures.iter_mut().position(|failure| {
            failure.1 -= (failure.0 == call) as usize;
            failure.0 == call && failure.1 == 0
        })?;
        Some(Error::new(self.failures.remove(at).2))
    }
}

impl Recorder {
    /// A recorder that behaves as `domain` does: what makes stores certain there makes them certain in the model.
    pub fn new(domain: Domain) -> &'static Recorder {
        // What really happens to the test's own files need survive no more than the process.
        let real = medium(Domain::Process, false);
        Box::leak(Box::new(Recorder { domain, real, state: Mutex::default() }))
    }

    /// Watches memory that belongs to no file. As it is now it counts as durable.
    ///
    /// # Safety
    /// The range is readable, and written only through this recorder from now on.
    pub unsafe fn watch_memory(&self, base: *const u8, len: usize) -> ObjectId {
        let mut state = self.lock();
        // SAFETY: the caller's promise.
        let bytes = unsafe { core::slice::from_raw_parts(base, len) }.to_vec();
        let object = state.new_object(bytes, false);
        state.ranges.push((base as usize, len, object, 0));
        object
    }

    /// The object that a file became; watches it if it is none yet.
    pub fn object_of(&self, fd: BorrowedFd<'_>) -> Result<ObjectId> {
        self.lock().file(fd)
    }

    /// Notes in the trace that something was promised by now: "SYNC of epoch 5 has returned".
    pub fn mark(&self, mark: u64) {
        self.lock().push(Op::Mark(mark));
    }

    /// Makes the `nth` (from 1) of these calls from now on fail with `errno`, once.
    pub fn fail(&self, call: Call, nth: usize, errno: i32) {
        assert!(nth > 0);
        self.lock().failures.push((call, nth, errno));
    }

    /// What was recorded so far.
    pub fn trace(&self) -> Trace {
        Trace { domain: self.domain, ops: self.lock().ops.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

// SAFETY: the asked bytes are moved by ordinary stores.
unsafe impl Medium for Recorder {
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
        if len == 0 {
            return;
        }
        let mut state = self.lock();
        let (object, at) = state.find(dst, len);
        // SAFETY: the caller's promise.
        let bytes = unsafe {
            self.real.copy(dst, src, len);
            core::slice::from_raw_parts(src, len).to_vec()
        };
        state.push(Op::Copy { object, at, bytes });
    }

    unsafe fn zero(&self, dst: *mut u8, len: usize) {
        if len == 0 {
            return;
        }
        let mut state = self.lock();
        let (object, at) = state.find(dst, len);
        // SAFETY: the caller's promise.
        unsafe { self.real.zero(dst, len) };
        state.push(Op::Copy { object, at, bytes: vec![0; len] });
    }

    unsafe fn stage(&self, dst: *mut u8, src: *const u8, len: usize, hot: bool) {
        if len == 0 {
            return;
        }
        let mut state = self.lock();
        let (object, at) = state.find(dst, len);
        // SAFETY: the caller's promise.
        let bytes = unsafe {
            self.real.stage(dst, src, len, hot);
            core::slice::from_raw_parts(src, len).to_vec()
        };
        state.push(Op::Stage { object, at, bytes });
    }

    fn store(&self, word: &AtomicU64, value: u64) {
        let mut state = self.lock();
        let (object, at) = state.find(word.as_ptr().cast(), 8);
        assert!(at.is_multiple_of(8), "recorder: a word at {at} of {object:?} is not aligned");
        word.store(value, Ordering::Release);
        state.push(Op::Store { object, at, value });
    }

    unsafe fn flush(&self, addr: *const u8, len: usize) {
        if len != 0 {
            let mut state = self.lock();
            let (object, at) = state.find(addr, len);
            state.push(Op::Flush { object, at, len });
        }
    }

    fn fence(&self) {
        self.lock().push(Op::Fence);
    }

    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> Result<()> {
        let mut state = self.lock();
        if let Some(error) = state.fails(Call::Pwritev) {
            return Err(error);
        }
        let object = state.file(fd)?;
        self.real.pwritev(fd, bufs, offset)?;
        state.push(Op::Write { object, at: offset, bytes: bufs.concat() });
        Ok(())
    }

    fn fdatasync(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let mut state = self.lock();
        let object = state.file(fd)?;
        if let Some(error) = state.fails(Call::Fdatasync) {
            state.push(Op::SyncFailed { object });
            return Err(error);
        }
        state.push(Op::Sync { object });
        Ok(())
    }

    fn ftruncate(&self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        let mut state = self.lock();
        if let Some(error) = state.fails(Call::Ftruncate) {
            return Err(error);
        }
        let object = state.file(fd)?;
        self.real.ftruncate(fd, size)?;
        state.push(Op::Resize { object, to: size });
        Ok(())
    }

    fn watch(&self, fd: BorrowedFd<'_>, base: *const u8, len: usize) {
        let mut state = self.lock();
        let object = state.file(fd).expect("recorder: a mapped file");
        state.ranges.push((base as usize, len, object, 0));
    }
}

#[cfg(test)]
mod tests;
