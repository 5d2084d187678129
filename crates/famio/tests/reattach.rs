//! A file that is checkpointed, renamed or carried over a failed exec, and stays open: it is attached again at its
//! next write, any number of times, and what the previous sessions took is freed.

mod common;

use common::{Opened, Scratch, in_place_settings};
use famio::{JournalChoice, Settings};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The counts are those of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

const ROUNDS: u32 = 201;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Maps of files: of the file itself, of journals and arenas.
fn maps() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("famio")).count()
}

/// A folder on tmpfs for each kind of journal in place, and one on a disk.
fn everywhere(name: &str, mut test: impl FnMut(&Scratch, &Settings)) {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    for settings in in_place_settings().into_iter().step_by(3) {
        test(&Scratch::on_tmpfs(name), &settings);
    }
    let by_records = Settings { journal: JournalChoice::Always, ..Settings::default() };
    test(&Scratch::on_disk(name), &by_records);
}

#[test]
fn sessions_give_back_what_they_took() {
    everywhere("give-back", |dir, settings| {
        let path = dir.path().join("file");
        let opened = Opened::new(&path, settings);
        let mut first = (usize::MAX, usize::MAX);
        for round in 0..ROUNDS {
            opened.write(u64::from(round) * 100, &round.to_le_bytes());
            match round % 3 {
                0 => opened.atomic().checkpoint().unwrap(),
                1 => {
                    opened.atomic().checkpoint().unwrap();
                    let other = dir.path().join(format!("file-{round}"));
                    fs::rename(&path, &other).unwrap();
                    fs::rename(&other, &path).unwrap();
                }
                // As before an exec that then fails.
                _ => {
                    famio::file::close_all().unwrap();
                    famio::file::release_all();
                }
            }
            if round <= 8 {
                first = (first.0.min(descriptors()), first.1.min(maps()));
            }
        }
        // The background may have been using a session as it ended; that one is freed with the next.
        let as_at_first = || {
            opened.write(0, &0u32.to_le_bytes());
            famio::file::close_all().unwrap();
            famio::file::release_all();
            (descriptors(), maps()) <= first
        };
        assert!(common::comes_true(as_at_first), "{settings:?}: {:?}, first {first:?}", (descriptors(), maps()));
        for round in 0..ROUNDS {
            assert_eq!(opened.read(u64::from(round) * 100, 4), round.to_le_bytes());
        }
    });
}

/// Readers go on throughout, in whatever session they find, and never see data that was overwritten before they
/// began.
#[test]
fn readers_are_inside_while_sessions_end() {
    everywhere("readers-inside", |dir, settings| {
        let path = dir.path().join("file");
        fs::write(&path, [0; 100_000]).unwrap();
        let opened = Opened::new(&path, settings);
        let (done, written) = (AtomicBool::new(false), AtomicU8::new(0));
        let before = maps();
        std::thread::scope(|scope| {
            for reader in 0..3u64 {
                let (opened, done, written) = (&opened, &done, &written);
                scope.spawn(move || {
                    let mut at = reader;
                    while !done.load(Ordering::Relaxed) {
                        at = (at * 31 + 977) % 24;
                        let least = written.load(Ordering::SeqCst);
                        let found = opened.read(at * 4096, 4096);
                        let most = written.load(Ordering::SeqCst) + 1;
                        assert_eq!(found.len(), 4096);
                        assert!(
                            found.iter().all(|byte| (least..=most).contains(byte)),
                            "block {at}: {least} to {most}"
                        );
                    }
                });
            }
            for round in 1..=60u8 {
                for block in 0..24 {
                    opened.write(block * 4096, &[round; 4096]);
                }
                written.store(round, Ordering::SeqCst);
                opened.atomic().checkpoint().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        opened.write(0, b"once more");
        opened.atomic().checkpoint().unwrap();
        assert!(maps() <= before + 3, "{settings:?}: {} maps, {before} before", maps());
    });
}

/// It was an error (`ESTALE`) if the session in which a write had begun was closed before the write got to it.
#[test]
fn writers_never_hear_of_sessions_that_end() {
    let dir = Scratch::on_tmpfs("writers-inside");
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let opened = Opened::new(&dir.path().join("file"), &Settings::default());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let closers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        opened.atomic().checkpoint().unwrap();
                    }
                })
            })
            .collect();
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..100_000u32 {
                opened.write(u64::from(round % 7) * 4096, &round.to_le_bytes());
            }
        }));
        done.store(true, Ordering::Relaxed);
        closers.into_iter().for_each(|closer| closer.join().unwrap());
        written.unwrap();
    });
}
