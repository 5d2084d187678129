//! Failures seen with the published Libnvmmio and MadFS, each as a test of Famio. Those of whole programs are in
//! `crates/famio-preload/tests/published.rs`.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch, in_place_settings};
use crash::{Sync, in_place, write};
use famio::Settings;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

#[test]
fn crash_child() {
    crash::child();
}

fn all(name: &str) -> Vec<(Settings, Scratch)> {
    let on_tmpfs = in_place_settings().into_iter().enumerate();
    let on_tmpfs = on_tmpfs.map(|(i, settings)| (settings, Scratch::on_tmpfs(&format!("{name}{i}"))));
    on_tmpfs.chain([(Settings::default(), Scratch::on_disk(name))]).collect()
}

/// It hung: the depth of the index was fixed when the file was opened.
#[test]
fn eight_megabytes_to_a_new_file() {
    for (settings, dir) in all("eight") {
        let path = dir.path().join("file");
        let data: Vec<u8> = (0..8 << 20).map(|i: u32| (i >> 12) as u8 ^ i as u8).collect();
        let opened = Opened::new(&path, &settings);
        assert_eq!(opened.try_write(0, &data).unwrap(), 8 << 20);
        opened.atomic().sync().unwrap();
        assert!(opened.read(0, 9 << 20) == data, "{settings:?}");
        drop(opened);
        assert!(fs::read(&path).unwrap() == data, "{settings:?}");
    }
}

/// They shared a log entry.
#[test]
fn blocks_two_megabytes_apart() {
    for (i, settings) in in_place().into_iter().chain([Settings::default()]).enumerate() {
        let name = format!("apart{i}");
        let dir = if i < 6 { Scratch::on_tmpfs(&name) } else { Scratch::on_disk(&name) };
        let path = dir.path().join("file");
        let initial = vec![1; 9 << 20];
        fs::write(&path, &initial).unwrap();
        let mut steps = Vec::new();
        for epoch in 0..3u8 {
            steps.extend((0..4u64).map(|i| write((i << 21) + 100, 3000, 10 * epoch + i as u8 + 2)));
            steps.push(Sync);
        }
        steps.pop();
        crash::crash(&path, &settings, &steps);
        drop(Opened::new(&path, &settings));
        assert!(fs::read(&path).unwrap() == crash::model(&initial, &steps).1, "{settings:?}");
    }
}

/// A wrong count; and a read at the end of the file returned the full length.
#[test]
fn counts_across_blocks_and_at_the_end() {
    for (settings, dir) in all("counts") {
        let path = dir.path().join("file");
        let opened = Opened::new(&path, &settings);
        for (at, len) in [(4000, 200), (4095, 2), (0, 4097), (8191, 8194), (100, 20_000)] {
            assert_eq!(opened.try_write(at, &vec![5; len]).unwrap(), len, "{settings:?}");
        }
        let size = opened.atomic().size();
        assert_eq!(size, 20_100);
        for (at, len, got) in [(20_000, 500, 100), (20_099, 10, 1), (20_100, 10, 0), (30_000, 10, 0), (4000, 200, 200)]
        {
            assert_eq!(opened.read(at, len).len(), got, "{settings:?}: {len} at {at}");
        }
    }
}

fn journal_bytes(dir: &Path) -> u64 {
    crash::journals(&dir.join(".famio")).iter().map(|path| fs::metadata(path).unwrap().blocks() * 512).sum()
}

/// Reads took log entries.
#[test]
fn reads_take_nothing() {
    for (settings, dir) in all("reads") {
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 8 << 20]).unwrap();
        let opened = Opened::new(&path, &settings);
        assert_eq!(opened.read(0, 8 << 20).len(), 8 << 20);
        assert!(!dir.path().join(".famio").exists(), "{settings:?}: a reader made a journal");
        assert!(crash::get_mark(&path).is_none());
        opened.write(0, &[8; 100]);
        opened.atomic().sync().unwrap();
        let before = journal_bytes(dir.path());
        for at in (0..8 << 20).step_by(4096) {
            opened.read(at, 4096);
        }
        if settings.emulated || dir.path().starts_with("/dev/shm") {
            assert_eq!(journal_bytes(dir.path()), before, "{settings:?}");
        }
    }
}

/// A thread that ended took its log entries with it.
#[test]
fn threads_that_exit_leak_nothing() {
    for (i, settings) in in_place_settings().into_iter().enumerate() {
        let dir = Scratch::on_tmpfs(&format!("exit{i}"));
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let opened = Opened::new(&path, &Settings { journal_limit: 300_000, ..settings.clone() });
        for round in 0..500u64 {
            std::thread::scope(|scope| {
                scope.spawn(|| opened.write(round % 200 * 4096, &[round as u8; 4096]));
            });
            if round % 8 == 0 {
                opened.atomic().sync().unwrap();
            }
        }
        assert!(journal_bytes(dir.path()) <= 300_000);
        opened.atomic().sync().unwrap();
        drop(opened);
        let found = fs::read(&path).unwrap();
        assert!((300..500).all(|round: usize| found[round % 200 * 4096] == round as u8), "{settings:?}");
    }
}

/// Data without an fsync was lost at a normal exit.
#[test]
fn what_was_not_synced_is_there_after_a_close() {
    for (settings, dir) in all("close") {
        let path = dir.path().join("file");
        let opened = Opened::new(&path, &settings);
        opened.write(0, b"synced, ");
        opened.atomic().sync().unwrap();
        opened.write(8, b"not synced");
        drop(opened);
        assert_eq!(fs::read(&path).unwrap(), b"synced, not synced", "{settings:?}");
    }
}

