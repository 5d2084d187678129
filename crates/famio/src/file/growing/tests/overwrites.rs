//! Overwrites of a few committed bytes, without a journal.

use super::disk::Disk;
use super::{Grown, is_marked, recover};
use crate::error::Result;
use crate::file::UserBuf;
use crate::file::atomic::{ATTACHED, GROWING, PLAIN};
use crate::file::state::growing_state::State;
use crate::journal::{GrowingMark, Marked, mark};
use crate::recovery::{Outcome, backup};
use crate::settings::Settings;
use proptest::prelude::*;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;

const CONTENT: &[u8] = b"0123456789";

fn of_content(name: &str) -> Grown {
    Grown::with(name, CONTENT, &Settings::default())
}

fn mark_of(file: BorrowedFd<'_>) -> GrowingMark {
    match mark::get_any(file).unwrap() {
        Some(Marked::Growing(mark)) => mark,
        other => panic!("{other:?}"),
    }
}

impl Grown {
    fn kernels(&self) -> Vec<u8> {
        // Not by an open, which would end the growth.
        let mut bytes = vec![0; 100_000];
        let read = rustix::io::pread(&self.file, &mut bytes, 0).unwrap();
        bytes[..read].to_vec()
    }

    fn with_state<T>(&self, work: impl FnOnce(&mut State, BorrowedFd<'_>) -> T) -> T {
        work(self.atomic.growing.state.lock().as_mut().unwrap(), self.file.as_fd())
    }

    fn try_write(&self, at: u64, bytes: &[u8]) -> Result<usize> {
        // SAFETY: the test's memory.
        unsafe { self.atomic.write(at, &[UserBuf::of(&mut bytes.to_vec())]) }
    }

    /// As after a kill in the middle of a SYNC: the mark commits, and the file has not got the overwrites yet.
    fn leave_within_sync(self) -> std::path::PathBuf {
        self.with_state(|state, fd| {
            let mark = GrowingMark { overwrites: state.overwrites.clone(), ..state.mark.of_size(state.committed()) };
            state.store_mark(fd, mark).unwrap();
        });
        self.leave()
    }
}

#[test]
fn a_few_bytes_need_no_journal_and_wait_in_memory_for_the_sync() {
    let grown = of_content("few");
    let (before, _) = (grown.file.metadata().unwrap().modified().unwrap(), grown.write(2, b"xyz"));
    assert_eq!((grown.state(), grown.read(), grown.kernels()), (GROWING, b"01xyz56789".to_vec(), CONTENT.to_vec()));
    assert!(grown.file.metadata().unwrap().modified().unwrap() >= before);
    grown.write(4, b"Z"); // over an overwrite
    grown.write(10, b"new");
    assert_eq!((grown.read(), grown.kernels()), (b"01xyZ56789new".to_vec(), b"0123456789new".to_vec()));
    grown.atomic.sync().unwrap();
    assert_eq!((grown.read(), grown.kernels()), (b"01xyZ56789new".to_vec(), b"01xyZ56789new".to_vec()));
    let of_mark = |grown: &Grown| grown.with_state(|state, _| (state.mark.new, state.mark.overwrites.bytes()));
    assert_eq!(of_mark(&grown), (13, 0)); // the file has them
    grown.write(12, b"W"); // in what has just been committed
    grown.atomic.sync().unwrap();
    assert_eq!((grown.kernels(), of_mark(&grown)), (b"01xyZ56789neW".to_vec(), (13, 0)));
    grown.write(0, b"-");
    grown.close();
    assert_eq!((grown.state(), std::fs::read(&grown.path).unwrap()), (PLAIN, b"-1xyZ56789neW".to_vec()));
    assert!(!is_marked(&grown.path));
    std::fs::remove_file(&grown.path).unwrap();
}

#[test]
fn parts_of_a_read_come_from_memory() {
    let grown = of_content("parts");
    grown.write(1, b"ab");
    grown.write(7, b"cd");
    for (at, len, expected) in [(0, 2, "0a"), (2, 6, "b3456c"), (8, 5, "d9"), (3, 2, "34"), (2, 1, "b")] {
        let (mut one, mut two) = (vec![0; len / 2], vec![0; len - len / 2]);
        // SAFETY: the test's memory.
        let read = unsafe { grown.atomic.read(at, &[UserBuf::of(&mut one), UserBuf::of(&mut two)]) }.unwrap();
        one.append(&mut two);
        assert_eq!(&one[..read], expected.as_bytes(), "{at}, {len}");
    }
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();
}

#[test]
fn a_kill_leaves_what_the_mark_commits() {
    for (is_committed, expected) in [(false, &b"0123456789"[..]), (true, b"01xy456789")] {
        let grown = of_content("killed");
        grown.write(2, b"xy");
        grown.write(10, b"tail");
        let path = if is_committed { grown.leave_within_sync() } else { grown.leave() };
        let copy = path.with_extension("copy");
        backup(&path, &copy, false, &Settings::default(), &|_| {}).unwrap();
        assert_eq!(std::fs::read(&copy).unwrap(), expected);
        let report = recover(&path);
        assert!(matches!(report[0].outcome, Outcome::Recovered), "{report:?}");
        assert_eq!((std::fs::read(&path).unwrap(), is_marked(&path)), (expected.to_vec(), false));
        std::fs::remove_file(&copy).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_next_open_writes_what_the_mark_has() {
    let grown = of_content("reopened");
    grown.write(9, b"!");
    let again = Grown::open(grown.leave_within_sync(), &Settings::default());
    assert_eq!(again.read(), b"012345678!");
    again.close();
    assert!(!is_marked(&again.path));
    std::fs::remove_file(&again.path).unwrap();
}

#[test]
fn what_somebody_else_wrote_after_the_kill_is_not_overwritten() {
    let grown = of_content("outsider");
    grown.write(2, b"xy");
    grown.end_time_of_changes();
    let path = grown.leave_within_sync();
    std::io::Write::write_all(&mut File::options().write(true).open(&path).unwrap(), b"mine").unwrap();
    let report = recover(&path);
    assert!(matches!(&report[0].outcome, Outcome::Conflict(text) if text.contains("another program changed")));
    assert_eq!(std::fs::read(&path).unwrap(), b"mine456789");
    std::fs::remove_file(&path).unwrap();
}

/// The open epoch of a file that gets a session: overwritten and appended bytes.
#[test]
fn a_session_takes_them_up() {
    static MANY: [u8; 100_000] = [b'm'; 100_000];
    let content = [CONTENT, &[b'.'; 200_000]].concat();
    type Change = dyn Fn(&Grown);
    let changes: [(&str, &Change); 4] = [
        ("write", &|grown: &Grown| grown.write(100, &MANY)),
        ("cut", &|grown: &Grown| grown.atomic.set_size(5000).unwrap()),
        ("fork", &|grown: &Grown| grown.atomic.grow_no_more().unwrap()),
        ("open", &|grown: &Grown| drop(File::open(&grown.path).unwrap())),
    ];
    for (name, change) in changes {
        for is_synced in [false, true] {
            let grown = Grown::with("taken-up", &content, &Settings::default());
            let mut expected = content.clone();
            let mut write = |at: usize, bytes: &[u8]| {
                grown.write(at as u64, bytes);
                expected.resize(expected.len().max(at + bytes.len()), 0);
                expected[at..at + bytes.len()].copy_from_slice(bytes);
            };
            write(3, b"first");
            if is_synced {
                grown.atomic.sync().unwrap();
            }
            write(50, b"second");
            write(content.len(), b"third");
            let committed = if is_synced { [&b"012first89"[..], &content[10..]].concat() } else { content.clone() };
            assert_eq!((grown.state(), grown.read() == expected), (GROWING, true), "{name}");
            change(&grown);
            match name {
                "write" => expected[100..100 + MANY.len()].copy_from_slice(&MANY),
                "cut" => expected.truncate(5000),
                _ => {}
            }
            assert_eq!((grown.state(), grown.read() == expected), (ATTACHED, true), "{name}");
            assert!(std::fs::read(&grown.path).unwrap()[..100] == committed[..100], "{name}: it is uncommitted");
            grown.close();
            assert!(std::fs::read(&grown.path).unwrap() == expected, "{name}");
            std::fs::remove_file(&grown.path).unwrap();
        }
    }
}

/// With many of them, a journal is the better place.
#[test]
fn many_bytes_and_holes_and_set_id_bits_need_a_journal() {
    let content = vec![b'.'; 200_000];
    let many: Vec<u8> = (0..40_000u32).map(|i| i as u8).collect();
    let grown = Grown::with("many", &content, &Settings::default());
    grown.write(0, &many);
    assert_eq!(grown.state(), ATTACHED);
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();

    let grown = Grown::with("holes", b"", &Settings::default());
    grown.file.set_len(200_000).unwrap();
    let grown = Grown::open(grown.leave(), &Settings::default());
    grown.write(100, b"abc");
    assert_eq!((grown.state(), &grown.read()[..103][100..]), (ATTACHED, &b"abc"[..]));
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();

    let grown = Grown::with("set-id", CONTENT, &Settings::default());
    grown.file.set_permissions(std::fs::Permissions::from_mode(0o4755)).unwrap();
    grown.write(1, b"abc");
    assert_eq!(grown.state(), ATTACHED);
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();
}

fn on_disk(name: &str) -> (Grown, &'static Disk) {
    let disk: &'static Disk = Box::leak(Box::default());
    let grown = of_content(name);
    grown.write(2, b"xy");
    grown.with_state(|state, _| state.medium = disk);
    (grown, disk)
}

/// As a file on a file system that finds no room where it writes anew (btrfs).
#[test]
fn what_is_committed_and_finds_no_room_is_written_later() {
    for end in ["SYNC", "kill", "session", "close"] {
        let (grown, disk) = on_disk("no-room");
        disk.fail(libc::ENOSPC);
        grown.atomic.sync().unwrap(); // it is committed
        assert_eq!((grown.read(), grown.kernels()), (b"01xy456789".to_vec(), CONTENT.to_vec()));
        grown.write(8, b"-");
        assert_eq!(grown.read(), b"01xy4567-9");
        if end == "kill" {
            let path = grown.leave();
            assert_eq!(mark_of(File::open(&path).unwrap().as_fd()).overwrites.bytes(), 2);
            assert!(matches!(recover(&path)[0].outcome, Outcome::Recovered));
            assert_eq!(std::fs::read(&path).unwrap(), b"01xy456789");
            std::fs::remove_file(&path).unwrap();
            continue;
        }
        if end == "close" {
            let closed = grown.atomic.remove_descriptor(grown.file.as_raw_fd());
            assert_eq!(closed.unwrap_err().errno(), libc::ENOSPC);
            let path = grown.leave();
            assert!(matches!(recover(&path)[0].outcome, Outcome::Recovered));
            assert_eq!(std::fs::read(&path).unwrap(), b"01xy4567-9");
            std::fs::remove_file(&path).unwrap();
            continue;
        }
        if end == "session" {
            assert_eq!(grown.atomic.grow_no_more().unwrap_err().errno(), libc::ENOSPC);
            assert_eq!((grown.read(), mark_of(grown.file.as_fd()).overwrites.bytes()), (b"01xy4567-9".to_vec(), 3));
        }
        disk.fail(0);
        if end == "SYNC" {
            grown.atomic.sync().unwrap();
            assert_eq!(grown.kernels(), b"01xy4567-9");
            grown.close();
        }
        drop(std::fs::read(&grown.path));
        let path = grown.leave();
        recover(&path);
        assert_eq!(std::fs::read(&path).unwrap(), b"01xy4567-9", "{end}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn what_is_committed_and_cannot_be_written_stays_in_the_mark() {
    let (grown, disk) = on_disk("bad");
    disk.fail(libc::EIO);
    grown.atomic.sync().unwrap(); // it is committed
    assert_eq!((grown.read(), grown.kernels()), (b"01xy456789".to_vec(), CONTENT.to_vec()));
    assert_eq!(grown.try_write(5, b"-").unwrap_err().errno(), libc::EIO);
    assert_eq!(grown.try_write(10, b"-").unwrap_err().errno(), libc::EIO);
    assert_eq!(grown.atomic.remove_descriptor(grown.file.as_raw_fd()).unwrap_err().errno(), libc::EIO);
    let path = grown.leave();
    assert_eq!(mark_of(File::open(&path).unwrap().as_fd()).overwrites.bytes(), 2);
    assert!(matches!(recover(&path)[0].outcome, Outcome::Recovered));
    assert_eq!(std::fs::read(&path).unwrap(), b"01xy456789");
    std::fs::remove_file(&path).unwrap();
}

/// On a disk whose file system keeps the order, whatever that of this test's files is.
#[test]
fn on_a_disk_the_mark_keeps_them_until_they_are_flushed() {
    for keeps_order in [true, false] {
        let grown = Grown::at(&std::env::temp_dir(), "on-disk", CONTENT, &Settings::default());
        grown.write(10, b"a");
        if grown.state() != GROWING {
            return; // the temporary files are on another kind of file system
        }
        grown.with_state(|state, _| (state.keeps_order, state.room) = (keeps_order, 1000));
        grown.atomic.sync().unwrap();
        for round in 0..20u8 {
            grown.write(3, &[b'a' + round]);
            grown.write(11 + u64::from(round), b"+");
            grown.atomic.sync().unwrap();
            if grown.state() != GROWING {
                assert!(round >= 15, "{round}");
                break;
            }
            assert_eq!(grown.with_state(|state, _| state.mark.overwrites.bytes()), 1);
            assert_eq!(grown.with_state(|state, _| state.mark.base), 12 + u64::from(round), "no hash");
        }
        assert_eq!((grown.state(), is_marked(&grown.path)), (PLAIN, false), "a journal is cheaper from here on");
        grown.write(4, b"x");
        assert_eq!(grown.state(), ATTACHED);
        grown.close();
        std::fs::remove_file(&grown.path).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { at: usize, bytes: Vec<u8> },
    SetSize(usize),
    Sync,
    KillAndOpen,
    CloseAndOpen,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0usize..5000, prop::collection::vec(any::<u8>(), 1..200));
    prop_oneof![
        8 => write.prop_map(|(at, bytes)| Step::Write { at, bytes }),
        1 => (0usize..6000).prop_map(Step::SetSize),
        3 => Just(Step::Sync),
        2 => Just(Step::KillAndOpen),
        1 => Just(Step::CloseAndOpen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Against a model that keeps the committed and the current bytes. In a session, a kill is left out.
    #[test]
    fn every_history_is_that_of_the_model(steps in prop::collection::vec(step(), 1..25)) {
        let content: Vec<u8> = (0..4000u32).map(|i| i as u8).collect();
        let mut grown = Grown::with("model", &content, &Settings::default());
        let (mut committed, mut current) = (content.clone(), content);
        for step in &steps {
            match step {
                Step::Write { at, bytes } => {
                    let at = *at.min(&current.len());
                    grown.write(at as u64, bytes);
                    current.resize(current.len().max(at + bytes.len()), 0);
                    current[at..at + bytes.len()].copy_from_slice(bytes);
                }
                Step::SetSize(size) => {
                    grown.atomic.set_size(*size as u64).unwrap();
                    current.resize(*size, 0);
                }
                Step::Sync => {
                    grown.atomic.sync().unwrap();
                    committed.clone_from(&current);
                }
                Step::KillAndOpen if grown.state() != ATTACHED => {
                    grown = Grown::open(grown.leave(), &Settings::default());
                    current.clone_from(&committed);
                }
                Step::KillAndOpen | Step::CloseAndOpen => {
                    grown.close();
                    committed.clone_from(&current);
                    grown = Grown::open(grown.path, &Settings::default());
                }
            }
            prop_assert!(grown.read() == current, "after {step:?}");
        }
        grown.close();
        prop_assert!(std::fs::read(&grown.path).unwrap() == current);
        std::fs::remove_file(&grown.path).unwrap();
    }
}
