//! Groups: files that are committed together, whichever of them is synced, and whenever the process is killed.

mod common;
#[path = "common/traced.rs"]
mod traced;

use common::{Opened, Scratch};
use famio::file::{UserBuf, Whole};
use famio::{Durability, PolicyChoice, Region, Settings, TierChoice};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use traced::Traced;

/// Where the files and their journals lie.
const PLACES: [&str; 5] = ["undo", "redo", "alternate", "disk", "tiered"];

fn settings(place: &str, folder: &Path) -> Settings {
    let policy = match place {
        "undo" => PolicyChoice::Undo,
        "redo" => PolicyChoice::Redo,
        "alternate" => PolicyChoice::Alternate,
        _ => PolicyChoice::Auto,
    };
    let settings = Settings { group: Some(1), policy, ..Settings::default() };
    match place {
        "disk" => settings,
        "tiered" => Settings {
            pool: Some(pool_of(folder)),
            durability: Durability::Process,
            emulated: true,
            tier: TierChoice::Auto,
            ..settings
        },
        _ => Settings { emulated: true, ..settings },
    }
}

/// A pool in memory for files in a folder on a disk.
fn pool_of(folder: &Path) -> PathBuf {
    Path::new("/dev/shm").join(folder.file_name().unwrap()).with_extension("pool")
}

/// The folder of a test, its pool and its group: tests of one process are not committed together.
struct Place {
    name: &'static str,
    group: u32,
    scratch: Scratch,
    pool: Option<PathBuf>,
}

impl Place {
    fn new(name: &'static str, test: &str) -> Self {
        let on_disk = ["disk", "tiered"].contains(&name);
        let test = format!("{test}-{name}");
        let scratch = if on_disk { Scratch::on_disk(&test) } else { Scratch::on_tmpfs(&test) };
        let pool = (name == "tiered").then(|| pool_of(scratch.path()));
        pool.iter().for_each(|pool| fs::create_dir_all(pool).unwrap());
        static GROUPS: AtomicU32 = AtomicU32::new(10);
        Self { name, group: GROUPS.fetch_add(1, Ordering::Relaxed), scratch, pool }
    }

    fn settings(&self) -> Settings {
        Settings { group: Some(self.group), ..settings(self.name, self.scratch.path()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn open(&self, name: &str) -> Opened {
        Opened::new(&self.path(name), &self.settings())
    }

    fn child(&self, steps: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).stdin(Stdio::piped()).stdout(Stdio::null());
        command.env("GROUP_FOLDER", self.scratch.path()).env("GROUP_PLACE", self.name).env("GROUP_STEPS", steps);
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What a recovery makes of a file.
    fn recovered(&self, name: &str) -> Vec<u8> {
        let opened = self.open(name);
        opened.read(0, 1 << 20)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.iter().for_each(|pool| drop(fs::remove_dir_all(pool)));
    }
}

/// Runs in a process of its own: the steps, or as many rounds as there is time for.
#[test]
fn child() {
    let Ok(folder) = std::env::var("GROUP_FOLDER") else { return };
    let place: &'static str = std::env::var("GROUP_PLACE").unwrap().leak();
    let steps = std::env::var("GROUP_STEPS").unwrap();
    let (steps, group) = steps.strip_prefix("alone ").map_or((&*steps, Some(1)), |steps| (steps, None));
    let settings = Settings { group, ..settings(place, Path::new(&folder)) };
    // SAFETY: no arguments.
    eprintln!("thread {}", unsafe { libc::gettid() });
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let open = |name: &str| Some(Opened::new(&Path::new(&folder).join(name), &settings));
    let mut files = [open("a"), open("b")];
    if steps == "rounds" {
        return rounds(&files.each_ref().map(|file| file.as_ref().unwrap()));
    }
    if steps == "threads" {
        return threads(&files.each_ref().map(|file| file.as_ref().unwrap()));
    }
    if steps == "turns" {
        let lock = fs::File::open(&folder).unwrap();
        for round in 0..100_u64 {
            let files = files.each_ref().map(|file| file.as_ref().unwrap());
            lock.lock().unwrap();
            let place = 8 * u64::from(std::process::id() % 1000);
            files.iter().for_each(|file| file.write(place, &round.to_le_bytes()));
            files[round as usize % 2].atomic().sync().unwrap();
            lock.unlock().unwrap();
        }
        return;
    }
    let mut regions = Vec::new();
    for step in steps.split(' ') {
        if step == "pause" {
            eprintln!("pause");
            std::io::stdin().read_line(&mut String::new()).unwrap();
            continue;
        }
        let index = usize::from(&step[1..] == "b");
        let file = || files[index].as_ref().expect("open");
        match &step[..1] {
            "w" => file().write(3, b"new"),
            "d" => file().write(3, b"---"),
            "q" => (0..BLOCKS).for_each(|block| file().write(block * 4096, &[1; 8])),
            "e" => assert_eq!(file().try_write(3, b"new").unwrap_err().errno(), libc::EBUSY),
            "m" => {
                let region = Region::of(file().shared(), file().file().as_fd(), 0..4096, true).unwrap();
                // SAFETY: in the file's first page.
                unsafe { region.as_ptr().add(3).copy_from_nonoverlapping(b"new".as_ptr(), 3) };
                regions.push(region);
            }
            "s" => file().atomic().sync().unwrap(),
            "r" => file().atomic().checkpoint().unwrap(),
            "x" => file().atomic().commit_pieces(&[(3, b"new")], true).unwrap(),
            "y" => {
                let buf = [UserBuf { base: b"new".as_ptr().cast_mut(), len: 3 }];
                // SAFETY: a live buffer.
                unsafe { file().atomic().write_atomically(Some(3), &buf, Whole::All) }.unwrap();
            }
            "c" => drop(files[index].take()),
            "l" => {
                fs::remove_dir_all(Path::new(&folder).join(".famio")).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20)); // a SYNC looks for a journal each millisecond
            }
            "v" => {
                fs::rename(Path::new(&folder).join(".famio"), Path::new(&folder).join("moved")).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20)); // as above
            }
            _ => panic!("{step}"),
        }
    }
    eprintln!("done");
    std::io::stdin().read_line(&mut String::new()).unwrap(); // to be killed here
}

