//! A measurement of single calls on a non-atomic file; calls libc as a program does.

use super::checked::expect;
use super::median::median;
use clap::ValueEnum;
use std::ffi::CString;
use std::fs::File;
use std::io::Error;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The file, and the duration of each measurement.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of each call
    #[arg(long)]
    seconds: f64,
    /// A file that is open and written meanwhile: the atomic one
    #[arg(long)]
    beside: Option<PathBuf>,
    file: PathBuf,
}

/// The call that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Call {
    Lock,
    Fstat,
    Stat,
    Open,
    Close,
    OpenClose,
    Create,
    Pread,
    Pwrite,
}

/// Calls between two readings of the clock.
const BATCH: u32 = 500;
/// As `BATCH`, for `open` and `close`: the number of descriptors open at a time.
const OPEN: u32 = 200;
const SMALL: usize = 64;

impl Call {
    /// For the table.
    pub fn title(self) -> &'static str {
        match self {
            Call::Lock => "fcntl, lock or unlock",
            Call::Fstat => "fstat",
            Call::Stat => "stat",
            Call::Open => "open",
            Call::Close => "close",
            Call::OpenClose => "open and close",
            Call::Create => "open with O_CREAT, close",
            Call::Pread => "pread of 64 B",
            Call::Pwrite => "pwrite of 64 B",
        }
    }
}

/// Measures every call, and prints its nanoseconds, one line each: the median of batches, which interrupts and other
/// programs hardly affect.
pub fn main(args: &Args) -> Result<(), String> {
    let failed = |error: Error| format!("{}: {error}", args.file.display());
    let time = Duration::try_from_secs_f64(args.seconds).map_err(|error| format!("--seconds: {error}"))?;
    let path = CString::new(args.file.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
    let file = File::options().read(true).write(true).open(&args.file).map_err(failed)?;
    let beside = args.beside.as_ref().map(|other| {
        let other = File::options().read(true).write(true).open(other)?;
        pwrite(other.as_raw_fd())?;
        Ok(other)
    });
    let _beside = beside.transpose().map_err(failed)?;
    for &call in Call::value_variants() {
        println!("{}", measure(call, file.as_raw_fd(), &path, time).map_err(failed)?);
    }
    Ok(())
}

fn measure(call: Call, fd: i32, path: &CString, time: Duration) -> Result<f64, Error> {
    let began = Instant::now();
    let mut batches = Vec::new();
    while began.elapsed() < time || batches.len() < 3 {
        let (time, calls) = match call {
            Call::Open | Call::Close => {
                let [opened, closed] = open_all_close_all(path)?;
                (if call == Call::Open { opened } else { closed }, OPEN)
            }
            Call::Lock => (many(call, fd, path)?, 2 * BATCH),
            _ => (many(call, fd, path)?, BATCH),
        };
        batches.push(time.as_nanos() as f64 / f64::from(calls));
    }
    Ok(median(batches))
}

fn many(call: Call, fd: i32, path: &CString) -> Result<Duration, Error> {
    let began = Instant::now();
    for _ in 0..BATCH {
        run(call, fd, path)?;
    }
    Ok(began.elapsed())
}

fn open_all_close_all(path: &CString) -> Result<[Duration; 2], Error> {
    let mut fds = [0; OPEN as usize];
    let began = Instant::now();
    for fd in &mut fds {
        *fd = open(path, 0)?;
    }
    let opened = began.elapsed();
    for fd in fds {
        close(fd)?;
    }
    Ok([opened, began.elapsed() - opened])
}

#[inline]
fn open(path: &CString, flags: i32) -> Result<i32, Error> {
    // SAFETY: a C string.
    match unsafe { libc::open64(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | flags, 0o600) } {
        -1 => Err(Error::last_os_error()),
        fd => Ok(fd),
    }
}

#[inline]
fn close(fd: i32) -> Result<(), Error> {
    // SAFETY: a descriptor of ours, closed once.
    expect(unsafe { libc::close(fd) } as isize, 0)
}

#[inline]
fn run(call: Call, fd: i32, path: &CString) -> Result<(), Error> {
    let mut buffer = [0u8; SMALL];
    // SAFETY: `path` is a C string; what is filled in is alive, and of the call's own type.
    unsafe {
        match call {
            Call::Lock => {
                let mut lock: libc::flock64 = zeroed();
                lock.l_len = 1;
                lock.l_type = libc::F_WRLCK as i16;
                expect(libc::fcntl(fd, libc::F_SETLK, &raw mut lock) as isize, 0)?;
                lock.l_type = libc::F_UNLCK as i16;
                expect(libc::fcntl(fd, libc::F_SETLK, &raw mut lock) as isize, 0)
            }
            Call::Fstat => expect(libc::fstat64(fd, &mut zeroed()) as isize, 0),
            Call::Stat => expect(libc::stat64(path.as_ptr(), &mut zeroed()) as isize, 0),
            Call::Open | Call::Close | Call::OpenClose => close(open(path, 0)?),
            Call::Create => close(open(path, libc::O_CREAT)?),
            Call::Pread => expect(libc::pread64(fd, buffer.as_mut_ptr().cast(), SMALL, 0), SMALL),
            Call::Pwrite => pwrite(fd),
        }
    }
}

fn pwrite(fd: i32) -> Result<(), Error> {
    let buffer = [1u8; SMALL];
    // SAFETY: the buffer is valid for its length.
    expect(unsafe { libc::pwrite64(fd, buffer.as_ptr().cast(), SMALL, 0) }, SMALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [0; SMALL]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        for &call in Call::value_variants() {
            assert!(measure(call, file.as_raw_fd(), &path, Duration::ZERO).unwrap() > 0.0);
        }
    }
}
