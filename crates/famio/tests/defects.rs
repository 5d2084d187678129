//! The thirteen defects of the published Libnvmmio code, each as a test of Famio. Those that need a program under the
//! interposer (10, 11) are in `crates/famio-preload/tests/published.rs`; number 3, the order of log data and index,
//! is in `recorder.rs`, which examines every crash between stores, flushes and fences.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch, in_place_settings};
use crash::{Crashed, Sync, everywhere, in_place, write};
use famio::{PolicyChoice, Settings};
use std::fs;
use std::os::unix::fs::FileExt;

#[test]
fn crash_child() {
    crash::child();
}

fn after_a_kill(name: &str, steps: &[crash::Step], check: impl Fn(&Crashed)) {
    let all = in_place().into_iter().map(|settings| (true, settings)).chain([(false, Settings::default())]);
    for (i, (on_tmpfs, settings)) in all.enumerate() {
        let name = format!("{name}{i}");
        let dir = if on_tmpfs { Scratch::on_tmpfs(&name) } else { Scratch::on_disk(&name) };
        let crashed = Crashed::new(dir, &settings, steps);
        check(&crashed);
        drop(Opened::new(&crashed.path, &settings));
        crashed.assert_recovered();
    }
}

/// The log folder was named by pid, emptied at start and deleted by a destructor; nothing ever read it.
#[test]
fn defect_01_no_recovery() {
    let steps = [write(0, 5000, 1), Sync, write(100, 5000, 2)];
    let first = std::cell::RefCell::new(Vec::new());
    everywhere("d01", |crashed| {
        // The name depends on the file, not the process: the next crash gives the same.
        let name = crashed.journal_path.clone();
        drop(Opened::new(&crashed.path, &crashed.settings));
        crashed.assert_recovered();
        crash::crash(&crashed.path, &crashed.settings, &steps);
        assert_eq!(crash::journals(name.parent().unwrap()), [name]);
        drop(Opened::new(&crashed.path, &crashed.settings));
        let (_, committed) = crash::model(&crashed.committed, &steps);
        assert!(fs::read(&crashed.path).unwrap() == committed);
        first.borrow_mut().push(crashed.committed.len());
    });
    assert_eq!(first.borrow().len(), 7);
}

/// Log entries held addresses of the process that wrote them.
#[test]
fn defect_02_raw_pointers_in_the_log() {
    everywhere("d02", |crashed| {
        let maps = fs::read_to_string(crashed.path.with_extension("maps")).unwrap();
        let ranges: Vec<(u64, u64)> = maps
            .lines()
            .filter_map(|line| {
                let (start, end) = line.split(' ').next()?.split_once('-')?;
                Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
            })
            .collect();
        assert!(ranges.len() > 5);
        // The data consists only of bytes written by the steps, which are no addresses.
        for (i, word) in crashed.journal.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            let address = ranges.iter().any(|(start, end)| (start..end).contains(&&word));
            assert!(!address, "{:?}: {word:#x} at byte {} is an address", crashed.settings, i * 8);
        }
    });
}

/// A second write to a range took the bytes of the first for the pre-image.
#[test]
fn defect_04_undo_captures_again() {
    let mut steps = vec![write(0, 9000, 1), Sync];
    for round in 2..20 {
        steps.push(write(100, 5000, round));
        steps.push(write(4000 + u64::from(round) * 10, 64, round));
        steps.push(write(0, 9000, round));
    }
    after_a_kill("d04", &steps, |_| {});
}

/// An epoch of reads and writes in this ratio, then one write. Returns whether the file itself, as an outsider sees
/// it, has the write before the SYNC.
fn goes_in_place(outside: &fs::File, opened: &Opened, reads: usize, writes: usize, byte: u8) -> bool {
    for i in 0..writes {
        opened.write(i as u64 * 50, &[byte; 40]);
    }
    for i in 0..reads {
        opened.read(i as u64 * 50, 40);
    }
    opened.atomic().sync().unwrap();
    opened.write(60_000, &[byte; 64]);
    let mut found = [0; 64];
    outside.read_exact_at(&mut found, 60_000).unwrap();
    opened.atomic().sync().unwrap();
    found == [byte; 64]
}

