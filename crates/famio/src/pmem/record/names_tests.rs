//! Names: what of them is durable when, and what the next process finds.

use super::*;
use crate::journal::mark::NAME;
use core::ops::ControlFlow;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!("/dev/shm/famio-recorded-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn place(&self) -> Place {
        let pool = self.0.join(".famio");
        Place {
            file: File::options().read(true).write(true).open(self.0.join("file")).unwrap().into(),
            folder: self.0.clone(),
            attribute: NAME,
            journal: pool.join("journal"),
            records: pool.join("joint"),
            pool,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a killed process stored is there for the next one, but a power loss removes it unless that process flushes
/// it.
#[test]
fn after_a_kill_what_is_visible_may_still_be_lost() {
    let folder = Folder::new();
    let place = || folder.place();
    let file = std::fs::File::create(folder.0.join("file")).unwrap();
    file.set_len(4096).unwrap();
    let recorder = Recorder::new(Domain::PageCache);
    recorder.begin(place(), None).unwrap();
    recorder.pwritev(file.as_fd(), &[&[1; 512]], 0).unwrap();
    rustix::fs::fsetxattr(&file, NAME, b"mark", rustix::fs::XattrFlags::empty()).unwrap();
    recorder.mark(1);
    let mut replay = recorder.trace().replay();
    while replay.advance() {}
    let (image, start) = replay.killed();
    assert_eq!(image.get(ObjectId(0)).unwrap()[0], 1);
    assert_eq!(image.names.mark.as_deref(), Some(&b"mark"[..]));
    let images = |recorder: &Recorder| {
        let mut replay = recorder.trace().replay();
        while replay.advance() {}
        let mut seen = Vec::new();
        replay.crashes::<()>(&Plan::default(), |image| {
            seen.push((image.get(ObjectId(0)).unwrap()[0], image.names.mark.is_some()));
            ControlFlow::Continue(())
        });
        seen.sort();
        seen.dedup();
        seen
    };
    recorder.begin(place(), Some(start)).unwrap();
    recorder.mark(2);
    assert_eq!(images(recorder), [(0, false), (0, true), (1, false), (1, true)]);
    recorder.fdatasync(file.as_fd()).unwrap();
    assert_eq!(images(recorder), [(1, false), (1, true)]);
    recorder.fsync(file.as_fd()).unwrap();
    assert_eq!(images(recorder), [(1, true)]);
}

/// The first bytes of the records that a crash at the end of a trace may leave; no byte: the record was not written.
fn records(recorder: &Recorder) -> Vec<Vec<Option<u8>>> {
    let mut replay = recorder.trace().replay();
    while replay.advance() {}
    let mut seen = Vec::new();
    replay.crashes::<()>(&Plan::default(), |image| {
        let first = |object: &ObjectId| image.get(*object).unwrap().first().copied();
        seen.push(image.names.records.values().map(first).collect::<Vec<_>>());
        ControlFlow::Continue(())
    });
    seen.sort();
    seen.dedup();
    seen
}

#[test]
fn a_record_is_found_when_its_folder_and_the_pool_are_synced() {
    let (none, empty, whole) = (&[][..], &[None][..], &[Some(1)][..]);
    let folder = Folder::new();
    File::create(folder.0.join("file")).unwrap();
    let pool = folder.0.join(".famio");
    std::fs::create_dir(&pool).unwrap();
    let recorder = Recorder::new(Domain::PageCache);
    recorder.begin(folder.place(), None).unwrap();
    std::fs::create_dir(pool.join("joint")).unwrap();
    let path = pool.join("joint/1.joint");
    let record = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    recorder.fsync(record.as_fd()).unwrap();
    assert_eq!(records(recorder), [none, empty]);
    recorder.fsync(File::open(pool.join("joint")).unwrap().as_fd()).unwrap();
    assert_eq!(records(recorder), [none, empty], "the folder itself may be gone");
    recorder.pwritev(record.as_fd(), &[&[1; 8]], 0).unwrap();
    recorder.fdatasync(record.as_fd()).unwrap();
    assert_eq!(records(recorder), [none, whole]);

    // A process that is killed now leaves it visible, not durable.
    let mut replay = recorder.trace().replay();
    while replay.advance() {}
    let (image, start) = replay.killed();
    assert_eq!(image.names.records.len(), 1);
    recorder.begin(folder.place(), Some(start)).unwrap();
    recorder.mark(1);
    assert_eq!(records(recorder), [none, whole]);
    recorder.fsync(File::open(&pool).unwrap().as_fd()).unwrap();
    assert_eq!(records(recorder), [whole]);
    std::fs::remove_file(path).unwrap();
    recorder.mark(2);
    assert_eq!(records(recorder), [none, whole], "a crash may bring it back");
}
