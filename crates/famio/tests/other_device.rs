//! A file system that is found by another device, as after a reboot in which the disks have other names.

mod common;
#[path = "common/crash.rs"]
mod crash;
#[path = "common/small.rs"]
mod small;

use common::Opened;
use famio::Settings;
use small::Small;
use std::fs;

#[test]
fn crash_child() {
    crash::child();
}

/// The identity of a file on xfs had the number of the device: what was synced before a crash could not be recovered.
#[test]
fn recovers_what_was_written_by_another_device() {
    let Some(small) = Small::xfs("other-device") else { return };
    let path = small.path().join("file");
    let settings = Settings::default();
    fs::write(&path, crash::initial()).unwrap();
    let steps = crash::history();
    crash::crash(&path, &settings, &steps);
    assert!(crash::get_mark(&path).is_some());
    small.mount_by_another_device();
    let contents = crash::model(&crash::initial(), &steps).1;
    let opened = Opened::new(&path, &settings);
    assert!(opened.read(0, contents.len() + 10) == contents);
    opened.close().unwrap();
    assert!(crash::get_mark(&path).is_none());
}