/// One change of a file.
enum Change {
    Write(u64, usize, u8),
    Number(u64),
    Size(u64),
}
use Change::{Number, Size, Write as Bytes};

/// The changes of a round, in file 0 or 1: of every kind, with cuts and growth in an epoch.
fn changes(file: usize, round: u64) -> Vec<Change> {
    let byte = round as u8;
    let mut all = vec![Number(round)];
    if file == 0 {
        all.push(Bytes(64 + round % 5 * 3000, 700, byte));
        if round.is_multiple_of(3) {
            all.extend([Size(2000 + round % 7 * 1000), Size(12_000), Bytes(11_000, 300, byte)]);
        }
    } else {
        if round.is_multiple_of(2) {
            all.push(Bytes(round % 4 * 4096, 5000, byte));
        }
        if round.is_multiple_of(5) {
            all.push(Size(5000));
        }
    }
    all
}

fn rounds(files: &[&Opened; 2]) {
    let before = files[0].read(0, 8);
    let mut round = before.try_into().map_or(0, u64::from_le_bytes);
    let settled = round + 3;
    loop {
        if round == settled {
            eprintln!("settled");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        round += 1;
        for (number, file) in files.iter().enumerate() {
            for change in changes(number, round) {
                match change {
                    Bytes(at, len, byte) => file.write(at, &vec![byte; len]),
                    Number(number) => file.write(0, &number.to_le_bytes()),
                    Size(size) => file.atomic().set_size(size).unwrap(),
                }
            }
        }
        files[round as usize % 2].atomic().sync().unwrap();
        eprintln!("{round}");
    }
}

/// A file after a number of rounds.
fn model(file: usize, rounds: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let write = |bytes: &mut Vec<u8>, at: usize, data: &[u8]| {
        bytes.resize(bytes.len().max(at + data.len()), 0);
        bytes[at..at + data.len()].copy_from_slice(data);
    };
    for change in (1..=rounds).flat_map(|round| changes(file, round)) {
        match change {
            Bytes(at, len, byte) => write(&mut bytes, at as usize, &vec![byte; len]),
            Number(number) => write(&mut bytes, 0, &number.to_le_bytes()),
            Size(size) => bytes.resize(size as usize, 0),
        }
    }
    bytes
}

/// Both files are as after the same round, which is `known` or a later one. Returns it.
fn check(place: &Place, b_first: bool, known: u64, at: &str) -> u64 {
    let mut found = [Vec::new(), Vec::new()];
    for file in if b_first { [1, 0] } else { [0, 1] } {
        found[file] = place.recovered(["a", "b"][file]);
    }
    let round = found[0].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    assert!(round >= known, "{at}: {known} rounds were told, {round} are there");
    for (file, found) in found.iter().enumerate() {
        assert!(*found == model(file, round), "{at}: file {file} is not as after round {round}");
    }
    round
}

/// Kills a child at each of these stops of its whole life; or, with a `call`, of its later rounds, at the next return
/// from that and this many instructions later. Returns how often that was after the record, and before the child said
/// so; `None`: tracing is refused here.
fn kill_at(place: &Place, call: Option<i64>, stops: impl Iterator<Item = (usize, usize)>) -> Option<usize> {
    let (mut known, mut between) = (0, 0);
    for (stop, instructions) in stops {
        let mut child = place.child("rounds");
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
        let thread = said.find_map(|line| line.strip_prefix("thread ").map(|id| id.parse().unwrap())).unwrap();
        let mut input = child.stdin.take().unwrap();
        if call.is_some() {
            // How many calls come before depends on what others have left in the folder of shared memory.
            input.write_all(b"\n").unwrap();
            let told = said.by_ref().take_while(|line| line != "settled");
            known = told.filter_map(|line| line.parse().ok()).last().unwrap();
        }
        let Some(traced) = Traced::attach(thread) else {
            eprintln!("NOT TESTED: kills at system calls take ptrace(2), which is refused here");
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        };
        input.write_all(if call.is_some() { b"\n" } else { b"\n\n" }).unwrap();
        assert!((0..stop).all(|_| traced.step()));
        if call.is_some() {
            while traced.call() != call {
                assert!(traced.step());
            }
            assert!(traced.step());
        }
        assert!((0..instructions).all(|_| traced.instruction()));
        child.kill().unwrap();
        while libc::WIFSTOPPED(traced.wait()) {}
        child.wait().unwrap();
        known = said.filter_map(|line| line.parse().ok()).last().unwrap_or(known);
        let at = format!("{}: stop {stop}, {instructions} instructions", place.name);
        let found = check(place, stop % 2 == 1, known, &at);
        between += usize::from(found > known);
        known = found;
    }
    Some(between)
}

fn is_long() -> bool {
    common::kills_asked().is_some_and(|kills| kills >= 100)
}

#[test]
fn a_kill_at_any_call_leaves_all_files_as_of_the_same_sync() {
    for name in PLACES {
        let place = Place::new(name, "groups-calls");
        kill_at(&place, None, (0..1200).step_by(if is_long() { 1 } else { 23 }).map(|stop| (stop, 0)));
    }
}

/// In place, no system call between that of the record and the last file's commit writes anything.
#[test]
fn a_kill_between_two_calls_leaves_all_files_as_of_the_same_sync() {
    let place = Place::new("redo", "groups-instructions");
    let stride = if is_long() { 101 } else { 3001 };
    let all = (0..240).step_by(41).flat_map(|stop| (0..16_000).step_by(stride).map(move |more| (stop, more)));
    let between = kill_at(&place, Some(libc::SYS_pwritev), all);
    assert_ne!(between, Some(0), "no kill hit the gap");
}

/// Runs steps in a child, which is then killed. Whether each file has what was written to it.
fn after(place: &Place, steps: &str) -> [bool; 2] {
    for name in ["a", "b"] {
        fs::write(place.path(name), OLD).unwrap();
    }
    let mut child = place.child(steps);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"\n").unwrap();
    let mut lines = Vec::new();
    let is_done = said.any(|line| {
        lines.push(line);
        lines.last().is_some_and(|line| line == "done")
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_done, "{steps}: {lines:?}");
    let [b, a] = ["b", "a"].map(|name| {
        let found = place.recovered(name);
        assert!([OLD, NEW].contains(&&found[..]), "{steps}: {found:?}");
        found == NEW
    });
    [a, b]
}

/// More blocks than a hand-over image has room for.
const BLOCKS: u64 = (256 << 20) / 4096 + 1;

const OLD: &[u8] = b"---------";
const NEW: &[u8] = b"---new---";

#[test]
fn whatever_commits_one_file_commits_all() {
    for name in PLACES {
        let place = Place::new(name, "groups-commits");
        for (steps, is_committed) in [
            ("wa wb", false),
            ("wa wb sa", true),
            ("wb wa sa", true),
            ("wa wb sb", true),
            ("wa wb ca", true),
            ("wa wb ra", true),
            ("wa xb", true),
            ("wb ya", true),
            ("ma wb sb", true),
            ("ma mb sa", true),
        ] {
            assert_eq!(after(&place, steps), [is_committed; 2], "{name}: {steps}");
        }
        assert_eq!(after(&place, "wa sa wb"), [true, false], "{name}: b has a later epoch");
        assert_eq!(after(&place, "wa sb wb"), [true, false], "{name}: b has a later epoch");
    }
}

/// Also of a file that has nothing to commit: its last SYNC is in the journal.
#[test]
fn a_sync_of_one_file_restores_the_lost_journals_of_all() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-lost");
        assert_eq!(after(&place, "wa wb sa l wa sa"), [true; 2], "{name}");
        assert_eq!(after(&place, "wa wb sa l sa"), [true; 2], "{name}: nothing to commit");
    }
}

