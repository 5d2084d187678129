//! One thread of a workload. It calls libc as a program does, so that under `famio run` the preload library gets the
//! calls.

use super::bare::{Bare, Baseline};
use super::content::{Content, stamp, stamp_of, warm_stamp};
use super::stream::{Part, Stream};
use crate::bench::checked::expect;
use crate::bench::clock::{cpu, now};
use crate::bench::document::workload::{SyncEvery, Workload};
use crate::bench::times::Times;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

/// When a phase ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// By the clock that all threads share: if each measured its own time, threads that the scheduler starts late
    /// would still work when the others have ended.
    Time(u64),
    Calls(u64),
}

/// The calls of one phase: their number, the time, and the thread's processor time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Phase {
    pub calls: u64,
    pub began: u64,
    pub ended: u64,
    pub cpu: u64,
}

/// Durations of single calls: reads, writes, SYNCs.
pub struct CallTimes {
    pub reads: Times,
    pub writes: Times,
    pub syncs: Times,
}

/// A thread with its descriptor.
pub struct Lane {
    file: File,
    /// Does the work in the place of calls.
    baseline: Option<Baseline>,
    workload: Workload,
    measurement: u32,
    number: u32,
    part: Part,
    units: u64,
    stream: Stream,
    content: Content,
    /// The last data read.
    read: Vec<u8>,
    /// Calls of the stream since its beginning.
    pub ops: u64,
    /// Writes among them.
    pub writes: u64,
    since_sync: u32,
    pub times: CallTimes,
}

/// Passes over the file that bring every block to its usual state: under undo, redo and alternate, each block then
/// has its homes.
pub const WARM_PASSES: u64 = 3;
/// Bytes per write, and writes per epoch, of these passes.
const WARM_SIZE: u64 = 4096;
const WARM_EPOCH: usize = 1000;
/// Bytes between two readings of the clock; they cost far more than a reading.
const BATCH_BYTES: u64 = 64 << 10;
const BATCH_MOST: u64 = 128;

impl Lane {
    pub fn open(path: &Path, workload: &Workload, measurement: u32, number: u32) -> Result<Self, Error> {
        let file = File::options().read(true).write(!workload.read_only).open(path)?;
        let units = file.metadata()?.len() / workload.io_size;
        let times = || Times::new().map_err(Error::other);
        Ok(Self {
            file,
            baseline: None,
            workload: *workload,
            measurement,
            number,
            part: Part::of(workload, units, number),
            units,
            stream: Stream::new(workload, units, measurement, number),
            content: Content::new(workload.io_size),
            read: vec![0; workload.io_size as usize],
            ops: 0,
            writes: 0,
            since_sync: 0,
            times: CallTimes { reads: times()?, writes: times()?, syncs: times()? },
        })
    }

    /// Measures the common path, not the first touch of a page: every piece of this thread's part is first written in
    /// three passes, or read once. Plain files get the same.
    pub fn warm(&mut self) -> Result<(), Error> {
        let size = self.workload.io_size;
        if !self.workload.writes() {
            (self.part.first..self.part.end).try_for_each(|unit| self.pread(unit))?;
            self.rewind();
            return Ok(());
        }
        // Small pieces are written together, as a program writes a file, so that the passes take less time.
        let together = (WARM_SIZE / size).max(1);
        for pass in 1..=WARM_PASSES {
            let piece = self.content.piece(warm_stamp(self.measurement, pass)).repeat(together as usize);
            for (count, unit) in (self.part.first..self.part.end).step_by(together as usize).enumerate() {
                let bytes = (self.part.end - unit).min(together) * size;
                // SAFETY: the buffer has at least that length.
                let done = unsafe {
                    libc::pwrite64(self.file.as_raw_fd(), piece.as_ptr().cast(), bytes as usize, (unit * size) as i64)
                };
                expect(done, bytes as usize)?;
                if count.is_multiple_of(WARM_EPOCH) {
                    self.fsync()?;
                }
            }
            self.fsync()?;
        }
        Ok(())
    }

    /// From now on the work is done without calls. `beside`: as in `Baseline::open`.
    pub fn become_bare(&mut self, bare: Bare, beside: &Path) -> Result<(), Error> {
        self.baseline = Some(Baseline::open(bare, &self.file, beside)?);
        Ok(())
    }

    /// Without calls: what was written back until now.
    pub fn to_medium(&self) -> Option<u64> {
        self.baseline.as_ref().and_then(Baseline::to_medium)
    }

    /// Without calls: leaves the file with what was written.
    pub fn finish(&mut self) {
        self.baseline.iter_mut().for_each(Baseline::finish);
    }

