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
    let lines = famio_test_support::kernel_locks::of_inode(file.metadata().expect("fstat").ino());
    lines.iter().any(|line| line.split_whitespace().nth(1) == Some(kind))
}