/// The folder of the first record was still used: no SYNC of both files succeeded, or its record was where no recovery
/// looks.
#[test]
fn a_sync_of_both_files_writes_its_record_beside_the_journals_that_were_made_anew() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-anew");
        for lost in ["l", "v"] {
            let steps = format!("wa wb sa {lost} da db sa wa wb sb");
            assert_eq!(after(&place, &steps), [true; 2], "{name}: {steps}");
            let _ = fs::remove_dir_all(place.path("moved"));
        }
        // Two files of the group have changed, and a record is written.
        let mut child = Waiting::new(&place, "wa wb sa v da db sa pause");
        child.hear("pause");
        let folder = place.path(".famio").join("joint");
        let records = fs::read_dir(&folder).map(|found| found.count());
        assert!(records.as_ref().is_ok_and(|&count| count > 0), "{name}: {}: {records:?}", folder.display());
        child.kill();
        place.recovered("a");
        place.recovered("b");
        let _ = fs::remove_dir_all(place.path("moved"));
    }
}

/// One thread writes to `b` and then to `a`, another one syncs.
fn threads(files: &[&Opened; 2]) {
    let before = files[0].read(0, 8).try_into().map_or(0, u64::from_le_bytes);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in before + 1.. {
                files[1].write(0, &number.to_le_bytes());
                files[0].write(0, &number.to_le_bytes());
            }
        });
        for round in 0.. {
            files[round % 2].atomic().sync().unwrap();
            if round == 20 {
                eprintln!("done");
            }
        }
    });
}