/// The processor time of this thread; waiting on a busy machine does not count.
fn time_of_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median_sync(opened: &Opened, block: u64) -> Duration {
    let mut times: Vec<Duration> = (0..101u8)
        .map(|i| {
            opened.write(block * 4096, &[i; 4096]);
            let before = time_of_thread();
            opened.atomic().sync().unwrap();
            time_of_thread() - before
        })
        .collect();
    times.sort();
    times[50]
}

/// Every fsync scanned the whole index.
#[test]
fn a_sync_costs_what_was_written() {
    for (i, settings) in in_place().into_iter().enumerate() {
        let dir = Scratch::on_tmpfs(&format!("scan{i}"));
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 96 << 20]).unwrap();
        let opened = Opened::new(&path, &settings);
        let few = median_sync(&opened, 3);
        // 20,000 blocks in the index, and in the log.
        for block in 0..20_000 {
            opened.write(block * 4096, &[1; 64]);
        }
        opened.atomic().sync().unwrap();
        let many = median_sync(&opened, 3);
        assert!(many < few * 20 + Duration::from_micros(20), "{settings:?}: {few:?}, with many blocks {many:?}");
    }
}

/// A fifth of the kills in the middle of an fsync after every 100 writes of 64 KiB left a torn block.
#[test]
fn kills_in_the_middle_of_a_sync_of_large_writes() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    for (i, settings) in in_place().into_iter().enumerate() {
        let dir = Scratch::on_tmpfs(&format!("torn{i}"));
        let path = dir.path().join("file");
        fs::write(&path, vec![0; 100 * 65_536]).unwrap();
        for kill in 0..6u64 {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "large_writes_child", "--nocapture"]).env("FAMIO_LARGE", &path);
            command.env("FAMIO_LARGE_POLICY", i.to_string()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let wait = 2 + kill % 4;
            let acked = lines.by_ref().map_while(Result::ok).filter_map(|line| line.parse::<u8>().ok());
            let acked = acked.take(wait as usize).last().expect("the child ended");
            for _ in 0..kill * 104_729 % 400_000 {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let acked = lines.map_while(Result::ok).filter_map(|line| line.parse::<u8>().ok()).last().unwrap_or(acked);
            drop(Opened::new(&path, &settings));
            let found = fs::read(&path).unwrap();
            let epoch = found[0];
            assert!(found.iter().all(|&byte| byte == epoch), "{settings:?}: torn after kill {kill}");
            assert!(epoch == acked || epoch == acked.wrapping_add(1), "{settings:?}: {epoch} after {acked}");
        }
    }
}

/// The process of the test above.
#[test]
fn large_writes_child() {
    let Ok(path) = std::env::var("FAMIO_LARGE") else { return };
    let which: usize = std::env::var("FAMIO_LARGE_POLICY").unwrap().parse().unwrap();
    let path = Path::new(&path);
    let from = fs::read(path).unwrap()[0];
    let opened = Opened::new(path, &in_place()[which]);
    let from = opened.read(0, 1).first().copied().unwrap_or(from);
    for epoch in 1..=250u8 {
        let byte = from.wrapping_add(epoch);
        for i in 0..100 {
            opened.write(i * 65_536, &vec![byte; 65_536]);
        }
        opened.atomic().sync().unwrap();
        eprintln!("{byte}");
    }
}

/// MadFS: creating or opening a file took milliseconds, and left an object in shared memory.
#[test]
fn opening_is_quick_and_leaves_nothing_in_shared_memory() {
    for (settings, dir) in all("open") {
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 10_000]).unwrap();
        let mut times: Vec<Duration> = (0..51)
            .map(|_| {
                let before = time_of_thread();
                let opened = Opened::new(&path, &settings);
                let time = time_of_thread() - before;
                assert_eq!(opened.read(0, 10), [7; 10]);
                time
            })
            .collect();
        times.sort();
        assert!(times[25] < Duration::from_millis(1), "{settings:?}: {:?}", times[25]);
        let opened = Opened::new(&path, &settings);
        opened.write(0, &[8; 10]);
        drop(opened);
        assert!(!crash::arena(&path).exists(), "{settings:?}");
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"], "{settings:?}");
    }
}

/// MadFS: without garbage collection, 64 MiB became 170 MiB.
#[test]
fn rewriting_a_file_does_not_make_it_larger() {
    for (i, settings) in in_place_settings().into_iter().enumerate() {
        let dir = Scratch::on_tmpfs(&format!("grows{i}"));
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 8 << 20]).unwrap();
        let opened = Opened::new(&path, &Settings { journal_limit: 4 << 20, ..settings.clone() });
        for round in 0..30u64 {
            for i in 0..256 {
                opened.write((round * 37 + i) % 2048 * 4096, &[round as u8; 4096]);
            }
            opened.atomic().sync().unwrap();
        }
        let size = fs::metadata(&path).unwrap().blocks() * 512;
        assert!(size <= 8 << 20, "{settings:?}: the file takes {size} bytes");
        assert!(journal_bytes(dir.path()) <= 4 << 20, "{settings:?}");
        drop(opened);
        let stat = fs::metadata(&path).unwrap();
        assert!(stat.len() == 8 << 20 && stat.blocks() * 512 <= 8 << 20, "{settings:?}");
    }
}