/// The policy was computed and never stored. With undo, writes show in the file at once, with redo they do not; but
/// only if nothing of the block is in the log any more, so the ratio is kept for some epochs.
#[test]
fn defect_05_the_hybrid_never_switches() {
    for emulated in [false, true] {
        let dir = Scratch::on_tmpfs(&format!("d05-{emulated}"));
        let path = dir.path().join("file");
        fs::write(&path, vec![0; 100_000]).unwrap();
        let settings = Settings { policy: PolicyChoice::Auto, emulated, ..Settings::default() };
        // Open from the beginning: so there is no lease, and a later open would change the policy.
        let outside = fs::File::open(&path).unwrap();
        let opened = Opened::new(&path, &settings);
        let mut byte = 1;
        // A share within 5 % of 40 changes nothing; the epoch examined last consists of writes only.
        for (reads, writes, undo) in [(66, 34, true), (61, 39, false), (99, 1, true), (1, 99, false), (66, 34, true)] {
            byte += 1;
            let got = goes_in_place(&outside, &opened, reads, writes, byte);
            assert_eq!(got, undo, "emulated: {emulated}, {writes} writes among {}", reads + writes);
        }
    }
}

/// The epoch of an entry had 20 bits: after 1,048,576 SYNCs all entries looked old.
#[test]
fn defect_06_epochs_wrap() {
    for policy in [PolicyChoice::Undo, PolicyChoice::Redo, PolicyChoice::Alternate] {
        let dir = Scratch::on_tmpfs(&format!("d06-{policy:?}"));
        let path = dir.path().join("file");
        fs::write(&path, vec![0; 100_000]).unwrap();
        let opened = Opened::new(&path, &Settings { policy, ..Settings::default() });
        let mut word = [0; 8];
        for epoch in 0..(1u64 << 20) + 300 {
            word = epoch.to_le_bytes();
            opened.write(8 * (epoch % 1000), &word);
            opened.atomic().sync().unwrap();
        }
        assert_eq!(opened.read(8 * (((1u64 << 20) + 299) % 1000), 8), word);
        drop(opened);
        let found = fs::read(&path).unwrap();
        for at in 0..1000u64 {
            let last = (0..(1u64 << 20) + 300).rev().find(|epoch| epoch % 1000 == at).unwrap();
            assert_eq!(found[at as usize * 8..][..8], last.to_le_bytes(), "{policy:?}: word {at}");
        }
    }
}

/// The mapping moved when the file grew, and entries kept the old addresses.
#[test]
fn defect_07_growth_moves_the_mapping() {
    let mut steps = vec![write(0, 9000, 1), Sync, write(0, 5000, 2)];
    for i in 1..8u64 {
        steps.extend([write(i * (9 << 20), 5000, 3), write(100, 50, 4 + i as u8)]);
    }
    steps.extend([Sync, write(0, 5000, 99), write(80 << 20, 100, 98), write(4000, 1000, 97)]);
    after_a_kill("d07", &steps, |_| {});
}

/// Beyond the address space that is reserved at first.
#[test]
fn defect_07_growth_beyond_the_reservation() {
    for (i, settings) in in_place_settings().into_iter().enumerate() {
        let dir = Scratch::on_tmpfs(&format!("d07-far{i}"));
        let path = dir.path().join("file");
        fs::write(&path, vec![1; 20_000]).unwrap();
        let opened = Opened::new(&path, &settings);
        opened.write(5000, &[2; 3000]);
        let far = 70u64 << 30;
        match opened.try_write(far, &[3; 3000]) {
            Ok(n) => {
                assert_eq!(opened.read(far, 5000), vec![3; n], "{settings:?}");
                opened.atomic().sync().unwrap();
                opened.write(5500, &[4; 10]);
                opened.write(far + 100, &[4; 10]);
            }
            Err(e) => {
                assert_eq!(e.errno(), libc::EFBIG, "{settings:?}: {e}");
                opened.write(5500, &[4; 10]);
            }
        }
        let found = opened.read(4900, 4000);
        assert!(found[..100] == [1; 100] && found[100..600] == [2; 500] && found[600..610] == [4; 10]);
        assert!(found[610..3100] == [2; 2490] && found[3100] == 1);
        opened.atomic().set_size(20_000).unwrap();
        drop(opened);
        assert_eq!(fs::metadata(&path).unwrap().len(), 20_000);
    }
}