/// A commit of `a` with its last write has what its thread had written to `b` before.
#[test]
fn what_a_thread_wrote_first_is_committed_first() {
    for name in PLACES {
        let place = Place::new(name, "groups-order");
        for kill in 0..common::kills_asked().unwrap_or(4) {
            let mut child = place.child("threads");
            let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
            child.stdin.take().unwrap().write_all(b"\n").unwrap();
            assert!(said.any(|line| line.unwrap() == "done"));
            for _ in 0..kill * 1000 {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let [a, b] = ["a", "b"]
                .map(|name| place.recovered(name))
                .map(|bytes| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)));
            assert!(a == b || a + 1 == b, "{name}: a has {a}, b has {b}");
        }
    }
}

/// They close the gates in the same order.
#[test]
fn threads_that_sync_different_files_do_not_wait_for_each_other_for_ever() {
    let place = Place::new("redo", "groups-threads");
    let files = [place.open("a"), place.open("b"), place.open("c")];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let files = &files;
            scope.spawn(move || {
                for round in 0..300 {
                    let number = thread + round;
                    files[number % 3].write(64 * thread as u64, &[round as u8; 40]);
                    files[(number + 1) % 3].write(64 * thread as u64, &[round as u8; 40]);
                    files[(number + 2) % 3].atomic().sync().unwrap();
                }
            });
        }
    });
    drop(files);
    assert!(!place.path(".famio").exists());
}

/// A child that has written to files, and waits to be told to go on.
struct Waiting {
    child: Child,
    said: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Waiting {
    fn new(place: &Place, steps: &str) -> Self {
        let mut child = place.child(steps);
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut waiting = Self { child, said };
        waiting.go_on();
        waiting
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn hear(&mut self, word: &str) {
        assert!(self.said.any(|line| line.unwrap() == word), "{word}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A SYNC once acquired each file of the group, and failed if one could not be had.
#[test]
fn a_sync_needs_no_file_that_only_another_process_has_changed() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-others");
        ["a", "b"].iter().for_each(|name| fs::write(place.path(name), OLD).unwrap());
        let files = [place.open("a"), place.open("b")];
        let mut child = Waiting::new(&place, "wb");
        child.hear("done");
        files[0].write(3, b"new");
        files[0].atomic().sync().unwrap();
        // It is read, but not changed or committed here.
        assert_eq!(files[1].read(0, 9), NEW, "{name}");
        for refused in [files[1].try_write(0, b"x").map(drop), files[1].atomic().sync()] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.errno(), libc::EBUSY, "{name}: {refused}");
            assert!(refused.to_string().contains("changes of a group to commit"), "{name}: {refused}");
        }
        child.kill();
        drop(files);
        assert_eq!([place.recovered("a"), place.recovered("b")], [NEW, OLD], "{name}");
    }
}

/// Bytes that were not committed once went to the other process, which was left to commit them without the group.
#[test]
fn a_close_beside_another_writer_commits_the_group() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-close-beside");
        for settings in [place.settings(), Settings { group: None, ..place.settings() }] {
            ["a", "b"].iter().for_each(|name| fs::write(place.path(name), OLD).unwrap());
            let mut child = Waiting::new(&place, "wa wb pause ca");
            child.hear("pause");
            let other = Opened::new(&place.path("a"), &settings);
            assert_eq!(other.try_write(0, b"x").unwrap_err().errno(), libc::EBUSY, "{name}");
            child.go_on();
            child.hear("done");
            child.kill();
            drop(other);
            assert_eq!([place.recovered("a"), place.recovered("b")], [NEW, NEW], "{name}");
        }
    }
}

