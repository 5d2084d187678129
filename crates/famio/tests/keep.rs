//! `on-kill = keep`: after a kill, the file is as its last complete call left it, for whatever process uses it next;
//! a crash of the machine still takes it back to its last SYNC.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch, in_place_settings};
use crash::{Rest, Size, Step, Sync, history, initial, model, write};
use famio::recovery::{Outcome, Use};
use famio::{Durability, OnKill, Settings};
use famio_test_support::random::Random;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn crash_child() {
    crash::child();
}

/// Each kind of journal, with a folder for the file.
fn kinds(name: &str) -> Vec<(Settings, Scratch)> {
    let in_memory = in_place_settings().into_iter().map(|settings| (settings, true));
    let on_disk =
        [Durability::Process, Durability::Power].map(|durability| Settings { durability, ..Settings::default() });
    let all = in_memory.chain(on_disk.map(|settings| (settings, false))).enumerate();
    let place = |at: usize, in_memory: bool| match in_memory {
        true => Scratch::on_tmpfs(&format!("{name}{at}")),
        false => Scratch::on_disk(&format!("{name}{at}")),
    };
    all.map(|(at, (settings, in_memory))| (Settings { on_kill: OnKill::Keep, ..settings }, place(at, in_memory)))
        .collect()
}

/// What two processes do to one file, and what is found then.
struct Killed {
    path: PathBuf,
    settings: Settings,
    now: Vec<u8>,
    committed: Vec<u8>,
}

impl Killed {
    fn new(dir: &Scratch, settings: &Settings, steps: &[Step]) -> Self {
        let path = dir.path().join("app.db");
        fs::write(&path, initial()).unwrap();
        Self::at(path, settings, steps)
    }

    fn at(path: PathBuf, settings: &Settings, steps: &[Step]) -> Self {
        crash::crash(&path, settings, steps);
        let (now, committed) = model(&initial(), steps);
        Self { path, settings: settings.clone(), now, committed }
    }

    #[track_caller]
    fn assert_is(&self, found: &[u8], wanted: &[u8], how: &str) {
        let at = found.iter().zip(wanted).position(|(a, b)| a != b);
        assert!(found == wanted, "{how}: {:?}: {} bytes, not {}, {at:?}", self.settings, found.len(), wanted.len());
    }

    /// The next process that opens it must see `wanted`; and after that process's close, the file must have it.
    #[track_caller]
    fn assert_next_sees(&self, wanted: &[u8], how: &str) {
        let opened = Opened::new(&self.path, &self.settings);
        self.assert_is(&opened.read(0, 10 << 20), wanted, how);
        drop(opened);
        self.assert_done(wanted, how);
    }

    /// The file has `wanted`, and nothing is left.
    #[track_caller]
    fn assert_done(&self, wanted: &[u8], how: &str) {
        self.assert_is(&fs::read(&self.path).unwrap(), wanted, how);
        let folder = self.path.parent().unwrap();
        assert!(!folder.join(".famio").exists(), "{how}: {:?}: leftovers", self.settings);
        assert!(shared_memory::of_folder(folder).is_empty(), "{how}: {:?}: leftovers in memory", self.settings);
    }
}

#[path = "common/shared_memory.rs"]
mod shared_memory;

/// Open epochs of all kinds: empty ones, cuts, growth, bytes written twice, bytes cut off that grow again.
fn histories() -> Vec<Vec<Step>> {
    let sizes = [write(0, 20_000, 3), Size(100), write(9000, 10, 4), Size(5000), Size(30_000), write(29_990, 500, 5)];
    let again = [write(0, 16_000, 1), Sync, write(0, 8192, 2), Rest, write(0, 8192, 3), write(10, 5000, 4)];
    let zeros = [write(0, 50_000, 6), Sync, Step::Zero { at: 100, len: 20_000 }, write(200, 7, 7)];
    let whole = |byte| (0..4).map(move |block| write(block * 4096, 4096, byte));
    let blocks: Vec<Step> = (1..6).flat_map(|byte| whole(byte).chain([Sync])).chain(whole(9)).collect();
    let large = [write(0, 9 << 20, 8), Sync, write(1 << 20, 6 << 20, 9)];
    let gone = [write(0, 100, 1), Size(0)];
    vec![
        history(),
        sizes.to_vec(),
        again.to_vec(),
        zeros.to_vec(),
        blocks,
        large.to_vec(),
        gone.to_vec(),
        vec![write(5, 5, 5)],
    ]
}

