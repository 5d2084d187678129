use super::*;
use crate::file::{Access, AtomicFile};
use crate::{PolicyChoice, Settings};
use famio_test_support::random::Random;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

const BLOCKS: u8 = 4;

struct Opened {
    path: String,
    file: File,
    atomic: Arc<AtomicFile>,
}

impl Opened {
    /// A file of four blocks, each with an entry, and this thread in exclusive mode.
    fn new(name: &str) -> Self {
        let path = format!("/dev/shm/famio-deferred-{}-{name}", std::process::id());
        std::fs::write(&path, vec![0; usize::from(BLOCKS) * BLOCK]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let settings = Settings { policy: PolicyChoice::Alternate, ..Settings::default() };
        let name = std::ffi::CString::new(path.clone()).unwrap();
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &settings).unwrap();
        let opened = Self { path, file, atomic };
        opened.own(1);
        opened
    }

    /// Writes all blocks three times, from value `first` on.
    fn own(&self, first: u8) {
        loop {
            self.write(0, first);
            self.atomic.sync().unwrap();
            if self.atomic.has_lease() {
                break;
            }
            self.atomic.ask_for_lease();
        }
        for round in first..first + 3 {
            (0..BLOCKS).for_each(|block| self.write(block.into(), round));
            self.atomic.sync().unwrap();
        }
    }

    fn write(&self, block: u64, value: u8) {
        let mut bytes = [value; BLOCK];
        let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
        // SAFETY: a live buffer.
        assert_eq!(unsafe { self.atomic.write(block * BLOCK as u64, &buf) }.unwrap(), BLOCK);
    }

    /// Writes a block so that it is deferred: again if the background has carried it out before this thread ran
    /// on.
    #[track_caller]
    fn defer_block(&self, block: u64, value: u8) {
        let is_put_off = |round| {
            if round > 0 {
                self.atomic.sync().unwrap(); // exclusive mode again after some SYNCs
            }
            self.write(block, value);
            if self.deferred().is_none() {
                self.write(block, value); // the epoch's first is not, if each write was synced
            }
            self.deferred() == Some(block)
        };
        assert!((0..1000).any(is_put_off), "{:?}", self.deferred());
    }

    fn read(&self, block: u64) -> u8 {
        let mut bytes = [0; BLOCK];
        let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
        // SAFETY: a live buffer.
        assert_eq!(unsafe { self.atomic.read(block * BLOCK as u64, &buf) }.unwrap(), BLOCK);
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a mix");
        bytes[0]
    }

    /// The block of the newest deferred write.
    fn deferred(&self) -> Option<u64> {
        self.all_deferred().last().copied()
    }

    /// The blocks of all deferred writes, in order.
    fn all_deferred(&self) -> Vec<u64> {
        let all = |session: &Session| session.arena.shared().deferred.all().map(|(what, _)| what.block).collect();
        self.atomic.with_session(all).unwrap()
    }

    fn write_part(&self, offset: u64, bytes: &mut [u8]) {
        let buf = [UserBuf::of(bytes)];
        // SAFETY: a live buffer.
        assert_eq!(unsafe { self.atomic.write(offset, &buf) }.unwrap(), bytes.len());
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(BLOCKS) * BLOCK];
        let buf = [UserBuf::of(&mut bytes)];
        // SAFETY: a live buffer.
        assert_eq!(unsafe { self.atomic.read(0, &buf) }.unwrap(), bytes.len());
        bytes
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.atomic.remove_descriptor(self.file.as_raw_fd()).unwrap();
        std::fs::remove_file(&self.path).unwrap();
    }
}

#[test]
fn a_block_that_is_synced_at_once_is_copied_once() {
    let opened = Opened::new("first");
    opened.defer_block(0, 10); // the last epoch had four writes
    opened.atomic.sync().unwrap();
    opened.write(0, 10);
    opened.atomic.sync().unwrap();
    for block in 1..4 {
        opened.write(block, 10);
        assert_eq!(opened.deferred(), None);
        opened.atomic.sync().unwrap();
    }
    assert_eq!(opened.content(), [10; 4 * BLOCK]);
    opened.write(0, 11);
    opened.defer_block(1, 11); // the second of the epoch
}