/// The record of a commit is the end of the hand-over image that the session had taken up, also if the journal does not
/// know of the commit yet.
#[test]
fn a_kill_after_the_record_does_not_bring_the_hand_over_image_back() {
    let place = Place::new("disk", "groups-image");
    let mut found = [0; 2];
    for number in 0.. {
        ["a", "b"].iter().for_each(|name| fs::write(place.path(name), OLD).unwrap());
        let other = Opened::new(&place.path("a"), &Settings { group: None, ..place.settings() });
        other.write(2, b"xxx");
        let mut child = place.child("wa wb sb");
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
        let thread = said.find_map(|line| line.strip_prefix("thread ").map(|id| id.parse().unwrap())).unwrap();
        let Some(traced) = Traced::attach(thread) else {
            eprintln!("NOT TESTED: kills at system calls take ptrace(2), which is refused here");
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        };
        child.stdin.take().unwrap().write_all(b"\n\n").unwrap(); // to begin, and to end
        // Before or after a call that writes or flushes.
        let is_one = |call| [libc::SYS_pwritev, libc::SYS_fdatasync].contains(&call);
        let mut calls = 0;
        let mut is_over = false;
        while calls <= number / 2 && !is_over {
            is_over = !traced.step();
            calls += usize::from(!is_over && traced.call().is_some_and(is_one));
        }
        is_over = is_over || number % 2 == 1 && !traced.step();
        child.kill().unwrap();
        while !is_over && libc::WIFSTOPPED(traced.wait()) {}
        child.wait().unwrap();
        drop(other);
        let [a, b] = ["a", "b"].map(|name| place.recovered(name));
        let is_committed = b == NEW;
        assert!(is_committed || b == OLD, "{number}: {b:?}");
        assert_eq!(&a[..], if is_committed { b"--xnew---" } else { b"--xxx----" }, "{number}");
        found[usize::from(is_committed)] += 1;
        if is_over {
            break;
        }
    }
    assert!(!found.contains(&0), "{found:?}");
}

/// Once everything is committed, another process gets a file, and the first one gets it again.
#[test]
fn a_committed_file_is_handed_over() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-hand-over");
        ["a", "b"].iter().for_each(|name| fs::write(place.path(name), OLD).unwrap());
        let mut child = Waiting::new(&place, "wa wb sa pause wb sb");
        child.hear("pause");
        let files = [place.open("a"), place.open("b")];
        files[1].write(0, b"x");
        files[1].atomic().sync().unwrap();
        child.go_on();
        child.hear("done");
        child.kill();
        drop(files);
        assert_eq!([&place.recovered("a")[..], &place.recovered("b")], [NEW, b"x--new---"], "{name}");
    }
}

/// A session that another process has left, and that cannot be ended, once counted as one of no group in all its later
/// epochs: what they had open was handed over.
#[test]
fn a_session_that_cannot_be_ended_is_one_of_the_group() {
    let place = Place::new("disk", "groups-left");
    for name in ["a", "b"] {
        fs::File::create(place.path(name)).unwrap().set_len(BLOCKS * 4096).unwrap();
    }
    let files = [place.open("a"), place.open("b")];
    files.iter().for_each(|file| file.write(0, OLD));
    files[0].atomic().sync().unwrap();
    let mut other = Waiting::new(&place, "alone qa pause ea");
    other.hear("pause");
    let refused = files[0].try_write(0, b"x").unwrap_err();
    assert_eq!(refused.errno(), libc::EFBIG, "{refused}");
    files[0].atomic().sync().unwrap();
    files.iter().for_each(|file| file.write(3, b"new"));
    other.go_on();
    other.hear("done");
    other.kill();
    files[1].atomic().sync().unwrap();
    assert_eq!(files.each_ref().map(|file| file.read(3, 3)), [b"new", b"new"]);
}

/// It once synced the group, failed with it, and let the others take no more writes.
#[test]
fn a_close_of_a_clean_file_does_not_depend_on_a_sync_that_fails() {
    use std::os::unix::fs::PermissionsExt;
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-clean-close");
        let set = |name: &str, mode| fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
        for (name, mode) in [("a", 0o600), ("b", 0o600), ("c", 0o644)] {
            fs::write(place.path(name), OLD).unwrap();
            set(name, mode);
        }
        let [a, b, c] = ["a", "b", "c"].map(|name| place.open(name));
        a.write(3, b"new");
        a.atomic().sync().unwrap();
        b.write(3, b"new");
        c.write(3, b"new");
        assert_eq!(b.atomic().sync().unwrap_err().errno(), libc::EXDEV, "{name}");
        a.atomic().remove_descriptor(std::os::fd::AsRawFd::as_raw_fd(a.file())).unwrap();
        set("c", 0o600);
        b.atomic().sync().unwrap(); // repeated
        b.write(0, b"-");
        drop((b, c));
        std::mem::forget(a); // closed already
        assert_eq!(["a", "b", "c"].map(|name| place.recovered(name)), [NEW; 3], "{name}");
    }
}

/// How often a child calls `fdatasync` itself; `None`: tracing is refused here.
fn flushes(place: &Place, steps: &str) -> Option<usize> {
    ["a", "b"].iter().for_each(|name| fs::write(place.path(name), OLD).unwrap());
    let mut child = place.child(steps);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    let thread = said.find_map(|line| line.strip_prefix("thread ").map(|id| id.parse().unwrap())).unwrap();
    let Some(traced) = Traced::attach(thread) else {
        child.kill().unwrap();
        child.wait().unwrap();
        return None;
    };
    child.stdin.take().unwrap().write_all(b"\n\n").unwrap(); // to begin, and to end
    let mut flushes = 0;
    while traced.step() {
        flushes += usize::from(traced.call() == Some(libc::SYS_fdatasync));
    }
    assert!(said.any(|line| line == "done"), "{steps}");
    child.wait().unwrap();
    Some(flushes)
}

