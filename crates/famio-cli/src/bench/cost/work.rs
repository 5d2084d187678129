//! The work whose steps are timed, in a process of its own.

use super::grow::Growing;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{File, OpenOptions};
use std::io::Error;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Times steps (run by `famio bench cost`)
#[derive(clap::Args)]
pub struct WorkArgs {
    growing: Growing,
    #[arg(long)]
    number: u64,
    folder: PathBuf,
}

const BLOCK: usize = 4096;
/// Writes after the first, and small writes of an epoch.
const LATER: u64 = 200;
const SMALL: u64 = 64;
/// The file of an epoch's small writes.
const EPOCH_FILE: u64 = 64 << 20;

/// Prints the microseconds of each step, one to a line.
pub fn main(args: &WorkArgs) -> Result<(), String> {
    let times = times(args.growing, args.number, &args.folder);
    let times = times.map_err(|error| format!("{}: {error}", args.folder.display()))?;
    times.iter().for_each(|time| println!("{time}"));
    Ok(())
}

/// The microseconds of each step.
pub fn times(growing: Growing, number: u64, folder: &Path) -> Result<Vec<f64>, Error> {
    match growing {
        Growing::FileSize => file_size(folder),
        Growing::OpenFiles => open_files(folder, number),
        Growing::Epoch => epoch(folder, number),
        Growing::SmallFiles => small_files(folder, number),
    }
}

/// The files that the work finds, made by a process without Famio.
pub fn prepare(growing: Growing, number: u64, folder: &Path) -> Result<(), Error> {
    let make = |n: u64, size: u64| File::create(path(folder, n))?.set_len(size);
    match growing {
        Growing::FileSize => make(0, number),
        Growing::OpenFiles => (0..number).try_for_each(|n| std::fs::write(path(folder, n), [0; BLOCK])),
        Growing::Epoch => std::fs::write(path(folder, 0), vec![0; EPOCH_FILE as usize]),
        Growing::SmallFiles => Ok(()),
    }
}

/// Whether the files have what was written.
pub fn check(growing: Growing, number: u64, folder: &Path) -> Result<(), Error> {
    let has = |n: u64, at: u64, bytes: &[u8]| {
        let mut found = vec![0; bytes.len()];
        File::open(path(folder, n))?.read_exact_at(&mut found, at)?;
        if found == bytes { Ok(()) } else { Err(Error::other(format!("file {n} has other bytes at {at}"))) }
    };
    match growing {
        Growing::FileSize => (0..=LATER)
            .rev()
            .scan(std::collections::HashSet::new(), |seen, n| {
                let at = place(n, number / BLOCK as u64);
                // Of two writes at one place the later one counts.
                Some(if seen.insert(at) { has(0, at, &block(n)) } else { Ok(()) })
            })
            .collect(),
        Growing::OpenFiles => {
            let mut last: Vec<u64> = (0..number).collect();
            let mut rng = fastrand::Rng::with_seed(number);
            (0..LATER).for_each(|n| last[rng.usize(0..number as usize)] = number + n);
            (0..).zip(last).try_for_each(|(n, last)| has(n, 0, &block(last)))
        }
        Growing::Epoch => {
            let mut rng = fastrand::Rng::with_seed(number);
            let last: std::collections::HashMap<u64, u64> = (0..number).map(|n| (small_place(&mut rng), n)).collect();
            let found = std::fs::read(path(folder, 0))?;
            let is_there =
                |(&at, &n): (&u64, &u64)| found.get(at as usize..).is_some_and(|found| found.starts_with(&small(n)));
            if last.iter().all(is_there) { Ok(()) } else { Err(Error::other("a write of the epoch is missing")) }
        }
        Growing::SmallFiles => (0..number).try_for_each(|n| has(n, 0, &block(n))),
    }
}

fn path(folder: &Path, n: u64) -> PathBuf {
    folder.join(format!("file-{n}"))
}

