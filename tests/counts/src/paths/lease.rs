//! The state that an atomic file reaches when only one process uses it: the policy and the place of locks depend on
//! it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// The library's background takes some milliseconds; under valgrind, hundreds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes epochs until the process has the write lease.
pub fn await_lease(file: &File, epoch: impl FnMut(u64)) {
    repeat_until("the write lease", epoch, || is_in_kernel(file, "LEASE"));
}

/// Runs `step` until `done`. A path is counted in one state only, so it is an error if that state is not reached.
pub fn repeat_until(what: &str, mut step: impl FnMut(u64), mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    for number in 0.. {
        step(number);
        if done() {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the kernel has a lock of a kind (`LEASE`, `POSIX`) on the file.
pub fn is_in_kernel(file: &File, kind: &str) -> bool {
    let inode = format!(":{}", file.metadata().expect("fstat").ino());
    let locks = std::fs::read_to_string("/proc/locks").expect("/proc/locks");
    // 1: POSIX ADVISORY WRITE 1234 00:19:5678 0 EOF
    locks.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(1) == Some(&kind) && words.get(5).is_some_and(|place| place.ends_with(&inode))
    })
}
