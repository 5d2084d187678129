//! No space: in the file's file system, in the pool's, in the journal. The write reports it, never the SYNC;
//! committed data stays; and when there is space again, writing goes on.

mod common;
#[path = "common/crash.rs"]
mod crash;
#[path = "common/small.rs"]
mod small;

use common::{Opened, Scratch, in_place_settings};
use crash::in_place;
use famio::recovery::{Outcome, Use};
use famio::{Durability, OnKill, Settings};
use small::Small;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

#[test]
fn crash_child() {
    crash::child();
}

/// Frees the space at once: a child of another test may hold the file for a moment.
fn empty(filler: &Path) {
    let opened = File::options().write(true).truncate(true).open(filler).unwrap();
    fs::remove_file(filler).unwrap();
    // Otherwise, a file system with a journal makes none of it available for some seconds.
    // SAFETY: a descriptor.
    assert_eq!(unsafe { libc::syncfs(opened.as_raw_fd()) }, 0);
}

/// An atomic file and its expected contents.
struct Checked {
    opened: Opened,
    model: Vec<u8>,
}

impl Checked {
    fn new(path: &Path, size: usize, settings: &Settings) -> Self {
        fs::write(path, vec![1; size]).unwrap();
        Self { opened: Opened::new(path, settings), model: vec![1; size] }
    }

    /// Writes as much as possible; the errno if nothing was written.
    fn write(&mut self, at: usize, len: usize, byte: u8) -> Result<usize, i32> {
        let n = self.opened.try_write(at as u64, &vec![byte; len]).map_err(|e| e.errno())?;
        if self.model.len() < at + n {
            self.model.resize(at + n, 0);
        }
        self.model[at..at + n].fill(byte);
        Ok(n)
    }

    fn check(&self) {
        assert_eq!(self.opened.atomic().size(), self.model.len() as u64);
        let found = self.opened.read(0, self.model.len() + 10);
        let differs = found.iter().zip(&self.model).position(|(a, b)| a != b);
        assert_eq!(
            (differs, found.len()),
            (None, self.model.len()),
            "found {:?}",
            differs.map(|i| (found[i], self.model[i]))
        );
    }

    fn close(self, path: &Path) {
        drop(self.opened);
        assert!(fs::read(path).unwrap() == self.model);
        assert!(crash::get_mark(path).is_none());
    }
}

/// Appends until there is no space; an occasional SYNC never fails.
fn fill_up(file: &mut Checked, what: &str) {
    for round in 0..2000 {
        let at = file.model.len();
        match file.write(at, 30_000, round as u8 | 1) {
            Ok(n) => assert!(n > 0),
            Err(errno) => {
                assert_eq!(errno, libc::ENOSPC, "{what}");
                return;
            }
        }
        if round % 4 == 0 {
            file.opened.atomic().sync().unwrap_or_else(|e| panic!("{what}: SYNC: {e}"));
        }
    }
    panic!("{what}: never full");
}

/// For the file's place: its settings, with the pool beside it in a small file system, or elsewhere.
fn settings(on_tmpfs: bool) -> Vec<Settings> {
    if on_tmpfs {
        return [Settings::default()].into_iter().chain(in_place_settings()).collect();
    }
    let in_place = in_place().into_iter().filter(|settings| !settings.emulated);
    let in_place = in_place.map(|settings| Settings { durability: Durability::Process, ..settings });
    [Settings::default()].into_iter().chain(in_place).collect()
}

fn a_full_file_system(on_tmpfs: bool) {
    let name = if on_tmpfs { "full-tmpfs" } else { "full-ext4" };
    let Some(small) = Small::new(name, on_tmpfs, if on_tmpfs { 8 } else { 24 }) else { return };
    let free = small.free();
    for settings in settings(on_tmpfs) {
        let what = format!("{name}, {settings:?}");
        let path = small.path().join("file");
        let filler = small.path().join("filler");
        fs::write(&filler, vec![0; if on_tmpfs { 3 } else { 6 } << 20]).unwrap();
        let mut file = Checked::new(&path, 100_000, &settings);
        fill_up(&mut file, &what);
        file.opened.atomic().sync().unwrap_or_else(|e| panic!("{what}: SYNC when full: {e}"));
        file.check();
        // Data that has space may be overwritten any number of times; each write reports it if there is none.
        for round in 0..20 {
            if let Err(errno) = file.write(round * 4000, 5000, 99) {
                assert_eq!(errno, libc::ENOSPC, "{what}");
            }
            file.opened.atomic().sync().unwrap_or_else(|e| panic!("{what}: SYNC over: {e}"));
        }
        file.check();
        empty(&filler);
        let at = file.model.len();

        assert_eq!(file.write(at, 500_000, 77), Ok(500_000), "{what}: with room again");
        file.opened.atomic().sync().unwrap();
        file.check();
        // Closing with no space left for anything.
        let filler = small.fill(0);
        if let Err(errno) = file.write(10, 9000, 55) {
            assert_eq!(errno, libc::ENOSPC, "{what}");
        }
        file.close(&path);
        for path in [filler, path] {
            fs::remove_file(path).unwrap();
        }
        let left = fs::read_dir(small.path()).unwrap().filter(|e| !is_lost_and_found(e));
        let left: Vec<_> = left.map(|entry| entry.unwrap().path()).collect();

        assert!(left.is_empty(), "{what}: {left:?}");
        small.wait_for(free);
    }
}