#[test]
fn the_next_to_open_it_sees_the_last_complete_call() {
    for (settings, dir) in kinds("keep-open") {
        for steps in histories() {
            let killed = Killed::new(&dir, &settings, &steps);
            killed.assert_next_sees(&killed.now, &format!("{steps:?}"));
        }
    }
}

/// It used to have the last SYNC only, and the file itself more after its recovery.
#[test]
fn a_backup_has_the_last_complete_call_and_leaves_the_file_as_it_is() {
    for (settings, dir) in kinds("keep-backup") {
        for steps in histories() {
            let killed = Killed::new(&dir, &settings, &steps);
            let (how, copy) = (format!("{steps:?}"), dir.path().join("copy"));
            for _ in 0..2 {
                let made = famio::recovery::backup(&killed.path, &copy, true, &Settings::default(), &|_| {}).unwrap();
                killed.assert_is(&fs::read(&copy).unwrap(), &killed.now, &how);
                assert!(made.is_kept && made.bytes == killed.now.len() as u64, "{how}: {made:?}");
            }
            killed.assert_next_sees(&killed.now, &how);
        }
    }
}

#[test]
fn recover_brings_the_file_to_the_last_complete_call() {
    for (settings, dir) in kinds("keep-recover") {
        for steps in histories() {
            let killed = Killed::new(&dir, &settings, &steps);
            let report = crash::recover(&killed.path, &Settings::default(), Use::Refuse);
            assert!(matches!(report.outcome, Outcome::Kept), "{report:?}");
            killed.assert_done(&killed.now, &format!("{steps:?}"));
            let report = crash::recover(&killed.path, &settings, Use::Refuse);
            assert!(matches!(report.outcome, Outcome::NothingToDo), "{report:?}");
        }
    }
}

/// It had the file open all the time, and has written to it before.
#[test]
fn another_process_sees_the_last_complete_call() {
    for (settings, dir) in kinds("keep-other") {
        for (at, steps) in histories().into_iter().enumerate() {
            let path = dir.path().join("app.db");
            fs::write(&path, initial()).unwrap();
            let other = Opened::new(&path, &settings);
            if at % 2 == 0 {
                other.write(0, &initial()[..1]);
                other.atomic().sync().unwrap();
            }
            let killed = Killed::at(path, &settings, &steps);
            let how = format!("{steps:?}");
            killed.assert_is(&other.read(0, 10 << 20), &killed.now, &how);
            other.write(killed.now.len() as u64, b"more");
            other.atomic().sync().unwrap();
            drop(other);
            killed.assert_done(&[&killed.now[..], b"more"].concat(), &how);
        }
    }
}

