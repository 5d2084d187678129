//! One measurement: calls libc as a program does, so that under `famio run` the preload library gets the calls.

use clap::ValueEnum;
use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to measure, how long, on which file.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, value_enum)]
    workload: Workload,
    #[arg(long)]
    seconds: f64,
    file: PathBuf,
}

/// A sequence of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// pwrite of random blocks, fsync after every tenth
    RandomWrite,
    /// pread from start to end, again and again
    SequentialRead,
    /// write of 128 bytes from start to end, again and again, with an fsync at the end of each pass
    SmallWrite,
    /// pwrite of one block, again and again
    OneBlock,
    /// the same, each with its fsync
    OneBlockSync,
}

const BLOCK: u64 = 4096;
const SMALL: usize = 128;
/// Calls between two looks at the clock.
const BATCH: u64 = 10;

impl Workload {
    /// For the table.
    pub fn title(self) -> &'static str {
        match self {
            Workload::RandomWrite => "random 4 KiB pwrite, fsync every 10",
            Workload::SequentialRead => "sequential 4 KiB pread",
            Workload::SmallWrite => "sequential 128 B write",
            Workload::OneBlock => "4 KiB pwrite, always the same block",
            Workload::OneBlockSync => "  the same, each with fsync",
        }
    }
}

/// Fills the file with data, on the medium, before the measurements; none of them changes its size.
pub fn prepare(path: &Path, size: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let block = [0x5a; 1 << 20];
    for _ in 0..size >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// Measures and prints nanoseconds per call (an fsync that belongs to a workload counts as part of its calls).
pub fn main(args: &Args) -> Result<(), String> {
    let shown = args.file.display();
    let file = File::options().read(true).write(true).open(&args.file).map_err(|error| format!("{shown}: {error}"))?;
    let size = file.metadata().map_err(|error| format!("{shown}: {error}"))?.len();
    let mut state = State { fd: file.as_raw_fd(), blocks: (size / BLOCK).max(1), next: 0, random: 1 };
    let whole = Duration::try_from_secs_f64(args.seconds).map_err(|error| format!("--seconds: {error}"))?;
    state.warm(args.workload).map_err(|error| format!("{shown}: {error}"))?;
    state.run(args.workload, whole / 5).map_err(|error| format!("{shown}: {error}"))?;
    let nanoseconds = state.run(args.workload, whole).map_err(|error| format!("{shown}: {error}"))?;
    // What is still dirty is not to disturb the measurement that comes next.
    state.fsync().map_err(|error| format!("{shown}: {error}"))?;
    println!("{nanoseconds}");
    Ok(())
}

struct State {
    fd: i32,
    blocks: u64,
    next: u64,
    random: u64,
}

impl State {
    /// The common path is measured, not a page's first touch: every block that may come is written in three epochs, or read
    /// once, so that it has all its homes. Plain files get the same.
    fn warm(&mut self, workload: Workload) -> Result<(), Error> {
        let mut buffer = [0x3cu8; BLOCK as usize];
        match workload {
            Workload::RandomWrite | Workload::SmallWrite => {
                for _ in 0..3 {
                    for block in 0..self.blocks {
                        self.pwrite(&buffer, block)?;
                        if block % 1000 == 0 {
                            self.fsync()?;
                        }
                    }
                    self.fsync()?;
                }
            }
            Workload::SequentialRead => {
                for _ in 0..self.blocks {
                    self.call(workload, &mut buffer)?;
                }
            }
            Workload::OneBlock | Workload::OneBlockSync => {}
        }
        Ok(())
    }

    fn run(&mut self, workload: Workload, time: Duration) -> Result<f64, Error> {
        let mut buffer = [0xa5u8; BLOCK as usize];
        let started = Instant::now();
        let mut calls = 0;
        loop {
            for _ in 0..BATCH {
                self.call(workload, &mut buffer)?;
            }
            calls += BATCH;
            if workload == Workload::RandomWrite {
                self.fsync()?;
            }
            let passed = started.elapsed();
            if passed >= time {
                return Ok(passed.as_nanos() as f64 / calls as f64);
            }
        }
    }

    #[inline]
    fn call(&mut self, workload: Workload, buffer: &mut [u8; BLOCK as usize]) -> Result<(), Error> {
        match workload {
            Workload::RandomWrite => {
                self.random =
                    self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                self.pwrite(buffer, (self.random >> 33) % self.blocks)
            }
            Workload::SequentialRead => {
                let offset = (self.next % self.blocks * BLOCK) as i64;
                self.next += 1;
                // SAFETY: the buffer is valid for its length.
                expect(
                    unsafe { libc::pread64(self.fd, buffer.as_mut_ptr().cast(), buffer.len(), offset) },
                    buffer.len(),
                )
            }
            Workload::SmallWrite => {
                if self.next >= self.blocks * BLOCK / SMALL as u64 {
                    self.next = 0;
                    self.fsync()?;
                    // SAFETY: moves only this file's position.
                    unsafe { libc::lseek64(self.fd, 0, libc::SEEK_SET) };
                }
                self.next += 1;
                // SAFETY: the buffer is longer than that.
                expect(unsafe { libc::write(self.fd, buffer.as_ptr().cast(), SMALL) }, SMALL)
            }
            Workload::OneBlock => self.pwrite(buffer, 0),
            Workload::OneBlockSync => {
                self.pwrite(buffer, 0)?;
                self.fsync()
            }
        }
    }

    fn pwrite(&self, buffer: &[u8; BLOCK as usize], block: u64) -> Result<(), Error> {
        let offset = (block * BLOCK) as i64;
        // SAFETY: the buffer is valid for its length.
        expect(unsafe { libc::pwrite64(self.fd, buffer.as_ptr().cast(), buffer.len(), offset) }, buffer.len())
    }

    fn fsync(&self) -> Result<(), Error> {
        // SAFETY: touches no memory.
        expect(unsafe { libc::fsync(self.fd) } as isize, 0)
    }
}

/// A call's result, which must be the whole.
pub(super) fn expect(result: isize, whole: usize) -> Result<(), Error> {
    match result {
        -1 => Err(Error::last_os_error()),
        count if count == whole as isize => Ok(()),
        count => Err(Error::other(format!("{count} of {whole} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        prepare(&path, 1 << 20).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut state = State { fd: file.as_raw_fd(), blocks: 256, next: 0, random: 1 };
        for &workload in Workload::value_variants() {
            assert!(state.run(workload, Duration::from_millis(2)).unwrap() > 0.0);
        }
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    }
}
