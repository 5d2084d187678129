//! A recording [`Medium`]: finds out what a crash could have left at any moment of a run.
//!
//! 1. A [`Recorder`] takes the place of the hardware. It executes every operation, so that the program runs on, and
//!   keeps a [`Trace`]. With [`Recorder::mark`], the test notes what was promised to a caller, and when.
//! 2. A [`Replay`] runs the trace again on a model of the medium (see `model`).
//! 3. At each moment at which something becomes certain, [`Replay::crashes`] builds the images that a crash could
//!   leave. The test recovers each, under another recorder if needed, and compares the result with the promises.
//!
//! A tool for tests: it allocates, takes a lock, and panics if an operation touches memory that was not announced by
//! [`Medium::watch`] or [`Recorder::watch_memory`].

mod behaviour;
mod choices;
mod crash;
mod image;
mod model;
mod names;
mod object;
mod op;
mod trace;

pub use behaviour::Behaviour;
pub use choices::Plan;
pub use crash::Replay;
pub use image::Image;
pub use names::{Names, Place};
pub use object::{Content, ObjectId};
pub use trace::{Start, Trace};

use super::{Domain, Medium, medium};
use crate::error::{Error, Result};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use names::Holder;
use op::Op;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

/// Calls that make something certain, and that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Barrier {
    /// [`Medium::flush`].
    Flush,
    /// [`Medium::fence`].
    Fence,
    /// [`Medium::fenced_by_all`].
    FenceOfAll,
    /// [`Medium::fdatasync`].
    Fdatasync,
    /// [`Medium::fsync`].
    Fsync,
    /// [`Medium::write_out`].
    WriteOut,
}

/// Asked before each barrier whether to leave it out of the recording, as if the library lacked it.
pub type LeaveOut = dyn Fn(Barrier) -> bool + Send + Sync;

/// The kinds of [`Call`].
pub const CALLS: usize = 5;

/// Calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Medium::pwritev`]: writes nothing.
    Pwritev,
    /// [`Medium::fdatasync`]: what it covered is dropped, as Linux does: no later success makes it durable.
    Fdatasync,
    /// [`Medium::fsync`]: as [`Call::Fdatasync`].
    Fsync,
    /// [`Medium::ftruncate`]: changes nothing.
    Ftruncate,
    /// [`Medium::write_out`]: as [`Call::Fdatasync`].
    WriteOut,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; CALLS] = [Call::Pwritev, Call::Fdatasync, Call::Fsync, Call::Ftruncate, Call::WriteOut];
}

/// The recording medium. [`Recorder::new`] makes it; it is never freed, like every medium.
pub struct Recorder {
    behaviour: Behaviour,
    real: &'static dyn Medium,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ops: Arc<Vec<(u32, Op)>>,
    start: Option<Arc<Start>>,
    /// The threads seen so far, by their numbers in the trace.
    threads: Vec<ThreadId>,
    objects: usize,
    /// (device, inode) of the watched files.
    files: Vec<((u64, u64), ObjectId)>,
    /// Address ranges, each with the object and offset of its first byte.
    ranges: Vec<(usize, usize, ObjectId, u64)>,
    failures: Vec<(Call, usize, i32)>,
    /// How many calls there were of each of [`Call::ALL`].
    calls: [usize; CALLS],
    place: Option<Place>,
    names: Names,
    leave_out: Option<&'static LeaveOut>,
}

impl State {
    fn push(&mut self, op: Op) {
        let me = std::thread::current().id();
        let thread = self.threads.iter().position(|&thread| thread == me).unwrap_or_else(|| {
            self.threads.push(me);
            self.threads.len() - 1
        });
        Arc::make_mut(&mut self.ops).push((thread as u32, op));
    }

    /// Records changes of mark and journal since the last check.
    fn look(&mut self) {
        let Some(place) = self.place.take() else { return };
        let names = place.look(|path| self.at(path));
        self.place = Some(place);
        if names != self.names {
            self.names = names.clone();
            self.push(Op::Names(names));
        }
    }

    /// The object of the file at a path.
    fn at(&mut self, path: &Path) -> Option<ObjectId> {
        let stat = rustix::fs::lstat(path).ok()?;
        let known = self.files.iter().find(|file| file.0 == (stat.st_dev, stat.st_ino));
        known.map(|&(_, object)| object).or_else(|| self.file(open(path).ok()?.as_fd()).ok())
    }

    fn new_object(&mut self, bytes: Vec<u8>, is_file: bool) -> ObjectId {
        let object = ObjectId(self.objects);
        self.objects += 1;
        self.push(Op::Watch { object, bytes, is_file });
        object
    }