#[test]
fn a_whole_block_is_put_off_until_the_next_call() {
    let opened = Opened::new("next");
    opened.defer_block(1, 10);
    opened.defer_block(2, 20);
    opened.defer_block(2, 21); // replaces it
    assert_eq!((opened.read(1), opened.read(2), opened.read(3)), (10, 21, 3));
    assert_eq!(opened.deferred(), None);
    opened.write(3, 30);
    opened.atomic.sync().unwrap();
    assert_eq!((opened.deferred(), opened.read(3)), (None, 30));
}

/// A process that was killed long after its last write, but soon after the SYNC that carried it out, had an
/// outsider to blame.
#[test]
fn the_time_of_the_last_change_is_that_of_carrying_it_out() {
    let opened = Opened::new("time");
    opened.defer_block(1, 10);
    let set = |session: &Session| {
        session.arena.shared().leave_at(libc::timespec { tv_sec: 1, tv_nsec: 0 });
    };
    opened.atomic.with_session(set).unwrap();
    opened.atomic.sync().unwrap();
    let touched =
        || opened.atomic.with_session(|session| session.arena.shared().touched.load(Ordering::Relaxed)).unwrap();
    assert!(touched() > 1_000_000_000);
    // Nothing was deferred; but a SYNC, or the trimming of private pages, may write blocks back.
    opened.atomic.with_session(set).unwrap();
    opened.atomic.with_session(|session| session.close_gate(&opened.atomic.fds).map(drop)).unwrap().unwrap();
    assert!(touched() > 1_000_000_000);
}

/// A SYNC after it, and a kill, had an outsider to blame.
#[test]
fn a_time_that_was_set_in_the_future_stays_that_of_the_last_change() {
    let opened = Opened::new("future");
    let touched =
        || opened.atomic.with_session(|session| session.arena.shared().touched.load(Ordering::Relaxed)).unwrap();
    let future = libc::timespec { tv_sec: 9_000_000_000, tv_nsec: 5 };
    for with_closed_gate in [false, true] {
        opened.write(0, 10);
        opened.atomic.times_were_set(future);
        opened.atomic.with_session(|session| session.may_be_exclusive.store(!with_closed_gate, Ordering::Relaxed));
        opened.atomic.sync().unwrap();
        assert_eq!(touched() / 1_000_000_000, 9_000_000_000);
    }
    opened.write(0, 11);
    assert!(touched() / 1_000_000_000 < 9_000_000_000);
}

#[test]
fn a_small_write_stays_one_call_longer() {
    let opened = Opened::new("small");
    for block in 0..4u64 {
        opened.write_part(block * BLOCK as u64 + 64, &mut [40 + block as u8; 128]);
    }
    assert_eq!(opened.all_deferred(), [2, 3]);
    opened.write_part(3 * BLOCK as u64 + 256, &mut [50; 64]); // the last one's block: nothing to wait for
    assert_eq!(opened.all_deferred(), [0; 0]);
    opened.write_part(64, &mut [60; 600]); // not small
    opened.write_part(BLOCK as u64 - 64, &mut [70; 128]); // in two blocks
    assert_eq!(opened.all_deferred(), [0; 0]);
    opened.write_part(2 * BLOCK as u64, &mut [80; 64]);
    opened.write(1, 90);
    assert_eq!(opened.all_deferred(), [1]);
    opened.write_part(2 * BLOCK as u64 + 64, &mut [81; 64]); // where the last one went
    assert_eq!(opened.all_deferred(), [0; 0]);
    opened.atomic.sync().unwrap();
    assert_eq!(opened.all_deferred(), [0; 0]);
    let at = |offset: usize| opened.content()[offset];
    assert_eq!([at(0), at(64), at(663), at(664), at(BLOCK - 65), at(BLOCK - 64)], [3, 60, 60, 3, 3, 70]);
    assert_eq!([at(BLOCK), at(2 * BLOCK), at(2 * BLOCK + 64), at(2 * BLOCK + 128)], [90, 80, 81, 42]);
    assert_eq!([at(3 * BLOCK + 64), at(3 * BLOCK + 256), at(3 * BLOCK + 320)], [43, 50, 3]);
}

