//! File systems that keep times in whole seconds: two changes within a second have one time.

mod common;
#[path = "common/crash.rs"]
mod crash;
#[path = "common/small.rs"]
mod small;

use common::Opened;
use crash::{Sync, write};
use famio::Settings;
use small::Small;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn crash_child() {
    crash::child();
}

/// Waits until a second has begun, also by the clock that stamps files, which is a little late.
fn next_second() {
    let milliseconds = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_millis();
    while !(20..60).contains(&milliseconds()) {
        std::thread::yield_now();
    }
}

/// A reader took the file for unchanged as long as its inode's time was the same: for up to a second it did not see
/// what another process had synced.
#[test]
fn a_reader_sees_what_another_process_syncs_within_the_second_of_an_earlier_change() {
    let Some(small) = Small::with_whole_seconds("whole-seconds") else { return };
    let settings = Settings::default();
    let steps = [write(0, 4096, 1), Sync];
    for attempt in 0.. {
        let path = small.path().join(format!("file-{attempt}"));
        next_second();
        fs::write(&path, [9; 8192]).unwrap();
        let before = fs::metadata(&path).unwrap();
        assert_eq!(before.ctime_nsec(), 0, "the test needs times in whole seconds");
        // Longer than a tick of the clock that stamps files elsewhere.
        let written = Instant::now();
        while written.elapsed() < Duration::from_millis(60) {
            std::thread::yield_now();
        }
        let reader = Opened::new(&path, &settings);
        assert!(reader.read(0, 8192) == [9; 8192]);
        let mut writer = crash::hold(&path, &settings, &steps);
        let seen = reader.read(0, 4096);
        let is_same_second = fs::metadata(&path).unwrap().ctime() == before.ctime();
        writer.kill().unwrap();
        writer.wait().unwrap();
        reader.close().unwrap();
        assert!(seen == [1; 4096], "the changes were in the same second: {is_same_second}");
        if is_same_second {
            break;
        }
        assert!(attempt < 20, "the machine is too busy to begin a process within a second");
    }
}
