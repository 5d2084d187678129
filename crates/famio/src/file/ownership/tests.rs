//! Two processes in one: the other one only has a control page of its own.

use crate::file::base::background_wakeup::Watched;
use crate::file::state::hand_over_image::HandOverImage;
use crate::file::state::hand_over_image::{Change, What};
use crate::file::{Access, AtomicFile, UserBuf};
use crate::index::{HAS_IMAGE, ImageKind, Membership, SESSION, WriterState, follow_up};
use crate::pmem::TestHooks;
use crate::settings::{JournalChoice, Settings};
use crate::sys::Word;
use core::sync::atomic::Ordering;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

/// The other has no descriptor, as a process has, and does not keep the file from being changed without a journal.
fn with_journal() -> Settings {
    Settings { journal: JournalChoice::Always, ..Settings::default() }
}

/// Another process may have stored any words in a page.
#[test]
fn writes_are_alone_again_once_what_others_wrote_is_committed() {
    let path = format!("/dev/shm/famio-hand-over-{}", std::process::id());
    std::fs::write(&path, [b'-'; 100]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.clone()).unwrap();
    let mine = AtomicFile::open(file.as_fd(), Access::Write, &name, &with_journal()).unwrap();

    let other = Membership::new();
    other.attach(|| crate::journal::control::find_or_make(file.as_fd(), None), || Ok(false)).unwrap();
    let writer = other.me();
    let theirs = Change { writer, what: What::Bytes { offset: 50, data: b"theirs".to_vec() } };
    let number = other.begin_epoch();
    let memory = crate::file::descriptors::shared_memory::make(&mine.fds, &other, &other.epoch_path(number)).unwrap();
    HandOverImage { changes: vec![theirs] }.store(&memory).unwrap();
    other.set_epoch(number, ImageKind::default());

    let mut bytes = *b"mine";
    // SAFETY: the test's memory.
    assert_eq!(unsafe { mine.write(0, &[UserBuf::of(&mut bytes)]) }.unwrap(), 4);
    let session = || mine.session().unwrap();
    let alone = || {
        // SAFETY: the test's memory.
        unsafe { session().write(&mine.fds, 10, &[UserBuf::of(&mut b"alone".to_owned())]) }
    };
    let (arena, generation) = (session().arena.clone(), session().generation.load(Ordering::Relaxed));
    let follow_up = &arena.shared().follow_up;
    assert_eq!(
        (follow_up.load(Ordering::Relaxed), alone().unwrap_err().is_needs_follow_up()),
        (follow_up::OTHERS, true)
    );
    assert_eq!(
        (mine.ownership.has_foreign(), mine.ownership.membership.writer_state(writer)),
        (true, WriterState::Open)
    );

    follow_up.fetch_or(follow_up::SHADOW, Ordering::Relaxed); // as if the file were mapped
    mine.sync().unwrap();
    assert_eq!(follow_up.swap(0, Ordering::Relaxed), follow_up::SHADOW);
    assert_eq!((alone().unwrap(), mine.ownership.has_foreign()), (5, false));
    assert_eq!(
        (session().generation.load(Ordering::Relaxed), other.state() & (SESSION | HAS_IMAGE)),
        (generation, SESSION)
    );

    assert!(other.leave());
    mine.remove_descriptor(file.as_raw_fd()).unwrap();
    let now = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((&now[..4], &now[10..15], &now[50..56], now.len()), (&b"mine"[..], &b"alone"[..], &b"theirs"[..], 100));
}