fn is_lost_and_found(entry: &std::io::Result<fs::DirEntry>) -> bool {
    entry.as_ref().unwrap().file_name() == "lost+found"
}

#[test]
fn a_full_tmpfs() {
    a_full_file_system(true);
}

#[test]
fn a_full_ext4() {
    a_full_file_system(false);
}

/// Writes go where the file has no blocks.
#[test]
fn holes_of_a_file_on_a_full_file_system() {
    for on_tmpfs in [true, false] {
        let name = format!("holes-{on_tmpfs}");
        let Some(small) = Small::new(&name, on_tmpfs, 24) else { return };
        let free = small.free();
        for settings in settings(on_tmpfs) {
            let path = small.path().join("file");
            File::create(&path).unwrap().set_len(4 << 20).unwrap();
            let mut file = Checked { opened: Opened::new(&path, &settings), model: vec![0; 4 << 20] };
            file.write(0, 5000, 3).unwrap();
            file.opened.atomic().sync().unwrap();
            let filler = small.fill(700 << 10);
            let mut full = false;
            for at in (0..4 << 20).step_by(64 << 10) {
                match file.write(at + 100, 60_000, 9) {
                    Ok(n) => full |= n < 60_000,
                    Err(errno) => {
                        assert_eq!(errno, libc::ENOSPC, "{name}, {settings:?}");
                        full = true;
                    }
                }
                file.opened.atomic().sync().unwrap_or_else(|e| panic!("{name}, {settings:?}: SYNC: {e}"));
            }
            assert!(full, "{name}, {settings:?}: 4 MiB went into 700 KiB");
            file.check();
            empty(&filler);
            assert_eq!(file.write(3 << 20, 60_000, 5), Ok(60_000), "{name}, {settings:?}: with room again");
            file.close(&path);
            fs::remove_file(path).unwrap();
            small.wait_for(free);
        }
    }
}

/// A writer that found no space for a segment used to give back the segment that the background had just made.
#[test]
fn the_last_space_is_given_back_by_one() {
    let Some(small) = Small::in_memory("last-space", 24) else { return };
    let path = small.path().join("file");
    let free = small.free();
    for round in 0..160 {
        File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let mut file = Checked { opened: Opened::new(&path, &Settings::default()), model: vec![0; 4 << 20] };
        file.write(0, 5000, 3).unwrap();
        file.opened.atomic().sync().unwrap();
        let filler = small.fill(700 << 10);
        for at in (0..4 << 20).step_by(64 << 10) {
            let _ = file.write(at + 100, 60_000, 9);
            file.opened.atomic().sync().unwrap_or_else(|e| panic!("round {round}: SYNC: {e}"));
        }
        file.check();
        empty(&filler);
        file.close(&path);
        fs::remove_file(&path).unwrap();
        small.wait_for(free);
    }
}

/// The pool is full, the file's file system is not.
#[test]
fn a_full_pool() {
    let Some(small) = Small::new("full-pool", true, 8) else { return };
    let dir = Scratch::on_tmpfs("full-pool-file");
    let pool = small.path().join("pool");
    fs::create_dir(&pool).unwrap();
    let free = small.free();
    for settings in in_place_settings() {
        let settings = Settings { pool: Some(pool.clone()), ..settings };
        let path = dir.path().join("file");
        let mut file = Checked::new(&path, 6 << 20, &settings);
        // No space for a journal at all.
        let filler = small.fill(0);
        assert_eq!(file.write(0, 100, 9), Err(libc::ENOSPC), "{settings:?}: no room for the journal");
        file.check();
        empty(&filler);
        file.write(0, 100, 9).unwrap();
        file.opened.atomic().sync().unwrap();
        let filler = small.fill(0);
        let mut full = false;
        for at in (0..6 << 20).step_by(64 << 10) {
            match file.write(at, 60_000, 4) {
                Ok(n) => full |= n < 60_000,
                Err(errno) => {
                    assert_eq!(errno, libc::ENOSPC, "{settings:?}");
                    full = true;
                }
            }
        }
        assert!(full, "{settings:?}: an epoch of 6 MiB went into a full pool");
        file.opened.atomic().sync().unwrap();
        file.check();
        empty(&filler);
        for at in (0..4 << 20).step_by(64 << 10) {
            assert_eq!(file.write(at, 60_000, 8), Ok(60_000), "{settings:?}: with room again");
        }
        file.opened.atomic().sync().unwrap();
        file.close(&path);
        fs::remove_file(path).unwrap();
        small.wait_for(free);
    }
}

