//! `famio check`: what a kill leaves is sound, damage is named with its position, and nothing is changed.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch};
use crash::{Crashed, everywhere, everywhere_and_tiered, in_place};
use famio::Settings;
use famio::journal::{Header, State};
use famio::recovery::{Checked, Condition, Options, Silent, check, check_journal, recover_path};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

#[test]
fn crash_child() {
    crash::child();
}

const SLOTS: usize = 4096;
const EXTENT: usize = SLOTS + 64;
const SEGMENT: usize = 8192;

fn check_one(path: &Path, settings: &Settings) -> Checked {
    let mut all = check(path, settings).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn dry_run_stops(crashed: &Crashed) -> bool {
    let options = Options { dry_run: true, ..Options::default() };
    let reports = recover_path(&crashed.path, &crashed.settings, &options, &Silent).unwrap();
    crash::is_stopped(&reports[0].outcome)
}

#[test]
fn what_a_kill_leaves_is_sound_and_stays_as_it_is() {
    everywhere_and_tiered("sound", |crashed| {
        let pool = crashed.journal_path.parent().unwrap();
        let last = [crashed.path.as_path(), crashed.dir.path(), pool].map(|path| {
            let checked = check_one(path, &crashed.settings);
            assert!(checked.problems.is_empty(), "{:?}: {checked:?}", crashed.settings);
            assert_eq!(checked.journal, crashed.journal_path);
            assert_eq!(checked.file.as_deref(), Some(&*crashed.path));
            let Condition::Sound { epoch } = checked.condition else { panic!("{checked:?}") };
            epoch
        });
        let report = crashed.recover(famio::recovery::Use::Refuse);
        assert_eq!(last, [report.epoch; 3]);
        crashed.assert_recovered();
        assert!(matches!(check_one(&crashed.path, &crashed.settings).condition, Condition::Ordinary));
    });
}

#[test]
fn nothing_is_changed() {
    everywhere("unchanged", |crashed| {
        let arena = fs::read(crash::arena(&crashed.path)).unwrap();
        check_one(&crashed.path, &crashed.settings);
        assert!(fs::read(&crashed.path).unwrap() == crashed.raw);
        assert!(fs::read(&crashed.journal_path).unwrap() == crashed.journal);
        assert_eq!(crash::get_mark(&crashed.path).as_deref(), Some(&crashed.mark[..]));
        assert!(fs::read(crash::arena(&crashed.path)).unwrap() == arena);
    });
}

/// Bytes of a journal in place, one flipped at a time: the report names the problem and its position.
#[test]
fn a_changed_byte_is_named_with_its_place() {
    for (i, settings) in in_place().into_iter().enumerate() {
        let crashed = Crashed::usual(Scratch::on_tmpfs(&format!("flip{i}")), &settings);
        crashed.forget_arena();
        let word = |at: usize| u64::from_le_bytes(crashed.journal[at..at + 8].try_into().unwrap());
        let last = (0..8).map(|slot| word(SLOTS + slot * 256)).max().unwrap();
        let entry = (0..64).map(|i| SEGMENT + 64 + 64 * i).find(|&at| word(at) != 0).unwrap();
        // Offset and number of bytes: the last commit's first copy, its second copy's epoch, an older one, the first
        // segment's header, an entry's check and block.
        let last_at = SLOTS + (last % 8) as usize * 256;
        let places =
            [(last_at, 32), (last_at + 32, 8), (SLOTS + 256, 64), (SEGMENT, 40), (entry, 16), (EXTENT + 40, 8)];
        for (start, len) in places {
            for at in start..start + len {
                let mut bytes = crashed.journal.clone();
                bytes[at] ^= 0x41;
                crashed.put_journal(&bytes);
                let checked = check_one(&crashed.path, &settings);
                assert!(matches!(checked.condition, Condition::Damaged), "{settings:?}, byte {at}: {checked:?}");
                let fast_path = |problem: &famio::recovery::Problem| {
                    problem.at.is_some_and(|named| named as usize <= at && at < named as usize + 64)
                };
                assert!(checked.problems.iter().any(fast_path), "{settings:?}, byte {at}: {checked:?}");
            }
        }
    }
}

/// Whatever stops recovery is reported as damage, wherever the byte is, and in records, too.
#[test]
fn what_recovery_stops_at_is_damage() {
    everywhere_and_tiered("stops", |crashed| {
        crashed.forget_arena();
        let step = crashed.journal.len().min(40_000) / 400;
        let mut stopped = 0;
        for at in (0..crashed.journal.len().min(40_000)).step_by(step.max(1)) {
            let mut bytes = crashed.journal.clone();
            bytes[at] ^= 0x18;
            crashed.put_journal(&bytes);
            if dry_run_stops(&crashed) {
                stopped += 1;
                let checked = check_one(&crashed.path, &crashed.settings);
                assert!(matches!(checked.condition, Condition::Damaged), "{:?}, byte {at}", crashed.settings);
                assert!(!checked.problems.is_empty());
            }
        }
        assert!(stopped > 0, "{:?}", crashed.settings);
    });
}

#[test]
fn a_journal_that_was_cut_short() {
    everywhere_and_tiered("cut", |crashed| {
        crashed.forget_arena();
        for length in [2000, 5000, 9000, (crashed.journal.len() / 2) & !4095] {
            crashed.put_journal(&crashed.journal[..length]);
            let checked = check_one(&crashed.path, &crashed.settings);
            assert!(matches!(checked.condition, Condition::Damaged), "{:?}, {length}: {checked:?}", crashed.settings);
        }
    });
}

#[test]
fn marks_files_and_journals_that_are_not_there() {
    everywhere("missing", |crashed| {
        crash::remove_mark(&crashed.path);
        let checked = check_one(&crashed.path, &crashed.settings);
        assert!(checked.problems[0].what.contains("no mark"), "{checked:?}");
        crash::set_mark(&crashed.path, &crashed.mark);

        fs::remove_file(&crashed.journal_path).unwrap();
        let checked = check_one(&crashed.path, &crashed.settings);
        assert!(checked.problems[0].what.contains("which is not there"), "{checked:?}");

        crashed.put_journal(&crashed.journal);
        let away = crashed.path.with_extension("away");
        crashed.forget_arena();
        fs::remove_file(&crashed.path).unwrap();
        fs::write(&away, b"another").unwrap();
        let checked = check_one(crashed.dir.path(), &crashed.settings);
        assert!(checked.problems[0].what.contains("is not there"), "{checked:?}");
        assert_eq!(checked.problems.len(), 1, "the journal itself is sound: {checked:?}");
    });
}

#[test]
fn a_file_in_use_is_not_checked() {
    let dir = Scratch::on_tmpfs("check-in-use");
    let path = dir.path().join("app.db");
    let opened = Opened::new(&path, &Settings::default());
    opened.write(0, b"something");
    let checked = check_one(&path, &Settings::default());
    assert!(matches!(checked.condition, Condition::InUse(_)), "{checked:?}");
    drop(opened);
    assert!(matches!(check_one(&path, &Settings::default()).condition, Condition::Ordinary));
}

#[test]
fn by_descriptors() {
    everywhere_and_tiered("descriptors", |crashed| {
        let (file, journal) = (File::open(&crashed.path).unwrap(), File::open(&crashed.journal_path).unwrap());
        let (epoch, problems) = check_journal(journal.as_fd(), Some(file.as_fd())).unwrap();
        assert!(epoch > 0 && problems.is_empty(), "{problems:?}");
    });
}

/// A header that says *clean* is sound, and recovery accepts it. (The crash simulator checks that it is made durable
/// before the mark is removed.)
#[test]
fn a_clean_journal_is_sound() {
    everywhere_and_tiered("clean", |crashed| {
        let journal = File::options().read(true).write(true).open(&crashed.journal_path).unwrap();
        let (mut header, _) = Header::load(journal.as_fd()).unwrap();
        header.state = State::Clean;
        let clean = header.encode();
        crashed.put_journal(&[&clean[..], &clean[..], &crashed.journal[4096..]].concat());
        assert!(matches!(check_one(&crashed.path, &crashed.settings).condition, Condition::Sound { epoch: 0 }));
        let report = crashed.recover(famio::recovery::Use::Refuse);
        assert!(matches!(report.outcome, famio::recovery::Outcome::Clean), "{report:?}");
    });
}
