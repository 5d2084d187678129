use super::{SLACK, begin_period, give_back, offset, spare, take, trim};
use crate::Settings;
use crate::file::engine::context::Context;
use crate::file::{Access, AtomicFile, UserBuf};
use crate::index::BLOCK;
use crate::pmem::TestHooks;
use core::sync::atomic::{AtomicU64, Ordering};
use famio_test_support::place::{self, Place};
use famio_test_support::random::Random;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Calls `test` with an atomic file of `blocks` blocks on a disk, which has a session.
fn with_file(name: &str, blocks: usize, test: impl FnOnce(&AtomicFile)) {
    let folder = Place::new(&place::disk().unwrap(), name).unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![1; blocks * BLOCK]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
    let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
    // SAFETY: the test's memory.
    unsafe { atomic.write(0, &[UserBuf::of(&mut [2; 100])]) }.unwrap();
    atomic.sync().unwrap();
    test(&atomic);
    atomic.remove_descriptor(file.as_raw_fd()).unwrap();
}

fn words<'a>(cx: Context<'a>, number: u32) -> &'a [AtomicU64; BLOCK / 8] {
    cx.arena.at(offset(number)).unwrap()
}

/// Each buffer belongs to one user at a time and has memory, whatever was given back in between.
#[test]
fn random_takes_and_trims() {
    TestHooks { still: true, busy: true, ..TestHooks::default() }.enter();
    with_file("random", 1, |atomic| {
        atomic.checkpoint().unwrap(); // or the background, which other tests wake, gives back the file's own meanwhile
        atomic.with_session(|session| {
            let cx = session.context(&atomic.fds);
            let own = cx.shared().used.load(Ordering::Relaxed);
            let mut random = Random::new(1);
            let mut taken: Vec<u32> = Vec::new();
            let mut set = BTreeSet::new();
            let mut trimmed = 0;
            for _ in 0..60 {
                match random.below(3) {
                    0 => {
                        for _ in 0..random.below(1000) {
                            let number = take(cx).unwrap();
                            assert!(set.insert(number), "buffer {number} was taken twice");
                            assert_eq!(offset(number) % BLOCK as u64, 0);
                            words(cx, number).iter().for_each(|word| word.store(number.into(), Ordering::Relaxed));
                            taken.push(number);
                        }
                    }
                    1 => {
                        for _ in 0..random.below(taken.len() as u64 + 1) {
                            let number = taken.swap_remove(random.below(taken.len() as u64) as usize);
                            let is_own = |word: &AtomicU64| word.load(Ordering::Relaxed) == number.into();
                            assert!(words(cx, number).iter().all(is_own), "buffer {number}");
                            set.remove(&number);
                            give_back(cx, number);
                        }
                    }
                    _ => {
                        let keep = begin_period(cx).unwrap().saturating_sub(random.below(1000));
                        trimmed += trim(cx, keep).unwrap();
                        let left = cx.shared().buffers_held.load(Ordering::Relaxed);
                        assert!(left >= set.len() as u64 && (left >= keep || left >= SLACK));
                    }
                }
                assert_eq!(cx.shared().used.load(Ordering::Relaxed), own + set.len() as u64);
                assert!(cx.shared().buffers_held.load(Ordering::Relaxed) >= own + set.len() as u64);
            }
            assert!(trimmed > 1000);
            taken.into_iter().for_each(|number| give_back(cx, number));
        });
    });
    TestHooks::default().enter();
}

/// The arena's file gets smaller, and the same places serve again.
#[test]
fn memory_that_was_given_back_is_taken_again() {
    TestHooks { still: true, busy: true, ..TestHooks::default() }.enter();
    with_file("again", 1, |atomic| {
        atomic.with_session(|session| {
            let cx = session.context(&atomic.fds);
            begin_period(cx).unwrap();
            let taken: Vec<u32> = (0..5000).map(|_| take(cx).unwrap()).collect();
            let (memory, end) = (cx.arena.memory(), cx.arena.len());
            assert!(memory >= 5000 * BLOCK as u64);
            taken.into_iter().for_each(|number| give_back(cx, number));
            assert_eq!(trim(cx, 0).unwrap(), 0, "all were in use in this period");
            assert!(begin_period(cx).unwrap() >= 5000);
            let surplus = spare(cx);
            let mut given = 0;
            loop {
                match trim(cx, 0).unwrap() {
                    0 => break,
                    more => given += more,
                }
            }
            assert!(surplus - given < SLACK, "{given} of {surplus}");
            assert!(cx.arena.memory() < memory - given * BLOCK as u64 + (1 << 20), "{}", cx.arena.memory());
            let taken: Vec<u32> = (0..5000).map(|_| take(cx).unwrap()).collect();
            assert_eq!(cx.arena.len(), end);
            assert!(cx.arena.memory() >= 5000 * BLOCK as u64);
            taken.into_iter().for_each(|number| give_back(cx, number));
        });
    });
    TestHooks::default().enter();
}

/// A file that was once written much kept that memory until its last close.
#[test]
fn the_background_gives_memory_back() {
    const BLOCKS: usize = 16 << 10;
    with_file("background", BLOCKS, |atomic| {
        let memory = || atomic.with_session(|session| session.arena.memory());
        // SAFETY: the test's memory.
        unsafe { atomic.write(0, &[UserBuf::of(&mut vec![3; BLOCKS * BLOCK])]) }.unwrap();
        let before = memory().unwrap();
        assert!(before > (BLOCKS * BLOCK) as u64);
        atomic.sync().unwrap();
        let begun = Instant::now();
        while memory().is_some_and(|now| now > before / 8) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?} of {before} after a minute", memory());
            std::thread::yield_now();
        }
    });
}