/// An append for which there is only partial space is refused as a whole; stores in maps can still be committed.
#[test]
fn a_piece_that_does_not_fit() {
    for on_tmpfs in [true, false] {
        let name = format!("piece-{on_tmpfs}");
        let Some(small) = Small::new(&name, on_tmpfs, 24) else { return };
        let path = small.path().join("file");
        let file = famio::AtomicFile::options().create(true).open(&path).unwrap();
        file.append(b"first").unwrap();
        file.sync().unwrap();
        let filler = small.fill(300 << 10);
        let error = file.append(&vec![7; 20 << 20]).unwrap_err();
        assert_eq!(error.errno(), libc::ENOSPC, "{name}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{name}: {error}");
        assert_eq!(file.len(), 5, "{name}");
        file.sync().unwrap();
        empty(&filler);
        assert_eq!(file.append(&[7; 100_000]).unwrap(), 5, "{name}");
        file.close().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 100_005, "{name}");
    }
}

/// Whether the checkpoint thread is idle.
fn background_sleeps() -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let status = tasks.filter_map(|task| fs::read_to_string(task.join("status")).ok());
    status.filter(|status| status.starts_with("Name:\tfamio\n")).all(|status| status.contains("State:\tS"))
}

/// Data written above a cut was promised space, and keeps it when the cut reaches the file.
#[test]
fn a_cut_takes_no_room_from_what_came_after_it() {
    let Some(small) = Small::new("cut-when-full", false, 24) else { return };
    let path = small.path().join("file");
    let mut file = Checked::new(&path, 4 << 20, &Settings::default());
    let rewrite = |file: &mut Checked, byte| {
        for at in (0..4 << 20).step_by(64 << 10) {
            assert_eq!(file.write(at, 64 << 10, byte), Ok(64 << 10));
        }
    };
    rewrite(&mut file, 2);
    file.opened.atomic().sync().unwrap();
    file.opened.atomic().set_size(0).unwrap();
    file.model.clear();
    rewrite(&mut file, 3);
    file.opened.atomic().sync().unwrap();
    // Also data of the open epoch: the pass that cuts the file leaves all of it in place.
    rewrite(&mut file, 4);
    let stat = || fs::metadata(&path).unwrap();
    // The size is set first: the cut is complete when the background sleeps again.
    assert!(common::comes_true(|| stat().len() == 0 && background_sleeps()), "the cut did not reach the file");
    let filler = small.fill(0);
    file.opened.atomic().sync().unwrap();
    file.check();
    file.close(&path);
    empty(&filler);
}