#[test]
fn a_crash_of_the_machine_takes_it_back_to_the_last_sync() {
    for (settings, dir) in kinds("keep-machine") {
        let killed = Killed::new(&dir, &settings, &history());
        shared_memory::of_folder(dir.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
        killed.assert_next_sees(&killed.committed, "without its memory");
    }
}

#[test]
fn without_it_a_kill_takes_it_back_to_the_last_sync() {
    for (settings, dir) in kinds("keep-not") {
        let settings = Settings { on_kill: OnKill::Rollback, ..settings };
        let killed = Killed::new(&dir, &settings, &history());
        // The next process's setting does not count.
        let next = Settings { on_kill: OnKill::Keep, ..settings.clone() };
        let opened = Opened::new(&killed.path, &next);
        killed.assert_is(&opened.read(0, 1 << 20), &killed.committed, "rolled back");
        drop(opened);
        let report = crash::recover(&killed.path, &settings, Use::Refuse);
        assert!(matches!(report.outcome, Outcome::NothingToDo), "{report:?}");
        killed.assert_done(&killed.committed, "rolled back");
    }
}

/// The process that takes over is killed as well, after more calls, and so is the next.
#[test]
fn kills_in_a_row_lose_nothing() {
    for (settings, dir) in kinds("keep-row") {
        let mut steps = history();
        let first = Killed::new(&dir, &settings, &steps);
        for more in [vec![], vec![write(100, 30_000, 20)], vec![write(7, 7, 21), Sync, write(9, 9, 22)], vec![Size(70)]]
        {
            crash::crash(&first.path, &settings, &more);
            steps.extend(more);
        }
        let now = model(&initial(), &steps).0;
        first.assert_next_sees(&now, "after five kills");
    }
}

/// Two processes write alternately; uncommitted data is handed over between them, and both are killed.
#[test]
fn what_goes_from_process_to_process_stays_when_all_are_killed() {
    for (settings, dir) in kinds("keep-both") {
        for commits in [false, true] {
            let path = dir.path().join("app.db");
            fs::write(&path, initial()).unwrap();
            let (mut one, two) = (vec![write(0, 9000, 1), Size(12_000)], vec![write(4000, 20_000, 2)]);
            let mut first = crash::hold(&path, &settings, &one);
            let mut second = crash::hold(&path, &settings, &two);
            one.extend(two);
            if commits {
                let three = vec![write(11_000, 500, 3), Sync, write(5, 5, 4)];
                crash::crash(&path, &settings, &three);
                one.extend(three);
            }
            let (now, committed) = model(&initial(), &one);
            let killed = Killed { path: path.clone(), settings: settings.clone(), now, committed };
            for child in [&mut first, &mut second] {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            let how = format!("both, commits {commits}");
            let copy = dir.path().join("copy");
            match famio::recovery::backup(&path, &copy, true, &Settings::default(), &|_| {}) {
                Ok(_) => killed.assert_is(&fs::read(&copy).unwrap(), &killed.now, &how),
                // Of a hand-over image, only a recovery can tell what stays.
                Err(e) => assert!(e.to_string().contains("run famio recover"), "{how}: {e}"),
            }
            if commits {
                let report = crash::recover(&path, &settings, Use::Refuse);
                assert!(matches!(report.outcome, Outcome::Kept), "{report:?}");
                killed.assert_done(&killed.now, &how);
            } else {
                killed.assert_next_sees(&killed.now, &how);
            }
        }
    }
}

/// Recovery of a folder, and with a decision by the user, where there is nothing to decide.
#[test]
fn recover_of_a_folder_and_with_a_decision() {
    for (settings, dir) in kinds("keep-folder") {
        let killed = Killed::new(&dir, &settings, &history());
        let report = crash::recover(dir.path(), &Settings::default(), Use::Refuse);
        assert!(matches!(report.outcome, Outcome::Kept), "{report:?}");
        killed.assert_done(&killed.now, "folder");
        let killed = Killed::new(&dir, &settings, &history());
        let report = crash::recover(dir.path(), &Settings::default(), Use::File);
        assert!(matches!(report.outcome, Outcome::Kept), "{report:?}");
        killed.assert_done(&killed.now, "as without a decision");
    }
}

fn random_steps(n: u64) -> Vec<Step> {
    let mut random = Random::new(n);
    let mut random = |below| random.below(below);
    let step = |_| match random(12) {
        0 => Size(random(60_000)),
        1 => Step::Zero { at: random(50_000), len: random(30_000) },
        2 | 3 => Sync,
        4 => write(random(12) * 4096, 4096, random(250) as u8),
        _ => write(random(50_000), 1 + random(9000) as usize, random(250) as u8),
    };
    (0..20).map(step).collect()
}

#[test]
fn random_histories() {
    let rounds = common::kills_asked().unwrap_or(5);
    for (settings, dir) in kinds("keep-random") {
        for round in 0..rounds {
            let steps = random_steps(round);
            let killed = Killed::new(&dir, &settings, &steps);
            if round % 2 == 0 {
                crash::recover(&killed.path, &settings, Use::Refuse);
                killed.assert_done(&killed.now, &format!("{steps:?}"));
            } else {
                killed.assert_next_sees(&killed.now, &format!("{steps:?}"));
            }
        }
    }
}

fn exists(path: &Path) -> bool {
    path.exists()
}

/// A part of the process's memory is gone: the file goes back to its last SYNC as a whole.
#[test]
fn half_of_it_is_not_kept() {
    for (settings, dir) in kinds("keep-half") {
        let killed = Killed::new(&dir, &settings, &history());
        let arena = crash::arena(&killed.path);
        assert!(exists(&arena));
        let memory = fs::File::options().write(true).open(&arena).unwrap();
        memory.set_len(8192).unwrap();
        killed.assert_next_sees(&killed.committed, "half of it");
    }
}