/// With another file to commit, the kernel once had nothing to do for the file itself, which may be new or have another
/// mode.
#[test]
fn a_sync_of_an_unchanged_file_reaches_the_kernel_beside_a_commit_of_others() {
    let place = Place::new("redo", "groups-kernel");
    let [Some(changed), Some(unchanged)] = ["wb sb", "wb sa"].map(|steps| flushes(&place, steps)) else {
        return eprintln!("NOT TESTED: system calls are counted by ptrace(2), which is refused here");
    };
    assert_eq!(unchanged, changed + 1);
}

/// Writes of 64 bytes to a block each, as far as a record goes, and overwritten blocks, which count once. Takes two
/// gigabytes of memory.
#[test]
#[ignore = "long"]
fn the_write_that_would_exceed_the_record_is_refused_and_a_sync_makes_room() {
    let place = Place::new("disk", "groups-room");
    let files = [place.open("a"), place.open("b")];
    files[1].write(0, NEW);
    for _ in 0..300_000 {
        files[0].write(0, &[1; 64]);
    }
    let refused = (0..300_000).find_map(|block| files[0].try_write(block * 4096, &[1; 64]).err()).unwrap();
    assert_eq!(refused.errno(), libc::ENOSPC, "{refused}");
    assert!(refused.to_string().contains("SYNC first"), "{refused}");
    files[1].atomic().sync().unwrap();
    files[0].write(400_000 * 4096, &[1; 64]);
    files[0].atomic().sync().unwrap();
}

/// Each file alone stayed below what made it look at the others. And what only sets a size has a part in the record.
/// Takes two gigabytes of memory.
#[test]
#[ignore = "long"]
fn many_files_do_not_exceed_the_record_together() {
    let place = Place::new("disk", "groups-many");
    let files: Vec<_> = (0..8).map(|at| place.open(&format!("file-{at}"))).collect();
    let write = |file: &Opened, block: u64, blocks: usize| file.try_write(block * 4096, &vec![7; blocks * 4096]);
    (0..910).for_each(|part| assert!(write(&files[0], part * 256, 256).is_ok()));
    files[1..].iter().for_each(|file| assert!(write(file, 0, 1).is_ok()));
    let mut written = (0..15).flat_map(|part| files[1..].iter().map(move |file| write(file, 1 + part * 256, 256)));
    let refused = written.find_map(|written| written.err()).expect("refused");
    assert_eq!(refused.errno(), libc::ENOSPC, "{refused}");
    files[0].atomic().sync().unwrap();

    (0..1200).for_each(|part| assert!(write(&files[0], part * 256, 256).is_ok()));
    let file = famio::AtomicFile::options().settings(place.settings()).open(place.path("file-1")).unwrap();
    let mut transaction = file.transaction().unwrap();
    transaction.set_len(5).unwrap();
    let refused = transaction.commit().unwrap_err();
    assert_eq!(refused.errno(), libc::ENOSPC, "{refused}");
    files[0].atomic().sync().unwrap();
}

/// Each acquires both files, and commits them before the next one wants them.
#[test]
fn processes_that_commit_the_same_group_take_turns() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-turns");
        let mut children = [(); 3].map(|()| place.child("turns"));
        let places = children.each_ref().map(|child| 8 * (child.id() as usize % 1000));
        for child in &mut children {
            child.stdin.take().unwrap().write_all(b"\n").unwrap();
        }
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let [a, b] = ["a", "b"].map(|name| place.recovered(name));
        assert_eq!(a, b);
        for place in places {
            assert_eq!(a[place..].first_chunk(), Some(&99_u64.to_le_bytes()), "{name}: at {place}");
        }
    }
}

#[test]
fn files_of_two_pools_or_for_other_users_are_refused_and_nothing_is_committed() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("redo", "groups-pools");
    fs::create_dir(place.path("other")).unwrap();
    let make = |name: &str, mode| {
        fs::write(place.path(name), OLD).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for (other, mode) in [("secret", 0o600), ("other/b", 0o644)] {
        make("a", 0o644);
        make(other, mode);
        let (a, b) = (place.open("a"), place.open(other));
        a.write(3, b"new");
        b.write(3, b"new");
        let refused = a.atomic().sync().unwrap_err();
        assert_eq!(refused.errno(), libc::EXDEV, "{refused}");
        assert!(refused.to_string().contains("the files of a group have their journals in one pool"), "{refused}");
        // Nor is one committed by a close, of itself or of the other.
        assert_eq!(a.atomic().checkpoint().unwrap_err().errno(), libc::EXDEV);
        a.close_anyhow();
        assert_eq!(b.atomic().sync().unwrap_err().errno(), libc::EIO);
        b.close_anyhow();
        assert_eq!([place.recovered("a"), place.recovered(other)], [OLD, OLD]);
    }
}