/// An empty free list ended the process. More in `journal_limit.rs`.
#[test]
fn defect_08_a_full_log_ends_the_process() {
    for (i, settings) in in_place_settings().into_iter().enumerate() {
        let dir = Scratch::on_tmpfs(&format!("d08{i}"));
        let path = dir.path().join("file");
        fs::write(&path, vec![1; 4 << 20]).unwrap();
        let opened = Opened::new(&path, &Settings { journal_limit: 300_000, ..settings });
        let refused = (0..1000).filter(|i| opened.try_write(i * 4096, &[2; 4096]).is_err()).count();
        assert_eq!(refused, 1000 - 64);
        opened.atomic().sync().unwrap();
        assert_eq!(opened.try_write(3 << 20, &[3; 4096]).unwrap(), 4096);
    }
}

/// The size reached the inode at close; after a crash, the file had the allocated size, and `fstat` showed that even
/// before.
#[test]
fn defect_09_the_size_is_part_of_the_epoch() {
    let steps = [write(16_000, 7, 1), Sync, write(16_007, 5, 2), Sync, write(16_012, 100_000, 3)];
    after_a_kill("d09", &steps, |crashed| assert_eq!(crashed.committed.len(), 16_012));
    let dir = Scratch::on_tmpfs("d09");
    for (i, settings) in in_place_settings().into_iter().enumerate() {
        let path = dir.path().join(format!("file{i}"));
        let opened = Opened::new(&path, &settings);
        for size in 1..300u64 {
            opened.write(size - 1, b"x");
            assert_eq!(opened.atomic().size(), size);
            assert_eq!(opened.read(0, 1000).len() as u64, size);
        }
        drop(opened);
        assert_eq!(fs::metadata(&path).unwrap().len(), 299);
    }
}

/// A node of the free list had the size of a pointer. Here, many threads take and give back log blocks, whose memory
/// is not cleared; nothing of one block may be seen in another.
#[test]
fn defect_12_free_list_nodes_of_the_wrong_size() {
    for (i, settings) in in_place_settings().into_iter().enumerate() {
        let dir = Scratch::on_tmpfs(&format!("d12{i}"));
        let path = dir.path().join("file");
        fs::write(&path, vec![0; 4 << 20]).unwrap();
        // Few log blocks, so that they are reused for other blocks.
        let opened = Opened::new(&path, &Settings { journal_limit: 300_000, ..settings.clone() });
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let opened = &opened;
                scope.spawn(move || {
                    for i in 0..3000u64 {
                        let block = thread * 256 + i * 7 % 256;
                        while opened.try_write(block * 4096 + i % 3000, &[thread as u8 + 1; 900]).is_err() {
                            opened.atomic().sync().unwrap();
                        }
                        if i % 16 == 0 {
                            opened.atomic().sync().unwrap();
                        }
                    }
                });
            }
        });
        drop(opened);
        let found = fs::read(&path).unwrap();
        let foreign = found.iter().enumerate().find(|(at, byte)| **byte != 0 && **byte as usize != at / (1 << 20) + 1);
        assert_eq!(foreign, None, "{settings:?}");
    }
}

fn threads_named_famio() -> Vec<std::path::PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "famio")).collect()
}

/// A polling thread for every open file.
#[test]
fn defect_13_a_polling_thread_for_every_file() {
    let dir = Scratch::on_tmpfs("d13");
    let settings = Settings::default();
    let all: Vec<Opened> = (0..40)
        .map(|i| {
            let opened = Opened::new(&dir.path().join(format!("file{i}")), &settings);
            opened.write(0, &[1; 5000]);
            opened.atomic().sync().unwrap();
            opened
        })
        .collect();
    let threads = threads_named_famio();
    assert!(threads.len() <= 1, "{threads:?}");
    drop(all);
    // When idle, it sleeps in a futex without a time-out, until it is woken. Other tests of this process may wake it.
    let sleeps = || {
        let call = fs::read_to_string(threads_named_famio()[0].join("syscall")).unwrap();
        let words: Vec<&str> = call.split_whitespace().collect();
        let waits = [libc::SYS_futex, libc::SYS_futex_waitv].map(|call| call.to_string());
        waits.iter().any(|call| call == words[0]) && words[4] == "0x0"
    };
    assert!(common::comes_true(sleeps), "it does not come to rest");
}
