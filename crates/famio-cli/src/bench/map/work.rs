//! One measurement: opens, maps, reads, unmaps and closes.

use super::files::path;
use super::order::Zipf;
use clap::ValueEnum;
use famio::map::{Advice, View, cache};
use std::fs::File;
use std::hint::black_box;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What is measured, and on which files.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    task: Task,
    #[arg(long)]
    way: Way,
    /// How many files the folder has
    #[arg(long)]
    files: u64,
    /// Bytes that the mapping cache may keep
    #[arg(long)]
    limit: Option<u64>,
    folder: PathBuf,
}

/// What is read, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Task {
    /// One file, from front to back.
    Sequential,
    /// Records of one file, at random.
    Random,
    /// Whole files, by Zipf's law.
    Zipf,
}

/// How it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    Populate,
    Default,
    Ahead,
    Advised,
    Cache,
    Copy,
    Huge,
}

impl Way {
    pub const SEQUENTIAL: [Way; 6] = [Way::Populate, Way::Default, Way::Ahead, Way::Advised, Way::Copy, Way::Huge];
    pub const RANDOM: [Way; 3] = [Way::Populate, Way::Default, Way::Ahead];
    pub const ZIPF: [Way; 3] = [Way::Populate, Way::Default, Way::Cache];
    pub const ZIPF_LIMITED: [Way; 2] = [Way::Populate, Way::Cache];
}

const RECORD: usize = 4096;
/// One record of this many is read at random: with few reads, populating does not pay.
const RANDOM_PART: u64 = 64;
/// Requests by Zipf's law, per file.
const REQUESTS: u64 = 3;

/// Measures, and prints, per record: nanoseconds, CPU nanoseconds of the reading thread and of all threads, and page
/// faults of 1000 records.
pub fn main(args: &Args) -> Result<(), String> {
    cache::set_limit(match args.way {
        Way::Cache => args.limit.unwrap_or(u64::MAX),
        _ => 0,
    });
    let failed = |error: Error| format!("{}: {error}", args.folder.display());
    if args.way == Way::Huge && !gather(&args.folder)? {
        println!("no");
        return Ok(());
    }
    let mut meter = Meter::start();
    let records = run(args, &mut meter).map_err(failed)? as f64;
    println!("{}", meter.passed().map(|number| (number / records).to_string()).join(" "));
    Ok(())
}

/// Measures times and faults.
struct Meter {
    began: Instant,
    thread: (f64, f64),
    process: (f64, f64),
}

impl Meter {
    fn start() -> Self {
        let (thread, process) = (usage(libc::RUSAGE_THREAD), usage(libc::RUSAGE_SELF));
        Self { began: Instant::now(), thread, process }
    }

    /// Nanoseconds, CPU nanoseconds of this thread and of all threads, and thousands of page faults.
    fn passed(&self) -> [f64; 4] {
        let time = self.began.elapsed();
        let (thread, process) = (usage(libc::RUSAGE_THREAD), usage(libc::RUSAGE_SELF));
        let cpu = |after: (f64, f64), before: (f64, f64)| (after.0 - before.0) * 1e9;
        let faults = (process.1 - self.process.1) * 1e3;
        [time.as_nanos() as f64, cpu(thread, self.thread), cpu(process, self.process), faults]
    }
}

/// Puts the second file into huge pages, permanently. Returns whether the kernel can do that.
fn gather(folder: &Path) -> Result<bool, String> {
    View::open(path(folder, 1)).map(|view| view.gather()).map_err(|error| error.to_string())
}

/// CPU seconds and page faults of the process or this thread.
fn usage(of: i32) -> (f64, f64) {
    // SAFETY: all-zero bytes are an `rusage`; the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(of, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    (seconds(usage.ru_utime) + seconds(usage.ru_stime), (usage.ru_minflt + usage.ru_majflt) as f64)
}