/// Killed when full: the committed state is recovered, with no space for anything.
#[test]
fn a_kill_on_a_full_file_system() {
    for on_tmpfs in [true, false] {
        let name = format!("killed-full-{on_tmpfs}");
        let Some(small) = Small::new(&name, on_tmpfs, 24) else { return };
        let free = small.free();
        for settings in settings(on_tmpfs) {
            small.wait_for(free); // a child of another test may have kept the filler open
            let path = small.path().join("file");
            fs::write(&path, crash::initial()).unwrap();
            let steps = crash::history();
            crash::crash(&path, &settings, &steps);
            let _ = fs::remove_file(path.with_extension("maps"));
            let filler = small.fill(0);
            let (_, committed) = crash::model(&crash::initial(), &steps);
            drop(Opened::new(&path, &settings));
            assert!(fs::read(&path).unwrap() == committed, "{name}, {settings:?}");
            for path in [filler, path] {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

/// Killed with `on-kill = keep`, and full: what complete calls had written was lost for good when it could not be made
/// durable at once.
#[test]
fn what_is_kept_waits_for_room() {
    for on_tmpfs in [true, false] {
        let name = format!("kept-full-{on_tmpfs}");
        let Some(small) = Small::new(&name, on_tmpfs, 24) else { return };
        let free = small.free();
        let mut failures = 0;
        for (settings, by_open) in settings(on_tmpfs).into_iter().flat_map(|s| [(s.clone(), false), (s, true)]) {
            small.wait_for(free);
            let settings = Settings { on_kill: OnKill::Keep, ..settings };
            let path = small.path().join("file");
            fs::write(&path, crash::initial()).unwrap();
            let mut steps = crash::history();
            steps.extend([crash::write(70_000, 3_000_000, 9)]);
            crash::crash(&path, &settings, &steps);
            let _ = fs::remove_file(path.with_extension("maps"));
            let (now, _) = crash::model(&crash::initial(), &steps);
            let filler = small.fill(0);
            for _ in 0..2 {
                if by_open {
                    let opened = Opened::new(&path, &settings);
                    assert!(opened.read(0, now.len() + 10) == now, "{name}, {settings:?}");
                    failures += u32::from(opened.close().is_err_and(|e| e.errno() == libc::ENOSPC));
                } else {
                    let report = crash::recover(&path, &Settings::default(), Use::Refuse);
                    let is_full = |e: &famio::Error| e.errno() == libc::ENOSPC;
                    failures += u32::from(matches!(&report.outcome, Outcome::Failed(e) if is_full(e)));
                }
            }
            empty(&filler);
            if by_open {
                Opened::new(&path, &settings).read(0, 1);
            } else {
                crash::recover(&path, &Settings::default(), Use::Refuse);
            }
            assert!(fs::read(&path).unwrap() == now, "{name}, {settings:?}, {by_open}");
            assert!(!small.path().join(".famio").exists(), "{name}, {settings:?}, {by_open}: leftovers");
            fs::remove_file(path).unwrap();
        }
        assert!(failures >= 2, "{name}: nothing was tested");
    }
}

/// An open used to wait 45 seconds, until the kernel took the lease away.
#[test]
fn a_growing_file_that_finds_no_room_for_a_journal_keeps_nobody_waiting() {
    for on_tmpfs in [true, false] {
        let Some(small) = Small::new(&format!("full-growing-{on_tmpfs}"), on_tmpfs, 24) else { return };
        let path = small.path().join("file");
        fs::write(&path, b"").unwrap();
        let opened = Opened::new(&path, &Settings::default());
        opened.write(0, &[1; 1000]);
        opened.atomic().sync().unwrap();
        let mut size = 1000;
        while let Ok(written @ 1..) = opened.try_write(size, &[2; 30_000]) {
            size += written as u64;
        }
        assert_eq!(fs::read(&path).unwrap().len() as u64, size, "an outsider reads it");
        // The lease is given up just before the file is demoted, so that the read may have been faster.
        assert!(common::comes_true(|| opened.atomic().is_demoted()) && crash::get_mark(&path).is_none());
        opened.atomic().sync().unwrap();
        drop(opened);
        assert_eq!(fs::metadata(&path).unwrap().len(), size);
    }
}

/// `fallocate` leaves some room on xfs.
fn fill_to_the_last_byte(small: &Small) -> std::path::PathBuf {
    let path = small.fill(0);
    let mut filler = File::options().append(true).open(&path).unwrap();
    while filler.write(&[0; 4096]).is_ok() {}
    filler.sync_all().unwrap();
    path
}

/// On a full xfs there is no room to remove a mark: the end of a session failed, and the next open.
#[test]
fn a_mark_that_cannot_be_removed() {
    let Some(small) = Small::xfs("full-xfs") else { return };
    let growing = [crash::write(0, 100_000, 1), crash::Step::Sync];
    for settings in settings(false) {
        for (dies, grows) in [(false, false), (true, false), (true, true)] {
            let what = format!("{settings:?}, dies: {dies}, grows: {grows}");
            let path = small.path().join("file");
            let contents = if grows {
                fs::write(&path, b"").unwrap();
                crash::crash(&path, &settings, &growing);
                crash::model(b"", &growing).1
            } else if dies {
                fs::write(&path, crash::initial()).unwrap();
                let steps = crash::history();
                crash::crash(&path, &settings, &steps);
                let _ = fs::remove_file(path.with_extension("maps"));
                crash::model(&crash::initial(), &steps).1
            } else {
                let mut file = Checked::new(&path, 100_000, &settings);
                assert_eq!(file.write(5_000, 5_000, 7), Ok(5_000), "{what}");
                file.opened.atomic().sync().unwrap();
                let filler = fill_to_the_last_byte(&small);
                file.opened.close().unwrap_or_else(|e| panic!("{what}: close: {e}"));
                empty(&filler);
                file.model
            };
            let filler = fill_to_the_last_byte(&small);
            assert!(crash::get_mark(&path).is_some() || !dies, "{what}");
            for _ in 0..2 {
                let opened = Opened::new(&path, &settings);
                assert!(opened.read(0, contents.len() + 10) == contents, "{what}");
                opened.close().unwrap_or_else(|e| panic!("{what}: close: {e}"));
            }
            empty(&filler);
            let opened = Opened::new(&path, &settings);
            opened.write(0, &[9; 10]);
            opened.atomic().sync().unwrap();
            opened.close().unwrap();
            assert!(fs::read(&path).unwrap()[10..] == contents[10..], "{what}");
            assert!(crash::get_mark(&path).is_none() && !small.path().join(".famio").exists(), "{what}: leftovers");
            fs::remove_file(path).unwrap();
        }
    }
}
