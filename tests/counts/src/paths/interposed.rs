//! Paths through the interposer: calls of libc, as programs make them.

use super::lease;
use super::operation::{Operation, random_block};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

const BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;
const BLOCKS: u64 = BYTES / BLOCK as u64;
/// Size of a call at the file position.
const PIECE: usize = 128;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).expect("open")
}

fn pwrite(file: &File, bytes: &[u8], offset: u64) {
    // SAFETY: a slice.
    let done = unsafe { libc::pwrite64(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), offset as i64) };
    assert_eq!(done, bytes.len() as isize, "pwrite");
}

fn fsync(file: &File) {
    // SAFETY: touches no memory.
    assert_eq!(unsafe { libc::fsync(file.as_raw_fd()) }, 0, "fsync");
}

fn rewind(file: &File) {
    // SAFETY: touches no memory.
    assert_eq!(unsafe { libc::lseek64(file.as_raw_fd(), 0, libc::SEEK_SET) }, 0, "lseek");
}

/// An atomic file of [`BYTES`].
fn new_file(folder: &Path) -> File {
    let file = open(&folder.join("file.db"));
    pwrite(&file, &vec![1; BYTES as usize], 0);
    fsync(&file);
    file
}

/// The same under the write lease, with all blocks written several times.
fn attached(folder: &Path) -> File {
    let file = new_file(folder);
    lease::await_lease(&file, |number| write_block(&file, number));
    write_all(&file);
    file
}

fn write_block(file: &File, number: u64) {
    pwrite(file, &[number as u8; BLOCK], number % BLOCKS * BLOCK as u64);
    fsync(file);
}

fn write_all(file: &File) {
    for number in 0..3 * BLOCKS {
        pwrite(file, &[number as u8; BLOCK], number % BLOCKS * BLOCK as u64);
        if number % 10 == 9 {
            fsync(file);
        }
    }
    fsync(file);
}

pub fn pwrite_same_block(folder: &Path) -> Operation {
    let file = attached(folder);
    let mut bytes = [2; BLOCK];
    Box::new(move |number| {
        bytes[0] = number as u8;
        pwrite(&file, &bytes, 0);
    })
}

pub fn write_sequential(folder: &Path) -> Operation {
    let file = attached(folder);
    rewind(&file);
    let mut bytes = [3u8; PIECE];
    Box::new(move |number| {
        bytes[0] = number as u8;
        // SAFETY: a slice.
        let done = unsafe { libc::write(file.as_raw_fd(), bytes.as_ptr().cast(), PIECE) };
        assert_eq!(done, PIECE as isize, "write");
    })
}

pub fn pwrite_random_and_fsync(folder: &Path) -> Operation {
    random_and_fsync(attached(folder), || ())
}

/// With pauses, in which the background prepares what the journal needs next: otherwise the caller does some of that,
/// depending on the machine's load.
pub fn pwrite_random_and_fsync_on_disk(folder: &Path) -> Operation {
    let file = new_file(folder);
    write_all(&file);
    random_and_fsync(file, || std::thread::sleep(Duration::from_millis(5)))
}

fn random_and_fsync(file: File, after: fn()) -> Operation {
    let mut bytes = [4; BLOCK];
    Box::new(move |number| {
        bytes[0] = number as u8;
        pwrite(&file, &bytes, random_block(number, BLOCKS) * BLOCK as u64);
        if number % 10 == 9 {
            fsync(&file);
            after();
        }
    })
}

pub fn pread_random(folder: &Path) -> Operation {
    let file = attached(folder);
    let mut bytes = [0u8; BLOCK];
    Box::new(move |number| {
        let offset = random_block(number, BLOCKS) as i64 * BLOCK as i64;
        // SAFETY: a buffer of that length.
        let done = unsafe { libc::pread64(file.as_raw_fd(), bytes.as_mut_ptr().cast(), BLOCK, offset) };
        assert_eq!(done, BLOCK as isize, "pread");
    })
}

pub fn read_sequential(folder: &Path) -> Operation {
    let file = attached(folder);
    rewind(&file);
    let mut bytes = [0u8; PIECE];
    Box::new(move |_| {
        // SAFETY: a buffer of that length.
        let done = unsafe { libc::read(file.as_raw_fd(), bytes.as_mut_ptr().cast(), PIECE) };
        assert_eq!(done, PIECE as isize, "read");
    })
}

pub fn lock_and_unlock(folder: &Path) -> Operation {
    let file = attached(folder);
    let is_kept_in_memory = || {
        lock(&file, libc::F_WRLCK);
        let is_kept = !lease::is_in_kernel(&file, "POSIX");
        lock(&file, libc::F_UNLCK);
        is_kept
    };
    lease::repeat_until("locks in memory", |number| write_block(&file, number), is_kept_in_memory);
    Box::new(move |_| {
        lock(&file, libc::F_WRLCK);
        lock(&file, libc::F_UNLCK);
    })
}

/// Locks or unlocks a byte.
fn lock(file: &File, kind: i32) {
    // SAFETY: plain numbers, for which zeros are good values.
    let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_len) = (kind as i16, 1);
    // SAFETY: a lock that is alive.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw mut lock) }, 0, "fcntl");
}

pub fn small_file(folder: &Path) -> Operation {
    let names: Vec<CString> =
        (0..2 * super::operation::FEW).map(|number| c_string(&folder.join(format!("{number:05}.db")))).collect();
    let bytes = [5u8; PIECE];
    Box::new(move |number| {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC;
        // SAFETY: a C string and a slice that are alive, and a descriptor that is closed once.
        unsafe {
            let fd = libc::open64(names[number as usize].as_ptr(), flags, 0o600);
            assert!(fd >= 0, "open");
            assert_eq!(libc::write(fd, bytes.as_ptr().cast(), PIECE), PIECE as isize, "write");
            assert_eq!(libc::close(fd), 0, "close");
        }
    })
}

pub fn pwrite_plain(folder: &Path) -> Operation {
    let atomic = attached(folder);
    let plain = open(&folder.join("plain"));
    let bytes = [6u8; 64];
    Box::new(move |_| {
        pwrite(&plain, &bytes, 0);
        let _ = &atomic;
    })
}

pub fn stat_plain(folder: &Path) -> Operation {
    let atomic = attached(folder);
    let path = folder.join("plain");
    open(&path);
    let path = c_string(&path);
    Box::new(move |_| {
        // SAFETY: plain numbers, for which zeros are good values.
        let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
        // SAFETY: a C string, and a `stat64` that is alive.
        assert_eq!(unsafe { libc::stat64(path.as_ptr(), &raw mut stat) }, 0, "stat");
        let _ = &atomic;
    })
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path without a zero byte")
}