/// Returns the number of records read.
fn run(args: &Args, meter: &mut Meter) -> Result<u64, Error> {
    let file = |number| path(&args.folder, number);
    match args.task {
        Task::Zipf => {
            let order = Zipf::new(args.files).take((args.files * REQUESTS) as usize);
            order.map(|number| whole(&file(number), args.way, meter)).sum()
        }
        Task::Sequential => whole(&file(u64::from(args.way == Way::Huge)), args.way, meter),
        Task::Random => random(&file(0), args.way),
    }
}

/// Reads a whole file sequentially.
fn whole(path: &Path, way: Way, meter: &mut Meter) -> Result<u64, Error> {
    match way {
        Way::Populate | Way::Default => {
            let map = Plain::new(path, way == Way::Populate)?;
            map.read((0..map.len).step_by(RECORD));
            Ok((map.len / RECORD) as u64)
        }
        Way::Copy => {
            let map = Plain::new(path, true)?;
            *meter = Meter::start();
            map.read((0..map.len).step_by(RECORD));
            let records = (map.len / RECORD) as u64;
            std::mem::forget(map); // the process ends; unmapping is not timed
            Ok(records)
        }
        Way::Ahead | Way::Advised | Way::Cache | Way::Huge => {
            let view = View::open(path).map_err(|e| Error::other(e.to_string()))?;
            if way == Way::Advised {
                view.advise(0, 0, Advice::Sequential);
                view.advise(0, 0, Advice::WillNeed);
            }
            read(&view, (0..view.len()).step_by(RECORD))?;
            Ok(view.len() / RECORD as u64)
        }
    }
}

/// Reads some records of a file at random.
fn random(path: &Path, way: Way) -> Result<u64, Error> {
    let records = path.metadata()?.len() / RECORD as u64;
    let reads = (records / RANDOM_PART).max(1);
    let mut random = fastrand::Rng::with_seed(7);
    let mut offsets = (0..reads).map(|_| random.u64(0..records) * RECORD as u64);
    match way {
        Way::Populate | Way::Default => {
            Plain::new(path, way == Way::Populate)?.read(offsets.by_ref().map(|offset| offset as usize));
        }
        _ => read(&View::open(path).map_err(|e| Error::other(e.to_string()))?, offsets)?,
    }
    Ok(reads)
}

fn read(view: &View, offsets: impl Iterator<Item = u64>) -> Result<(), Error> {
    let mut record = [0; RECORD];
    for offset in offsets {
        view.read_at(&mut record, offset).map_err(|e| Error::other(e.to_string()))?;
        black_box(&mut record);
    }
    Ok(())
}

/// A map as programs make it.
struct Plain {
    base: *const u8,
    len: usize,
}

impl Plain {
    fn new(path: &Path, populate: bool) -> Result<Self, Error> {
        let file = File::open(path)?;
        let len = file.metadata()?.len() as usize;
        let flags = libc::MAP_SHARED | if populate { libc::MAP_POPULATE } else { 0 };
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(Self { base: base.cast(), len }) }
    }

    fn read(&self, offsets: impl Iterator<Item = usize>) {
        let mut record = [0u8; RECORD];
        for offset in offsets {
            // SAFETY: within the map and the file, which is not cut meanwhile; whole records.
            unsafe { record.as_mut_ptr().copy_from_nonoverlapping(self.base.add(offset), RECORD) };
            black_box(&mut record);
        }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: our map.
        unsafe { libc::munmap(self.base.cast_mut().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_reads_all_records() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..4 {
            std::fs::write(path(folder.path(), number), vec![1; 16 * RECORD]).unwrap();
        }
        for &way in Way::value_variants() {
            let args = |task| Args { task, way, files: 4, limit: None, folder: folder.path().into() };
            let count = |task| run(&args(task), &mut Meter::start()).unwrap();
            assert_eq!([Task::Sequential, Task::Zipf, Task::Random].map(count), [16, 4 * REQUESTS * 16, 1]);
        }
    }
}