    fn find(&self, address: *const u8, len: usize) -> (ObjectId, u64) {
        let address = address as usize;
        // The latest first: an address may have been unmapped and mapped again.
        let range = self.ranges.iter().rev().find(|r| address >= r.0 && address + len <= r.0 + r.1);
        let Some(&(start, _, object, at)) = range else {
            panic!("recorder: {address:#x}, {len} bytes, is not in watched memory");
        };
        (object, at + (address - start) as u64)
    }

    /// The object of a file. If it was not watched yet, its current state counts as durable.
    fn file(&mut self, fd: BorrowedFd<'_>) -> Result<ObjectId> {
        let stat = rustix::fs::fstat(fd)?;
        let key = (stat.st_dev, stat.st_ino);
        if let Some(&(_, object)) = self.files.iter().find(|file| file.0 == key) {
            return Ok(object);
        }
        let bytes = contents(fd, stat.st_size as usize)?;
        let object = self.new_object(bytes, true);
        self.files.push((key, object));
        Ok(object)
    }

    /// Whether this call is the one to fail.
    fn fails(&mut self, call: Call) -> Option<Error> {
        self.calls[call as usize] += 1;
        let at = self.failures.iter_mut().position(|failure| {
            failure.1 -= (failure.0 == call) as usize;
            failure.0 == call && failure.1 == 0
        })?;
        Some(Error::new(self.failures.remove(at).2))
    }
}

fn open(path: &Path) -> Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::openat(rustix::fs::CWD, path, flags, rustix::fs::Mode::empty())?)
}

fn key_of(fd: BorrowedFd<'_>) -> Result<(u64, u64)> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn contents(fd: BorrowedFd<'_>, size: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    crate::sys::read_at(fd, 0, &mut bytes)?;
    Ok(bytes)
}

