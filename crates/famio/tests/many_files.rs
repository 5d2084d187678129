//! Files opened and closed one after the other, by the functions that the hooks call: nothing of them remains.

mod common;

use famio::posix::{self, Config, Globs, process};
use famio::{Durability, Settings};
use std::ffi::CString;
use std::sync::Mutex;

/// Descriptors and maps belong to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn start() {
    let globs = Globs::new(b"*.atomic", b"/", None).unwrap();
    let settings = Settings { durability: Durability::Process, ..Settings::default() };
    process::start_with(Config {
        globs,
        settings,
        kept: None,
        write_atomic: None,
        groups: Vec::new(),
        async_io: false,
    });
}

fn open(path: &str) -> i32 {
    let path = CString::new(path).unwrap();
    // SAFETY: a valid path.
    let fd = unsafe { posix::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600) } as i32;
    assert!(fd >= 0);
    fd
}

fn put(fd: i32, bytes: &[u8]) -> isize {
    // SAFETY: good memory.
    unsafe { posix::pwrite(fd, bytes.as_ptr(), bytes.len(), 0) }
}

/// Number of mapped arenas, and of open descriptors.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (maps.lines().filter(|line| line.contains(".arena")).count(), descriptors)
}

#[test]
fn a_closed_file_leaves_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    start();
    let folder = format!("/dev/shm/famio-many-{}", std::process::id());
    std::fs::create_dir_all(&folder).unwrap();
    let mut first = None;
    for i in 0..20 {
        let fd = open(&format!("{folder}/{i}.atomic"));
        assert_eq!(put(fd, &[7; 8192]), 8192);
        assert_eq!((posix::fsync(fd), posix::close(fd)), (0, 0));
        // The background may be using one for a moment.
        assert!(common::comes_true(|| held().0 <= 1), "{} arenas are still mapped", held().0);
        let first = *first.get_or_insert_with(|| held().1);
        assert!(common::comes_true(|| held().1 <= first), "descriptors after file {i}: {}, first {first}", held().1);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Also in exclusive mode, where the thread writes straight from the caller's memory.
#[test]
fn a_write_from_bad_memory_changes_nothing_of_a_block() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    start();
    let path = format!("/dev/shm/famio-many-{}.atomic", std::process::id());
    for epochs in 0..3 {
        let fd = open(&path);
        for _ in 0..epochs {
            assert_eq!((put(fd, &[7; 8192]), posix::fsync(fd)), (8192, 0));
        }
        assert_eq!(put(fd, &[5; 8192]), 8192);
        // SAFETY: new pages, the second of which cannot be read. (Where it is unmapped, another thread may map something.)
        let half_bad = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let pages = libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_eq!(libc::mprotect(pages.byte_add(4096), 4096, libc::PROT_NONE), 0);
            pages.cast::<u8>().write_bytes(9, 4096);
            pages.cast::<u8>().add(2048)
        };
        // SAFETY: bad memory is an error.
        let written = unsafe { posix::pwrite(fd, half_bad, 4096, 0) };
        let mut found = [0u8; 4096];
        // SAFETY: good memory.
        assert_eq!(unsafe { posix::pread(fd, found.as_mut_ptr(), 4096, 0) }, 4096);
        let changed = found.iter().filter(|byte| **byte == 9).count();
        assert_eq!(changed as isize, written.max(0), "after {epochs} epochs");
        assert_eq!(posix::close(fd), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