/// Each once failed as if the transaction had not been made, and a shorter write followed: at the end of the file, once
/// more.
#[test]
fn an_atomic_append_whose_sync_fails_is_made_once() {
    use famio::pmem::record::{Call, Recorder};
    use famio::pmem::{Domain, TestHooks};
    let place = Place::new("redo", "groups-append");
    let settings = Settings { group: Some(8), ..Settings::default() };
    let bytes = vec![7; 3 * 4096];
    let buf = [UserBuf { base: bytes.as_ptr().cast_mut(), len: bytes.len() }];
    let mut sizes = std::collections::BTreeSet::new();
    for nth in 1.. {
        let recorder = Recorder::new(Domain::PageCache);
        TestHooks { domain: Some(Domain::PageCache), medium: Some(recorder), ..TestHooks::current() }.enter();
        let files = ["a", "b"].map(|name| Opened::new(&place.path(&format!("{name}{nth}")), &settings));
        files[1].write(0, OLD);
        files[0].write(0, b"-");
        recorder.fail(Call::Pwritev, nth, libc::ENOSPC);
        // SAFETY: a live buffer.
        let done = unsafe { files[0].atomic().write_atomically(None, &buf, Whole::Shorter) };
        let size = files[0].atomic().size();
        if let Err(refused) = &done {
            // After the record it is an error of the file.
            assert!([libc::ENOSPC, libc::EIO].contains(&refused.errno()), "{nth}: {refused}");
            assert!([1, 1 + 3 * 4096].contains(&size), "{nth}: {size}");
            if refused.errno() == libc::ENOSPC {
                sizes.insert(size);
                files[1].atomic().sync().unwrap();
            }
        }
        files.into_iter().for_each(Opened::close_anyhow);
        TestHooks::default().enter();
        if done.is_ok() {
            break; // this many of these calls are not made
        }
    }
    assert!(sizes.contains(&(1 + 3 * 4096)), "no SYNC has failed: {sizes:?}");
}

#[test]
fn a_record_beyond_the_limit_on_file_sizes_is_refused_without_a_signal() {
    let place = Place::new("redo", "groups-limit");
    let Some(limited) = std::env::var_os("GROUP_LIMIT") else {
        // In a process of its own.
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_record_beyond_the_limit_on_file_sizes_is_refused_without_a_signal"]);
        let output = command.env("GROUP_LIMIT", "8388608").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    };
    let limit = limited.into_string().unwrap().parse().unwrap();
    let files = [place.open("a"), place.open("b")];
    files.iter().for_each(|file| file.write(0, OLD));
    files[0].atomic().sync().unwrap();
    files.iter().for_each(|file| file.write(0, &vec![1; 5 << 20]));
    let old = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    let new = rustix::process::Rlimit { current: Some(limit), ..old };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, new).unwrap();
    let refused = files[0].atomic().sync().unwrap_err();
    assert_eq!(refused.errno(), libc::ENOSPC, "{refused}");
    assert!(refused.to_string().contains("ulimit -f"), "{refused}");
    rustix::process::setrlimit(rustix::process::Resource::Fsize, old).unwrap();
    files[0].atomic().sync().unwrap();
}

/// Another program has removed one: it is lost with the process, and does not keep the others from being committed.
#[test]
fn a_file_without_a_name_keeps_no_other_from_being_committed() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-nameless");
        ["a", "b", "c"].iter().for_each(|name| fs::write(place.path(name), OLD).unwrap());
        let [a, b, c] = ["a", "b", "c"].map(|name| place.open(name));
        [&a, &b, &c].iter().for_each(|file| file.write(3, b"new"));
        fs::remove_file(place.path("a")).unwrap();
        b.atomic().sync().unwrap();
        [&a, &b, &c].iter().for_each(|file| file.write(0, b"x"));
        c.atomic().sync().unwrap();
        [&a, &b, &c].iter().for_each(|file| assert_eq!(file.read(0, 9), b"x--new---", "{name}"));
        drop(a);
        drop((b, c));
        assert_eq!([place.recovered("b"), place.recovered("c")], [b"x--new---"; 2], "{name}");
    }
}

#[test]
fn contradictions_are_refused() {
    let place = Place::new("redo", "groups-refused");
    let keep = Settings { on_kill: famio::OnKill::Keep, ..place.settings() };
    fs::write(place.path("a"), OLD).unwrap();
    let refused = Opened::try_new(&place.path("a"), &keep).err().unwrap();
    assert_eq!(refused.errno(), libc::EINVAL, "{refused}");
    let (a, b) = (place.open("a"), place.open("b"));
    let refused = a.shared().commit_pieces_with(&[(0, b"x")], None, b.shared(), b"y").unwrap_err();
    assert_eq!(refused.errno(), libc::EOPNOTSUPP, "{refused}");
    let refused = a.atomic().demote().unwrap_err();
    assert_eq!(refused.errno(), libc::EBUSY, "{refused}");
    assert_eq!(a.read(0, 9), OLD);
    // A file that is open without the group would not be committed with it.
    let alone = Settings { group: None, ..place.settings() };
    let [other, again] = [("c", &alone), ("a", &alone)].map(|(name, of)| Opened::new(&place.path(name), of));
    for (name, group) in [("c", Some(place.group)), ("a", Some(place.group + 1_000_000))] {
        let refused = Opened::try_new(&place.path(name), &Settings { group, ..alone.clone() }).err().unwrap();
        assert_eq!(refused.errno(), libc::EBUSY, "{refused}");
    }
    drop((other, again));
    place.open("c").write(0, OLD);
}

