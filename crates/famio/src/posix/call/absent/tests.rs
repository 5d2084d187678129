use super::*;
use famio_test_support::place::{Place, memory};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

fn remembered(path: &std::path::Path) -> Option<Absent> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    crate::map::guard::install().unwrap();
    Path::of(path.as_ptr()).and_then(|path| Absent::new(path).ok())
}

/// A folder that has not changed for longer than its times can tell.
fn folder() -> Place {
    let place = Place::new(memory(), "famio-test-absent").unwrap();
    let old = std::time::SystemTime::now();
    while std::fs::metadata(place.path()).unwrap().modified().unwrap().elapsed().unwrap().as_millis() < 50 {
        assert!(old.elapsed().unwrap().as_secs() < 60);
        std::thread::yield_now();
    }
    place
}

fn is_absent(absent: &Absent) -> bool {
    absent.path.look() == Some(absent.folder)
}

#[test]
fn a_path_is_absent_until_something_is_made_in_its_folder() {
    let place = folder();
    let absent = remembered(&place.path().join("db-journal")).unwrap();
    assert!(is_absent(&absent));
    std::fs::write(place.path().join("db-journal"), "x").unwrap();
    assert!(!is_absent(&absent));
    std::fs::remove_file(place.path().join("db-journal")).unwrap();
    assert!(!is_absent(&absent), "it may have been there meanwhile");
}

#[test]
fn a_path_that_leads_to_another_folder_is_looked_for_there() {
    let place = folder();
    let (old, new) = (place.path().join("old"), place.path().join("new"));
    for there in [&old, &new] {
        std::fs::create_dir(there).unwrap();
    }
    std::os::unix::fs::symlink(&old, place.path().join("link")).unwrap();
    let name = place.path().join("link/db-wal");
    let absent = loop {
        if let Some(absent) = remembered(&name) {
            break absent;
        }
    };
    assert!(is_absent(&absent));
    std::fs::remove_file(place.path().join("link")).unwrap();
    std::os::unix::fs::symlink(&new, place.path().join("link")).unwrap();
    assert!(!is_absent(&absent));
}

/// Each eighth look cost twelve system calls more, for nothing, on ext4.
#[test]
fn other_file_systems_are_looked_at_more_and_more_rarely() {
    crate::map::guard::install().unwrap();
    let looks = |count: u32| {
        for _ in 0..count {
            note(c"/proc/self/nonexistent-of-famio".as_ptr(), || false);
        }
        NEXT_TO_IGNORE.load(Ordering::Relaxed)
    };
    let first = looks(FEWEST + 2);
    assert!(first > FEWEST, "{first}");
    assert_eq!(looks(1_000_000), IGNORED);
    assert!(TO_IGNORE.load(Ordering::Relaxed) > 0 && KNOWN.load(Ordering::Relaxed) == 0);
}

#[test]
fn what_is_there_or_has_just_changed_is_not_remembered() {
    let place = folder();
    std::os::unix::fs::symlink("nowhere", place.path().join("link")).unwrap();
    for name in ["link", "new"] {
        assert!(remembered(&place.path().join(name)).is_none(), "the folder has just changed");
    }
    let others = ["/nonexistent-of-famio", "name", "/dev/shm/."]; // the first is not on tmpfs
    assert!(others.iter().all(|name| remembered(std::path::Path::new(name)).is_none()));
}