/// They once waited for a minute.
#[test]
fn a_process_that_was_killed_in_a_session_that_is_not_its_any_more_is_not_waited_for() {
    let path = format!("/dev/shm/famio-killed-inside-{}", std::process::id());
    std::fs::write(&path, [b'-'; 100]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.clone()).unwrap();
    let mine = AtomicFile::open(file.as_fd(), Access::Write, &name, &with_journal()).unwrap();
    let write = || {
        // SAFETY: the test's memory.
        assert_eq!(unsafe { mine.write(10, &[UserBuf::of(&mut b"mine".to_owned())]) }.unwrap(), 4);
    };
    let begun = std::time::Instant::now();
    write();
    let arena = mine.session().unwrap().arena.clone();
    let (gate, nobodys) = (&arena.shared().gate, 62);
    for _ in 0..2 {
        gate.pretend(nobodys, &arena.shared().entered);
        mine.sync().unwrap();
        gate.closed.store(nobodys + 1, Ordering::SeqCst);
        write();
    }
    assert!(begun.elapsed().as_secs() < 40);
    mine.remove_descriptor(file.as_raw_fd()).unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn what_travels_is_committed_when_the_journal_is_closed_and_gone_when_its_writer_died() {
    let path = format!("/dev/shm/famio-hands-{}", std::process::id());
    std::fs::write(&path, [b'-'; 100]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.clone()).unwrap();
    let mine = AtomicFile::open(file.as_fd(), Access::Write, &name, &with_journal()).unwrap();
    let write = |at: u64, text: &str| {
        let mut bytes = text.to_owned().into_bytes();
        // SAFETY: the test's memory.
        assert_eq!(unsafe { mine.write(at, &[UserBuf::of(&mut bytes)]) }.unwrap(), text.len());
    };
    let seen = |len: usize| {
        let mut bytes = vec![0; len];
        // SAFETY: the test's memory.
        assert_eq!(unsafe { mine.read(0, &[UserBuf::of(&mut bytes)]) }.unwrap(), len);
        String::from_utf8(bytes).unwrap()
    };

    write(1, "one");
    let between = mine.hand_over().unwrap();
    assert_eq!(
        (between.len(), mine.ownership.membership.state() & (SESSION | HAS_IMAGE)),
        (2, HAS_IMAGE),
        "{between:?}"
    );
    let hand_overs = || crate::recovery::hand_overs(path.as_ref(), &with_journal()).unwrap();
    assert_eq!(hand_overs(), Some(1));
    assert_eq!((&std::fs::read(&path).unwrap()[..5], &*seen(5)), (&b"-----"[..], "-one-"));
    mine.checkpoint().unwrap(); // as before a rename
    assert_eq!((&std::fs::read(&path).unwrap()[..5], mine.ownership.is_disturbed()), (&b"-one-"[..], false));

    write(2, "two");
    let before = mine.ownership.membership.me();
    let between = mine.hand_over_and_die().unwrap();
    assert_eq!((mine.ownership.membership.writer_state(before), between.len()), (WriterState::Dead, 2));
    assert_eq!((&*seen(6), mine.size()), ("-one--", 100));
    write(4, "three");
    mine.sync().unwrap();
    assert_eq!((mine.ownership.is_disturbed(), mine.ownership.membership.dead()), (true, vec![]));
    mine.remove_descriptor(file.as_raw_fd()).unwrap();
    assert_eq!(hand_overs(), None);
    let now = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        (&now[..10], between.iter().any(|path| std::path::Path::new(path).exists())),
        (&b"-onethree-"[..], false)
    );
}

/// The background once looked again and again, without a pause, while a thread of the owner was in a call.
#[test]
fn a_request_that_cannot_be_answered_yet_keeps_the_background_asleep() {
    let path = format!("/dev/shm/famio-asked-{}", std::process::id());
    std::fs::write(&path, [b'-'; 100]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.clone()).unwrap();
    TestHooks { still: true, ..TestHooks::default() }.enter();
    let mine = AtomicFile::open(file.as_fd(), Access::Write, &name, &with_journal()).unwrap();
    let other = Membership::new();
    other.attach(|| crate::journal::control::find_or_make(file.as_fd(), None), || Ok(false)).unwrap();
    let write = || {
        // SAFETY: the test's memory.
        assert_eq!(unsafe { mine.write(0, &[UserBuf::of(&mut b"mine".to_owned())]) }.unwrap(), 4);
    };
    write();
    mine.ownership.began(crate::sys::monotonic_now()); // long enough ago for a hand-over
    other.request_ownership();
    assert!(mine.ownership.has_requests());
    {
        let _in_a_call = mine.inner();
        assert!(mine.monitor_members(), "it has to look again");
        let mut watched = Watched::default();
        mine.watch_membership(&mut watched);
        let calls = mine.ownership.membership.calls();
        assert!(watched.words.contains(&Word::shared(calls, calls.load(Ordering::SeqCst))), "its sleep ends at once");
    }
    // A process that waits has asked each owner until it is the owner.
    mine.hand_over().unwrap();
    other.set_waits(true);
    write();
    assert!(mine.ownership.has_requests());
    other.set_waits(false);
    assert!(other.leave());
    mine.remove_descriptor(file.as_raw_fd()).unwrap();
    TestHooks::default().enter();
    std::fs::remove_file(&path).unwrap();
}
