//! How long owners are waited for, and files that go meanwhile.

use super::*;
use crate::file::{Access, AtomicFile, UserBuf};
use std::os::fd::AsRawFd;

const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: u64 = 1_000_000_000;

/// An owner that was once waited for in vain counted as silent for good.
#[test]
fn an_owner_that_goes_on_is_waited_for_again() {
    let mut clock = Clock::new(0, PATIENCE);
    let stopped = || false;
    assert!(!clock.is_over(60 * SECOND, false, stopped));
    assert!(clock.is_over(61 * SECOND, false, stopped));
    assert!(!clock.is_over(62 * SECOND, true, stopped));
    assert!(!clock.is_over(122 * SECOND, false, stopped));
    assert!(clock.is_over(123 * SECOND, false, stopped));
    // Another file was recovered meanwhile.
    clock.go_on_at(200 * SECOND);
    assert!(!clock.is_over(201 * SECOND, false, stopped));
}

/// One flush of a large file to a slow disk changes no word for long. Words of another process do not keep it for ever.
#[test]
fn an_owner_at_work_is_waited_for_but_not_for_ever() {
    let mut clock = Clock::new(0, PATIENCE);
    assert!((0..60_000).step_by(10).all(|at| !clock.is_over(at * SECOND, false, || true)));
    assert!(clock.is_over(60_001 * SECOND, true, || true));
}

#[test]
fn a_file_that_its_program_removes_meanwhile_has_nothing_to_flush() {
    let folder = PathBuf::from(format!("/var/tmp/famio-flush-gone-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("file");
    std::fs::write(&path, [b'-'; 100]).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let settings = Settings::default();
    let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &settings).unwrap();
    // SAFETY: the test's memory.
    unsafe { atomic.write(0, &[UserBuf::of(&mut [b'x'; 10])]) }.unwrap();
    atomic.sync().unwrap();
    let mut found = survey(&path, &settings).unwrap().pop().unwrap();
    atomic.remove_descriptor(file.as_raw_fd()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let waiting = Waiting { patience: PATIENCE, report: &|_, _| {} };
    for in_use in [true, false] {
        found.in_use = in_use;
        let mut clock = Clock::new(monotonic_now(), PATIENCE);
        let mut others = Others::new(&[], &mut clock);
        let flushed = one(
            found.clone(),
            request_flush(&found, &settings),
            &settings,
            &waiting,
            &mut others,
            &crate::recovery::Silent,
        );
        assert!(matches!(flushed.flush, Flush::NothingToDo), "{flushed:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