impl Recorder {
    /// A recorder that behaves as `domain` does: what makes stores certain there makes them certain in the model.
    pub fn new(domain: Domain) -> &'static Recorder {
        Self::behaving(Behaviour::Domain(domain))
    }

    /// The same, for behaviours that are not domains.
    pub fn behaving(behaviour: Behaviour) -> &'static Recorder {
        // The test's own files need survive no more than the process.
        let real = medium(Domain::Process, false);
        Box::leak(Box::new(Recorder { behaviour, real, state: Mutex::default() }))
    }

    /// Forgets everything and starts over, with the file and its journal at `place`. The first object is the file, in
    /// its current state, which is durable; or everything is as in `start`, with its objects, which lie under its
    /// names.
    pub fn begin(&self, place: Place, start: Option<Start>) -> Result<()> {
        let mut state = self.lock();
        let leave_out = state.leave_out;
        *state = State { leave_out, ..State::default() };
        if let Some(mut start) = start {
            state.objects = start.0.objects.len();
            state.files.push((key_of(place.file.as_fd())?, ObjectId(0)));
            let names = start.0.names.newest();
            let records = names.records.iter().map(|(name, object)| (place.records.join(name), *object));
            for (path, object) in
                names.journal.map(|journal| (place.journal.clone(), journal)).into_iter().chain(records)
            {
                state.files.push((key_of(open(&path)?.as_fd())?, object));
            }
            state.names = place.look(|path| state.at(path));
            // The new inodes of the pool and of what is in it stand for those in the start.
            start.0.names = start.0.names.moved(&state.names);
            state.start = Some(Arc::new(start));
            state.place = Some(place);
        } else {
            state.file(place.file.as_fd())?;
            state.place = Some(place);
            state.look();
            let Names { pool, folder, .. } = state.names;
            let inside = [pool.map(Holder::Pool), folder.map(Holder::Records)].into_iter().flatten();
            let holders = [Holder::File, Holder::Folder].into_iter().chain(inside);
            holders.for_each(|holder| state.push(Op::SyncNames(holder)));
        }
        Ok(())
    }

    /// As [`begin`](Self::begin), with a file that was just created and not synced: neither its name nor its bytes
    /// are durable.
    pub fn begin_unsynced(&self, place: Place) -> Result<()> {
        let mut state = self.lock();
        let leave_out = state.leave_out;
        *state = State { leave_out, ..State::default() };
        let stat = rustix::fs::fstat(&place.file)?;
        let bytes = contents(place.file.as_fd(), stat.st_size as usize)?;
        let object = state.new_object(Vec::new(), true);
        state.files.push(((stat.st_dev, stat.st_ino), object));
        state.push(Op::Nameless);
        state.push(Op::Write { object, at: 0, bytes });
        state.place = Some(place);
        state.look();
        let pool = state.names.pool.map(Holder::Pool);
        pool.into_iter().for_each(|pool| state.push(Op::SyncNames(pool)));
        Ok(())
    }

    /// From now on, leaves out barriers as `which` says.
    pub fn leave_out(&self, which: Option<&'static LeaveOut>) {
        self.lock().leave_out = which;
    }

    /// How many calls of this kind there were since the beginning.
    pub fn calls(&self, call: Call) -> usize {
        self.lock().calls[call as usize]
    }

    fn leaves_out(&self, barrier: Barrier) -> bool {
        let which = self.lock().leave_out;
        which.is_some_and(|which| which(barrier))
    }

    /// Watches memory that belongs to no file. Its current content counts as durable.
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

    /// The object of a file; watches it if it is not watched yet.
    pub fn object_of(&self, fd: BorrowedFd<'_>) -> Result<ObjectId> {
        self.lock().file(fd)
    }

    /// Records that something was promised at this moment: "SYNC of epoch 5 has returned".
    pub fn mark(&self, mark: u64) {
        let mut state = self.lock();
        state.look();
        state.push(Op::Mark(mark));
    }

    /// Makes the `nth` (from 1) of these calls from now on fail with `errno`, once.
    pub fn fail(&self, call: Call, nth: usize, errno: i32) {
        assert!(nth > 0);
        self.lock().failures.push((call, nth, errno));
    }

    /// The recording so far.
    pub fn trace(&self) -> Trace {
        let state = self.lock();
        Trace { behaviour: self.behaviour, start: state.start.clone(), ops: state.ops.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

// SAFETY: moves the requested bytes by ordinary stores.
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
        if len != 0 && !self.leaves_out(Barrier::Flush) {
            let mut state = self.lock();
            let (object, at) = state.find(addr, len);
            state.push(Op::Flush { object, at, len });
        }
    }

    fn fence(&self) {
        if !self.leaves_out(Barrier::Fence) {
            self.lock().push(Op::Fence);
        }
    }

    fn fenced_by_all(&self) {
        if !self.leaves_out(Barrier::FenceOfAll) {
            self.lock().push(Op::FenceOfAll);
        }
    }

    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> Result<()> {
        let mut state = self.lock();
        state.look();
        if let Some(error) = state.fails(Call::Pwritev) {
            return Err(error);
        }
        let object = state.file(fd)?;
        self.real.pwritev(fd, bufs, offset)?;
        state.push(Op::Write { object, at: offset, bytes: bufs.concat() });
        Ok(())
    }

    fn fdatasync(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let left_out = self.leaves_out(Barrier::Fdatasync);
        let mut state = self.lock();
        state.look();
        let object = state.file(fd)?;
        if let Some(error) = state.fails(Call::Fdatasync) {
            state.push(Op::SyncFailed { object });
            return Err(error);
        }
        if !left_out {
            state.push(Op::Sync { object });
        }
        Ok(())
    }

    fn fsync(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let left_out = self.leaves_out(Barrier::Fsync);
        let mut state = self.lock();
        state.look();
        let is_file = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_file();
        let object = if is_file { Some(state.file(fd)?) } else { None };
        if let Some(error) = state.fails(Call::Fsync) {
            object.into_iter().for_each(|object| state.push(Op::SyncFailed { object }));
            return Err(error);
        }
        if !left_out {
            object.into_iter().for_each(|object| state.push(Op::Sync { object }));
            let holder = state.place.as_ref().and_then(|place| place.holder(fd));
            holder.into_iter().for_each(|holder| state.push(Op::SyncNames(holder)));
        }
        Ok(())
    }

    /// A cache may do so at any time.
    fn start_write_out(&self, _: BorrowedFd<'_>, _: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn write_out(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let left_out = self.leaves_out(Barrier::WriteOut);
        let mut state = self.lock();
        state.look();
        let object = state.file(fd)?;
        if let Some(error) = state.fails(Call::WriteOut) {
            state.push(Op::SyncFailed { object });
            return Err(error);
        }
        if !left_out {
            state.push(Op::WriteOut { object });
        }
        Ok(())
    }

    fn ftruncate(&self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        let mut state = self.lock();
        state.look();
        if let Some(error) = state.fails(Call::Ftruncate) {
            return Err(error);
        }
        let object = state.file(fd)?;
        self.real.ftruncate(fd, size)?;
        state.push(Op::Resize { object, to: size });
        Ok(())
    }

    fn changed_name(&self) {
        self.lock().look();
    }

    fn watch(&self, fd: BorrowedFd<'_>, base: *const u8, len: usize) {
        let mut state = self.lock();
        let object = state.file(fd).expect("recorder: a mapped file");
        state.ranges.push((base as usize, len, object, 0));
    }
}

#[cfg(test)]
mod names_tests;
#[cfg(test)]
mod tests;