    /// Works until then. `TIMED`: times each call, which costs two readings of the clock per call; so the time of all
    /// calls together is taken from phases without it.
    pub fn run<const TIMED: bool>(&mut self, until: Until) -> Result<Phase, Error> {
        let batch = (BATCH_BYTES / self.workload.io_size).clamp(1, BATCH_MOST);
        let (most, time) = match until {
            Until::Calls(calls) => (calls, u64::MAX),
            Until::Time(time) => (u64::MAX, time),
        };
        let (cpu_before, began, mut calls) = (cpu(), now(), 0);
        loop {
            let in_batch = batch.min(most - calls);
            for _ in 0..in_batch {
                self.call::<TIMED>()?;
            }
            calls += in_batch;
            let ended = now();
            if ended >= time || calls >= most {
                let cpu = cpu() - cpu_before;
                self.check_last_read()?;
                return Ok(Phase { calls, began, ended, cpu });
            }
        }
    }

    #[inline]
    fn call<const TIMED: bool>(&mut self) -> Result<(), Error> {
        let op = self.stream.next();
        self.ops += 1;
        if op.unit == self.part.first && self.ops > 1 {
            self.pass::<TIMED>()?;
        }
        let began = TIMED.then(Instant::now);
        if op.is_read {
            self.pread(op.unit)?;
            if let Some(began) = began {
                self.times.reads.add(began.elapsed());
            }
            return Ok(());
        }
        self.writes += 1;
        let (fd, size) = (self.file.as_raw_fd(), self.workload.io_size as usize);
        let (at, at_position) = ((op.unit * self.workload.io_size) as i64, self.workload.at_position);
        let baseline = &mut self.baseline;
        let done = self.content.with(stamp(self.measurement, self.number, self.writes), |piece| {
            // SAFETY: a piece is that long.
            unsafe {
                if let Some(baseline) = baseline {
                    baseline.write(at as usize, std::slice::from_raw_parts(piece, size));
                    return size as isize;
                }
                if at_position {
                    libc::write(fd, piece.cast(), size)
                } else {
                    libc::pwrite64(fd, piece.cast(), size, at)
                }
            }
        });
        expect(done, size)?;
        if let Some(began) = began {
            self.times.writes.add(began.elapsed());
        }
        if let SyncEvery::Writes(every) = self.workload.sync {
            self.since_sync += 1;
            if self.since_sync >= every {
                self.since_sync = 0;
                return self.timed_fsync::<TIMED>();
            }
        }
        Ok(())
    }

    /// At the end of the file, or of one visit of the same place.
    fn pass<const TIMED: bool>(&mut self) -> Result<(), Error> {
        self.rewind();
        if self.workload.sync == SyncEvery::Pass { self.timed_fsync::<TIMED>() } else { Ok(()) }
    }

    fn rewind(&self) {
        if self.workload.at_position {
            let first = (self.part.first * self.workload.io_size) as i64;
            // SAFETY: moves only this file's position.
            unsafe { libc::lseek64(self.file.as_raw_fd(), first, libc::SEEK_SET) };
        }
    }

    #[inline]
    fn pread(&mut self, unit: u64) -> Result<(), Error> {
        let (fd, buffer) = (self.file.as_raw_fd(), &mut self.read);
        if let Some(baseline) = &mut self.baseline {
            baseline.read((unit * self.workload.io_size) as usize, buffer);
            return Ok(());
        }
        // SAFETY: the buffer is valid for its length.
        let done = unsafe {
            if self.workload.at_position {
                libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len())
            } else {
                libc::pread64(fd, buffer.as_mut_ptr().cast(), buffer.len(), (unit * self.workload.io_size) as i64)
            }
        };
        expect(done, buffer.len())
    }

    #[inline]
    fn timed_fsync<const TIMED: bool>(&mut self) -> Result<(), Error> {
        let began = TIMED.then(Instant::now);
        self.fsync()?;
        if let Some(began) = began {
            self.times.syncs.add(began.elapsed());
        }
        Ok(())
    }

    pub fn fsync(&mut self) -> Result<(), Error> {
        if let Some(baseline) = &mut self.baseline {
            baseline.sync();
            return Ok(());
        }
        // SAFETY: touches no memory.
        expect(unsafe { libc::fsync(self.file.as_raw_fd()) } as isize, 0)
    }

    /// Checks the last read: a read that returned wrong data would look good in the figures. Not done beside other
    /// threads' writes, where a plain file may return parts of two writes.
    fn check_last_read(&self) -> Result<(), Error> {
        let shared = self.workload.lanes() > 1 && !self.workload.own_files && self.workload.writes();
        // Nothing was read yet, or a place that is still all zeros.
        if shared || self.workload.reads == 0 || stamp_of(&self.read) == 0 || self.content.is_whole(&self.read) {
            Ok(())
        } else {
            Err(Error::other(format!("a read of {} pieces gave bytes that were never written", self.units)))
        }
    }
}
