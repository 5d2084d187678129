//! Outsiders and other processes at the same file: programs without Famio that cut, change or read it, and processes
//! that compete for it.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch, in_place_settings};
use crash::{Sync, everywhere, hold, is_stopped, write};
use famio::recovery::{Options, Outcome, Silent, Use, recover_path};
use famio::{JournalChoice, Settings};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

#[test]
fn crash_child() {
    crash::child();
}

fn all(name: &str) -> impl Iterator<Item = (Settings, Scratch)> {
    let on_tmpfs = in_place_settings().into_iter().map(move |settings| (settings, Scratch::on_tmpfs(name)));
    on_tmpfs.chain([(Settings::default(), Scratch::on_disk(name))])
}

/// A write succeeds or reports an error; nothing ends the process.
#[test]
fn cut_while_open_is_no_sigbus() {
    for (settings, dir) in all("cut-while-open") {
        for cut_to in [0, 100, 4096, 10_000] {
            let path = dir.path().join(format!("cut-{cut_to}"));
            fs::write(&path, vec![1; 40_000]).unwrap();
            let opened = Opened::new(&path, &settings);
            opened.write(0, &[2; 5000]);
            opened.write(30_000, &[2; 100]);
            opened.atomic().sync().unwrap();
            opened.write(20_000, &[3; 5000]);
            File::options().write(true).open(&path).unwrap().set_len(cut_to).unwrap();
            for at in (0..42_000).step_by(1500) {
                match opened.try_read(at, 3000) {
                    Ok(bytes) => assert!(bytes.len() <= 3000),
                    Err(e) => assert_eq!(e.errno(), libc::EIO, "{settings:?}: read at {at}: {e}"),
                }
            }
            for at in (0..42_000).step_by(2500) {
                match opened.try_write(at, &[4; 2000]) {
                    Ok(n) => assert!(n <= 2000),
                    Err(e) => assert_eq!(e.errno(), libc::EIO, "{settings:?}: write at {at}: {e}"),
                }
            }
            for result in [opened.atomic().sync(), opened.atomic().set_size(50_000), opened.atomic().sync()] {
                if let Err(e) = result {
                    assert_eq!(e.errno(), libc::EIO, "{settings:?}: {e}");
                }
            }
            opened.close_anyhow();
        }
    }
}

/// As above, for the journal.
#[test]
fn a_journal_that_is_cut_while_in_use_is_no_sigbus() {
    for (settings, dir) in all("a-journal-that") {
        let path = dir.path().join("file");
        fs::write(&path, vec![1; 40_000]).unwrap();
        let opened = Opened::new(&path, &settings);
        opened.write(0, &[2; 5000]);
        opened.atomic().sync().unwrap();
        for journal in crash::journals(&dir.path().join(".famio")) {
            File::options().write(true).open(journal).unwrap().set_len(4096).unwrap();
        }
        let _ = opened.try_write(8192, &[3; 5000]);
        let _ = opened.try_read(0, 40_000);
        let _ = opened.atomic().sync();
        opened.close_anyhow();
    }
}

#[test]
fn an_outsider_reads_along() {
    for (settings, dir) in all("an-outsider-reads-al") {
        let path = dir.path().join("file");
        fs::write(&path, vec![1; 40_000]).unwrap();
        let opened = Opened::new(&path, &settings);
        let mut model = vec![1; 40_000];
        for round in 0..20u8 {
            let at = usize::from(round) * 1900;
            opened.write(at as u64, &[round + 2; 1500]);
            model[at..at + 1500].fill(round + 2);
            // Reads return bytes that were once written there, and never more than the file has.
            let seen = fs::read(&path).unwrap();
            assert!(seen.iter().zip(&model).all(|(seen, now)| *seen == 1 || seen == now), "{settings:?}");
            if round % 5 == 4 {
                opened.atomic().sync().unwrap();
            }
        }
        drop(opened);
        assert!(fs::read(&path).unwrap() == model);
    }
}