fn open(folder: &Path, n: u64) -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).open(path(folder, n))
}

/// Bytes that no other write has.
fn block(number: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(number << 16 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    bytes
}

/// The bytes of a small write, quickly made.
fn small(number: u64) -> [u8; SMALL as usize] {
    let mut bytes = [0; SMALL as usize];
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.wrapping_add(1).to_le_bytes()));
    bytes
}

fn small_place(rng: &mut fastrand::Rng) -> u64 {
    rng.u64(0..EPOCH_FILE / SMALL) * SMALL
}

/// Where write number `n` goes in a file of this many blocks.
fn place(n: u64, blocks: u64) -> u64 {
    fastrand::Rng::with_seed(n).u64(0..blocks) * BLOCK as u64
}

/// Times steps one after the other.
struct Steps(Vec<f64>);

impl Steps {
    /// Runs a step; its time is divided by `count`.
    fn time<T>(&mut self, count: u64, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let begun = Instant::now();
        let done = work()?;
        self.0.push(begun.elapsed().as_secs_f64() * 1e6 / count as f64);
        Ok(done)
    }
}

fn file_size(folder: &Path) -> Result<Vec<f64>, Error> {
    let mut steps = Steps(Vec::new());
    let file = steps.time(1, || open(folder, 0))?;
    let blocks = file.metadata()?.len() / BLOCK as u64;
    let at = |n: u64| place(n, blocks);
    steps.time(1, || file.write_all_at(&block(0), at(0)))?;
    steps.time(1, || file.sync_data())?;
    steps.time(LATER, || (1..=LATER).try_for_each(|n| file.write_all_at(&block(n), at(n))))?;
    steps.time(1, || file.sync_data())?;
    steps.time(1, || close(file))?;
    Ok(steps.0)
}

fn open_files(folder: &Path, number: u64) -> Result<Vec<f64>, Error> {
    allow_descriptors(number)?;
    let mut steps = Steps(Vec::new());
    let files: Vec<File> = steps.time(number, || (0..number).map(|n| open(folder, n)).collect())?;
    steps.time(number, || files.iter().zip(0..).try_for_each(|(file, n)| file.write_all_at(&block(n), 0)))?;
    let mut rng = fastrand::Rng::with_seed(number);
    steps.time(LATER, || {
        (0..LATER).try_for_each(|n| {
            let file = &files[rng.usize(0..files.len())];
            file.write_all_at(&block(number + n), 0)?;
            file.sync_data()
        })
    })?;
    steps.time(number, || files.into_iter().try_for_each(close))?;
    Ok(steps.0)
}

/// Half of the descriptors that the process may have stay for Famio, which needs some for each file.
fn allow_descriptors(files: u64) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    match limit.maximum {
        Some(most) if most < files + 50 => {
            Err(Error::other(format!("a process may have {most} descriptors (ulimit -Hn), not {files}")))
        }
        _ => Ok(()),
    }
}

fn epoch(folder: &Path, number: u64) -> Result<Vec<f64>, Error> {
    let file = open(folder, 0)?;
    let mut rng = fastrand::Rng::with_seed(number);
    let mut steps = Steps(Vec::new());
    steps.time(number, || (0..number).try_for_each(|n| file.write_all_at(&small(n), small_place(&mut rng))))?;
    steps.time(number, || file.sync_data())?;
    steps.time(number, || close(file))?;
    Ok(steps.0)
}

fn small_files(folder: &Path, number: u64) -> Result<Vec<f64>, Error> {
    let mut steps = Steps(Vec::new());
    steps.time(number, || {
        (0..number).try_for_each(|n| {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path(folder, n))?;
            file.write_all_at(&block(n), 0)?;
            file.sync_data()?;
            close(file)
        })
    })?;
    Ok(steps.0)
}

/// Closes the file, and reports what a drop would not.
fn close(file: File) -> Result<(), Error> {
    use std::os::fd::IntoRawFd;
    // SAFETY: the descriptor has no other owner.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