#[test]
fn a_rollback_takes_back_one_file() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-rollback");
        ["a", "b"].iter().for_each(|name| fs::write(place.path(name), OLD).unwrap());
        let files = [place.open("a"), place.open("b")];
        files.iter().for_each(|file| file.write(3, b"new"));
        files[0].atomic().rollback().unwrap();
        files[1].atomic().sync().unwrap();
        assert_eq!(files.each_ref().map(|file| file.read(0, 9)), [OLD, NEW], "{name}");
        files.iter().for_each(|file| file.write(0, b"-"));
        files[0].atomic().sync().unwrap();
        drop(files);
        assert_eq!([place.recovered("a"), place.recovered("b")], [OLD, NEW], "{name}");
    }
}

/// Neither fails, and neither loses anything.
#[test]
fn files_are_opened_and_closed_while_another_thread_syncs_the_group() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-closes");
        let synced = place.open("b");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..100_u64 {
                    place.open("a").write(8 * round, &round.to_le_bytes());
                }
            });
            for round in 0..100_u64 {
                synced.write(8 * round, &round.to_le_bytes());
                synced.atomic().sync().unwrap();
            }
        });
        drop(synced);
        let all: Vec<u8> = (0..100_u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!([&place.recovered("a"), &place.recovered("b")], [&all; 2], "{name}");
    }
}

/// They were once committed without the group as another process wanted to write.
#[test]
fn changes_of_a_file_without_a_name_stay_with_their_process() {
    for name in ["redo", "disk"] {
        let place = Place::new(name, "groups-nameless-beside");
        ["a", "b"].iter().for_each(|name| fs::write(place.path(name), OLD).unwrap());
        let other = place.open("a");
        other.write(0, b"-");
        other.atomic().sync().unwrap();
        let mut child = Waiting::new(&place, "wa wb pause sb pause");
        child.hear("pause");
        fs::remove_file(place.path("a")).unwrap();
        assert_eq!(other.try_write(0, b"x").unwrap_err().errno(), libc::EBUSY, "{name}");
        child.go_on();
        child.hear("pause");
        other.write(0, b"x");
        assert_eq!(other.read(0, 9), b"x--new---", "{name}");
        child.kill();
        other.close_anyhow();
        assert_eq!(place.recovered("b"), NEW, "{name}");
    }
}

/// Each call of the SYNC fails in turn: nothing is committed, or all, and the files take no more writes if that is not
/// known.
#[test]
fn a_sync_that_fails_commits_all_or_nothing() {
    use famio::pmem::record::{Call, Recorder};
    use famio::pmem::{Domain, TestHooks};
    let place = Place::new("redo", "groups-failing");
    let settings = Settings { group: Some(7), ..Settings::default() };
    let mut outcomes = std::collections::BTreeSet::new();
    for call in [Call::Pwritev, Call::Fdatasync, Call::Fsync] {
        for nth in 1.. {
            let names = ["a", "b"].map(|name| format!("{name}-{call:?}-{nth}"));
            names.iter().for_each(|name| fs::write(place.path(name), OLD).unwrap());
            let recorder = Recorder::new(Domain::PageCache);
            TestHooks { domain: Some(Domain::PageCache), medium: Some(recorder), ..TestHooks::current() }.enter();
            let files = names.each_ref().map(|name| Opened::new(&place.path(name), &settings));
            files.iter().for_each(|file| file.write(3, b"new"));
            recorder.fail(call, nth, libc::EIO);
            let synced = files[1].atomic().sync();
            let is_refused = files.each_ref().map(|file| file.try_write(0, b"-").is_err());
            let again = if synced.is_ok() { Ok(()) } else { files[0].atomic().sync() };
            TestHooks::default().enter();
            // A write that failed leaves nothing; after a flush that failed, nobody knows what is there.
            assert_eq!(is_refused.contains(&true), again.is_err(), "{call:?} {nth}: {synced:?}, then {again:?}");
            files.into_iter().for_each(Opened::close_anyhow);
            let found = names.each_ref().map(|name| Opened::new(&place.path(name), &settings).read(0, 9));
            assert!(
                found[0] == found[1] && (found[0] == NEW || synced.is_err()),
                "{call:?} {nth}: {synced:?}: {found:?}"
            );
            if synced.is_ok() {
                break; // this many of these calls are not made
            }
            outcomes.insert((call as usize, again.is_ok()));
        }
    }
    let has = |outcome| assert!(outcomes.contains(&outcome), "{outcomes:?}");
    has((Call::Pwritev as usize, true));
    has((Call::Fdatasync as usize, false));
}
