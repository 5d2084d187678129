//! A file system that is found by another device, as after a reboot in which the disks have other names; and a copy of
//! one (a snapshot), which is mounted beside it.

mod common;
#[path = "common/crash.rs"]
mod crash;
#[path = "common/small.rs"]
mod small;

use common::{Opened, Scratch};
use famio::recovery::{Options, Outcome, Silent, Use, recover_path};
use famio::{Durability, Settings};
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

/// A snapshot's files have the identity of the original's. With a pool they were taken for one file: writes to the
/// snapshot's went to the original, and its recovery used up the original's journal.
#[test]
fn a_snapshot_beside_the_original_is_another_file() {
    let Some(small) = Small::in_memory("snapshot", 64) else { return };
    let pool = Scratch::on_tmpfs("snapshot-pool");
    let path = small.path().join("file");
    let durability = Durability::Process;
    let settings = Settings { pool: Some(pool.path().to_path_buf()), durability, ..Settings::default() };
    fs::write(&path, crash::initial()).unwrap();
    let steps = crash::history();
    crash::crash(&path, &settings, &steps);
    let copy = small.mount_a_copy().join("file");
    let before = fs::read(&copy).unwrap();

    let error = Opened::try_new(&copy, &settings).map(|_| ()).unwrap_err();
    assert!(error.errno() == libc::EIO && error.to_string().contains("of which one is a copy"), "{error}");
    for on_conflict in [Use::Refuse, Use::Journal] {
        let options = Options { on_conflict, ..Options::default() };
        let reports = recover_path(copy.parent().unwrap(), &settings, &options, &Silent).unwrap();
        assert!(matches!(&reports[0].outcome, Outcome::Conflict(text) if text.contains("of which one is a copy")));
    }
    assert!(fs::read(&copy).unwrap() == before);

    let contents = crash::model(&crash::initial(), &steps).1;
    let opened = Opened::new(&path, &settings);
    assert!(opened.read(0, contents.len() + 10) == contents);
    opened.write(0, b"live");
    let error = Opened::try_new(&copy, &settings).map(|_| ()).unwrap_err();
    assert!([libc::EIO, libc::EBUSY].contains(&error.errno()), "{error}");
    opened.atomic().sync().unwrap();
    opened.close().unwrap();

    // What is in it is for the user to say.
    let options = Options { on_conflict: Use::File, ..Options::default() };
    recover_path(&copy, &settings, &options, &Silent).unwrap();
    assert!(crash::get_mark(&copy).is_none());
    let opened = Opened::new(&copy, &settings);
    opened.write(0, b"copy");
    opened.atomic().sync().unwrap();
    let error = Opened::try_new(&path, &settings).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("of which one is a copy"), "{error}");
    opened.close().unwrap();
    assert!(fs::read(&path).unwrap().starts_with(b"live") && fs::read(&copy).unwrap().starts_with(b"copy"));
}