/// Also in the file, when it is demoted.
#[test]
fn random_writes_leave_what_was_written() {
    let opened = Opened::new("random");
    let mut random = Random::new(7);
    let mut next = |below: usize| random.below(below as u64) as usize;
    let mut expected = vec![3; usize::from(BLOCKS) * BLOCK];
    let mut deferred = 0;
    for round in 0..20_000 {
        let len = [64, 128, 1 + next(700), BLOCK][next(4)];
        let granules = if len.is_multiple_of(64) { 64 } else { 1 };
        let at = next((expected.len() - len) / granules + 1) * granules;
        let at = if len == BLOCK { at / BLOCK * BLOCK } else { at };
        let mut bytes = vec![round as u8; len];
        opened.write_part(at as u64, &mut bytes);
        expected[at..at + len].copy_from_slice(&bytes);
        deferred += opened.all_deferred().len();
        match next(20) {
            0 => opened.atomic.sync().unwrap(),
            1 => assert!(opened.content() == expected, "round {round}"),
            _ => {}
        }
    }
    opened.atomic.sync().unwrap();
    assert!(opened.content() == expected && deferred > 1000, "{deferred} were deferred");
    let path = opened.path.clone();
    opened.atomic.demote().unwrap();
    assert!(std::fs::read(path).unwrap() == expected);
}

#[test]
fn reads_of_other_blocks_leave_it() {
    let opened = Opened::new("reads");
    opened.defer_block(1, 10);
    assert_eq!((opened.read(0), opened.read(2), opened.deferred()), (3, 3, Some(1)));
    let mut bytes = [0; 2];
    let mut read = |offset: u64| {
        let buf = [UserBuf::of(&mut bytes)];
        // SAFETY: a live buffer.
        assert_eq!(unsafe { opened.atomic.read(offset, &buf) }.unwrap(), 2);
        bytes
    };
    assert_eq!((read(BLOCK as u64 - 2), opened.deferred()), ([3, 3], Some(1)));
    assert_eq!((read(BLOCK as u64 - 1), opened.deferred()), ([3, 10], None));
    assert_eq!(opened.read(1), 10);
}

#[test]
fn others_see_it_and_write_over_it() {
    let opened = Opened::new("others");
    opened.write(1, 10);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(opened.read(1), 10));
    });
    for round in 11..40 {
        while opened.deferred().is_none() {
            opened.write(0, round); // exclusive mode again after some SYNCs
            opened.atomic.sync().unwrap();
            opened.write(1, round);
            opened.write(1, round);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                opened.write(1, 100 + round);
                assert_eq!(opened.read(1), 100 + round);
            });
        });
        assert_eq!(opened.read(1), 100 + round);
    }
}

#[test]
fn bytes_that_lie_anywhere_in_the_callers_memory_arrive() {
    let opened = Opened::new("anywhere");
    let mut bytes: Vec<u8> = (0..BLOCK + 128).map(|i| (i * 7 + i / 256) as u8).collect();
    for shift in 0..128 {
        let block = shift as u64 % u64::from(BLOCKS);
        let buf = [UserBuf { base: bytes[shift..].as_mut_ptr(), len: BLOCK }];
        // SAFETY: a live buffer.
        assert_eq!(unsafe { opened.atomic.write(block * BLOCK as u64, &buf) }.unwrap(), BLOCK);
        assert_eq!(opened.deferred(), Some(block));
        let mut read = [0; BLOCK];
        let buf = [UserBuf { base: read.as_mut_ptr(), len: BLOCK }];
        // SAFETY: a live buffer.
        assert_eq!(unsafe { opened.atomic.read(block * BLOCK as u64, &buf) }.unwrap(), BLOCK);
        assert!(read == bytes[shift..shift + BLOCK], "shift {shift}");
    }
}