/// The memory of a killed process is removed once its file cannot come back; not before, and never while a process
/// uses it.
#[test]
fn arenas_that_nobody_asks_for_again_are_swept() {
    let dir = Scratch::on_tmpfs("swept");
    let settings = Settings { journal: JournalChoice::Always, ..Settings::default() };
    let crashed = |name: &str| {
        let folder = dir.path().join(name);
        fs::create_dir(&folder).unwrap();
        let path = folder.join("file");
        crash::crash(&path, &settings, &[write(0, 5000, 2), Sync, write(0, 100, 3)]);
        let arena = crash::arena(&path);
        assert!(arena.exists());
        (folder, path, arena)
    };
    let (folder, _, with_folder) = crashed("folder-deleted");
    fs::remove_dir_all(folder).unwrap();
    let (_, path, with_file) = crashed("file-deleted");
    fs::remove_file(path).unwrap();
    let (folder, path, renamed) = crashed("file-renamed");
    fs::rename(path, folder.join("other")).unwrap();
    // Only examined: `recover` would remove it.
    let (_, _, there) = crashed("there");
    let held = dir.path().join("held");
    let mut child = hold(&held, &settings, &[write(0, 5000, 2), Sync]);
    let in_use = crash::arena(&held);
    fs::remove_file(&held).unwrap();
    fs::remove_dir_all(dir.path().join(".famio")).unwrap();

    let nowhere = dir.path().join("nowhere");
    fs::create_dir(&nowhere).unwrap();
    let swept = recover_path(&nowhere, &settings, &Options::default(), &Silent).unwrap();
    assert!(swept.is_empty());
    assert!(!with_folder.exists() && !with_file.exists());
    assert!(renamed.exists() && there.exists() && in_use.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    recover_path(&nowhere, &settings, &Options::default(), &Silent).unwrap();
    assert!(!in_use.exists());
}

/// Waits until changes in a folder get a time later than that of any previous write.
fn time_passes(folder: &Path) {
    let probe = folder.join("probe");
    let touched = || {
        fs::write(&probe, b"now").unwrap();
        fs::metadata(&probe).unwrap().modified().unwrap()
    };
    let later = touched() + Duration::from_millis(40);
    assert!(common::comes_true(|| touched() > later));
    fs::remove_file(&probe).unwrap();
}

/// Edited, cut or extended between the crash and the recovery.
#[test]
fn changed_after_the_crash() {
    type Change = (&'static str, fn(&Path));
    let changes: [Change; 3] = [
        ("edited", |path| File::options().write(true).open(path).unwrap().write_all_at(b"edited", 11_000).unwrap()),
        ("cut", |path| File::options().write(true).open(path).unwrap().set_len(5000).unwrap()),
        ("made longer", |path| File::options().write(true).open(path).unwrap().set_len(90_000).unwrap()),
    ];
    for (what, change) in changes {
        everywhere("changed", |crashed| {
            time_passes(crashed.path.parent().unwrap());
            change(&crashed.path);
            let changed = fs::read(&crashed.path).unwrap();
            let arena = crashed.arena();
            let error = Opened::try_new(&crashed.path, &crashed.settings).err();
            let error = error.unwrap_or_else(|| panic!("{:?}: opened though {what}", crashed.settings));
            assert_eq!(error.errno(), libc::EIO, "{error}");
            let text = error.to_string();
            assert!(text.contains("app.db") && text.contains(".journal"), "{text}");
            assert!(text.contains("--use=journal") && text.contains("--use=file"), "{text}");
            // It stays so, however often it is tried.
            for on_conflict in [Use::Refuse, Use::Refuse] {
                assert!(is_stopped(&crashed.recover(on_conflict).outcome), "{what}");
                assert!(Opened::try_new(&crashed.path, &crashed.settings).is_err(), "{what}");
            }
            assert!(fs::read(&crashed.path).unwrap() == changed, "{what}: touched");
            let report = crashed.recover(Use::File);
            assert!(matches!(report.outcome, Outcome::Discarded), "{what}: {report:?}");
            assert!(fs::read(&crashed.path).unwrap() == changed, "{what}: --use=file touched it");
            // Again, for the other choice.
            crashed.restore();
            change(&crashed.path);
            crashed.put_arena(&arena);
            let report = crashed.recover(Use::Journal);
            assert!(matches!(report.outcome, Outcome::Recovered), "{what}: {report:?}");
            let found = fs::read(&crashed.path).unwrap();
            assert_eq!(found.len(), crashed.committed.len(), "{what}");
            // Data that the outsider removed is gone; data in the journal is right.
            let journalled = 12_010..17_010;
            if what != "cut" || !crashed.settings.emulated {
                let differs = journalled.clone().find(|&i| found[i] != crashed.committed[i]);
                assert!(what == "cut" || differs.is_none(), "{what}, {:?}: {differs:?}", crashed.settings);
            }
        });
    }
}

#[test]
fn a_file_in_use_is_not_recovered() {
    for (settings, dir) in all("a-file-in-use") {
        let path = dir.path().join("file");
        fs::write(&path, vec![1; 10_000]).unwrap();
        let mut owner = hold(&path, &settings, &[write(0, 100, 2), Sync, write(50, 100, 3)]);
        let report = crash::recover(&path, &settings, Use::Journal);
        assert!(matches!(report.outcome, Outcome::InUse(Some(of)) if of.pid == owner.id()), "{report:?}");
        assert_eq!(crash::journals(&dir.path().join(".famio")).len(), 1);
        // After a kill, the file can be opened, and is recovered.
        owner.kill().unwrap();
        owner.wait().unwrap();
        let opened = Opened::new(&path, &settings);
        let found = opened.read(0, 20_000);
        assert!(found[..100] == [2; 100] && found[100..] == [1; 9900], "{settings:?}");
    }
}