#[test]
fn a_bad_buffer_leaves_what_was_put_off() {
    let opened = Opened::new("bad");
    opened.write(1, 10);
    // SAFETY: two pages of our own, the second of which is taken away again.
    let pages = unsafe {
        let pages = libc::mmap(core::ptr::null_mut(), 8192, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        libc::munmap(pages.byte_add(4096), 4096);
        pages.cast::<u8>()
    };
    for (block, from) in [(1, 2048), (2, 2048), (1, 4096)] {
        let buf = [UserBuf { base: pages.wrapping_add(from), len: BLOCK }];
        // SAFETY: bad memory is an error.
        let result = unsafe { opened.atomic.write(block * BLOCK as u64, &buf) };
        assert_eq!(result.unwrap_err().errno(), libc::EFAULT);
        assert_eq!(opened.deferred(), Some(1));
    }
    assert_eq!((opened.read(1), opened.read(2)), (10, 3));
    // SAFETY: ours.
    unsafe { libc::munmap(pages.cast(), 4096) };
}

#[test]
fn it_is_part_of_what_a_cut_cuts_and_what_is_closed() {
    let opened = Opened::new("cut");
    opened.write(2, 20);
    opened.write(3, 30);
    opened.atomic.set_size(3 * BLOCK as u64 + 100).unwrap();
    opened.atomic.set_size(4 * BLOCK as u64).unwrap();
    let mut bytes = [1; BLOCK];
    let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
    // SAFETY: a live buffer.
    assert_eq!(unsafe { opened.atomic.read(3 * BLOCK as u64, &buf) }.unwrap(), BLOCK);
    assert!(bytes[..100] == [30; 100] && bytes[100..].iter().all(|&byte| byte == 0));
    opened.atomic.set_size(BLOCK as u64).unwrap();
    opened.write(1, 20); // makes the file longer
    assert_eq!((opened.deferred(), opened.atomic.size()), (None, 2 * BLOCK as u64));
    opened.write(0, 40);
    opened.atomic.sync().unwrap();
    opened.write(1, 50);
    let path = opened.path.clone();
    opened.atomic.demote().unwrap();
    let file = std::fs::read(path).unwrap();
    assert!(file[..BLOCK] == [40; BLOCK] && file[BLOCK..2 * BLOCK] == [50; BLOCK] && file.len() == 2 * BLOCK);
}

/// Bytes of a block that was cut off are not seen again, wherever they were stored.
#[test]
fn what_grew_was_written_whole_and_cut_is_zeros() {
    let opened = Opened::new("grown");
    let size = (u64::from(BLOCKS) + 1) * BLOCK as u64;
    opened.atomic.set_size(size).unwrap();
    opened.atomic.sync().unwrap();
    let block = u64::from(BLOCKS);
    // Its entry comes from a small write, to the log and then back to the file.
    for _ in 0..2 {
        let mut bytes = [9; 100];
        let buf = [UserBuf { base: bytes.as_mut_ptr(), len: bytes.len() }];
        // SAFETY: a live buffer.
        assert_eq!(unsafe { opened.atomic.write(block * BLOCK as u64, &buf) }.unwrap(), bytes.len());
        opened.atomic.sync().unwrap();
    }
    for round in 0..4 {
        opened.write(block, 50 + round);
        opened.write(0, round);
        opened.atomic.sync().unwrap();
    }
    opened.atomic.set_size(size - BLOCK as u64).unwrap();
    opened.atomic.set_size(size).unwrap();
    assert_eq!(opened.read(block), 0);
}

/// A reader that still has the last session, with the same arena.
#[test]
fn who_comes_by_an_old_session_leaves_it_alone() {
    let opened = Opened::new("old");
    let (to_thread, go_on) = std::sync::mpsc::channel::<()>();
    let (to_test, is_in) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let opened = &opened;
        let reader = scope.spawn(move || {
            let old = opened.atomic.session().unwrap();
            to_test.send(()).unwrap();
            go_on.recv().unwrap();
            let mut bytes = [0; BLOCK];
            let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
            // SAFETY: a live buffer.
            let read = unsafe { old.read(&opened.atomic.fds, BLOCK as u64, &buf) };
            // SAFETY: as above.
            let written = unsafe { old.write(&opened.atomic.fds, 2 * BLOCK as u64, &buf) };
            [read, written].map(|result| result.unwrap_err().is_session_ended())
        });
        is_in.recv().unwrap();
        opened.atomic.checkpoint().unwrap();
        opened.own(4);
        opened.defer_block(1, 10);
        to_thread.send(()).unwrap();
        assert_eq!(reader.join().unwrap(), [true; 2]);
    });
    assert_eq!((opened.read(1), opened.read(2)), (10, 6));
    opened.atomic.sync().unwrap();
    assert_eq!((opened.read(1), opened.read(2)), (10, 6));
}

/// A signal handler that interrupted a call of this thread does not enter and leave below it.
#[test]
fn a_handler_in_a_call_does_not_carry_it_out() {
    let opened = Opened::new("handler");
    opened.write(1, 10);
    let held = crate::thread::Held::of_file();
    let mut bytes = [0; BLOCK];
    let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
    // SAFETY: a live buffer.
    let read = unsafe { opened.atomic.read(BLOCK as u64, &buf) };
    assert_eq!((read.unwrap_err().errno(), opened.deferred()), (libc::EDEADLK, Some(1)));
    drop(held);
    assert_eq!(opened.read(1), 10);
}
