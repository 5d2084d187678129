//! Recovery can be killed at any moment and repeated; a dry run changes nothing; it accepts paths of files, folders
//! and pools; and it cleans up after interrupted creations and closes.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch};
use crash::{Crashed, DieClosing, Sync, everywhere, everywhere_with, in_place, write};
use famio::journal::{Header, State};
use famio::recovery::{Options, Outcome, Progress, Silent, Use, recover_path, survey};
use famio::{JournalChoice, Settings};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn crash_child() {
    crash::child();
}

const PATH: &str = "FAMIO_RECOVER_PATH";

/// The process that is killed in the middle of a recovery.
#[test]
fn recover_child() {
    let Ok(path) = std::env::var(PATH) else { return };
    eprintln!("ready");
    let reports = recover_path(Path::new(&path), &Settings::default(), &Options::default(), &Silent).unwrap();
    assert!(reports.iter().all(|report| !crash::is_stopped(&report.outcome)), "{reports:?}");
}

/// Starts a recovery and kills it after `ownership` turns. Returns whether it was killed before it was done.
fn killed_recovery(path: &Path, ownership: u64) -> bool {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "recover_child", "--nocapture"]).env(PATH, path);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    for _ in 0..ownership {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(status.signal() == Some(libc::SIGKILL) || status.success(), "{}: {said:?}", path.display());
    !status.success()
}

fn long_history() -> Vec<crash::Step> {
    let mut steps: Vec<_> = (0..300u64).map(|i| write(i * 9000, 5000, i as u8 | 1)).collect();
    steps.push(Sync);
    steps.extend((0..300u64).map(|i| write(i * 9000 + 1000, 3000, i as u8 | 2)));
    steps.extend([crash::Size(2_000_000), Sync, crash::Size(2_100_000)]);
    steps.extend((0..200u64).map(|i| write(i * 9000 + 500, 6000, 77)));
    steps
}

#[test]
fn killed_at_any_moment_and_run_again() {
    let all = in_place().into_iter().map(|settings| (true, settings)).chain([(false, Settings::default())]);
    for (i, (on_tmpfs, settings)) in all.enumerate() {
        let name = format!("again{i}");
        let dir = if on_tmpfs { Scratch::on_tmpfs(&name) } else { Scratch::on_disk(&name) };
        let crashed = Crashed::new(dir, &settings, &long_history());
        let (mut killed, mut round) = (0, 0u64);
        // Until one was killed: with one processor, all may have ended before.
        while round < 12 || killed == 0 && round < 300 {
            if round > 0 {
                crashed.restore();
            }
            // The first round with the crash's arena: a killed recovery must not look like an outsider.
            for again in 0..4 {
                killed += u64::from(killed_recovery(&crashed.path, (round * 4 + again) * 7919 % 60_000));
            }
            let report = crashed.recover(Use::Refuse);
            let done = matches!(report.outcome, Outcome::Recovered | Outcome::Clean | Outcome::NothingToDo);
            assert!(done, "{settings:?}, round {round}: {report:?}");
            crashed.assert_recovered();
            round += 1;
        }
        assert!(killed > 0, "{settings:?}: no recovery was killed");
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    everywhere("dry", |crashed| {
        let options = Options { dry_run: true, ..Options::default() };
        let arena = fs::read(crash::arena(&crashed.path)).unwrap();
        for path in [crashed.path.clone(), crashed.dir.path().to_path_buf()] {
            for on_conflict in [Use::Refuse, Use::Journal, Use::File] {
                let options = Options { on_conflict, ..options };
                let reports = recover_path(&path, &crashed.settings, &options, &Silent).unwrap();
                // There is nothing to decide.
                assert!(
                    matches!(&reports[..], [report] if matches!(report.outcome, Outcome::Recovered)),
                    "{reports:?}"
                );
                assert!(reports[0].epoch > 0, "{reports:?}");
                assert!(fs::read(&crashed.path).unwrap() == crashed.raw);
                assert!(fs::read(&crashed.journal_path).unwrap() == crashed.journal);
                assert_eq!(crash::get_mark(&crashed.path).as_deref(), Some(&crashed.mark[..]));
                assert!(fs::read(crash::arena(&crashed.path)).unwrap() == arena);
            }
        }
        let found = survey(&crashed.path, &crashed.settings).unwrap();
        assert!(matches!(&found[..], [one] if one.state == "active" && one.owner.is_none()), "{found:?}");
        assert!(matches!(crashed.recover(Use::Refuse).outcome, Outcome::Recovered));
        crashed.assert_recovered();
    });
}

#[derive(Default)]
struct Counted {
    announced: AtomicU64,
    advanced: AtomicU64,
    ended: AtomicU64,
}

impl Progress for Counted {
    fn begin(&self, bytes: u64) {
        self.announced.fetch_add(bytes, Ordering::Relaxed);
    }
    fn advance(&self, bytes: u64) {
        self.advanced.fetch_add(bytes, Ordering::Relaxed);
    }
    fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_large_journal_with_threads() {
    for (name, on_tmpfs) in [("large-redo", true), ("large-records", false)] {
        let dir = if on_tmpfs { Scratch::on_tmpfs(name) } else { Scratch::on_disk(name) };
        let settings = Settings { policy: famio::PolicyChoice::Redo, ..Settings::default() };
        let mut steps: Vec<_> = (0..72u64).map(|i| write(i << 20, 1 << 20, i as u8 + 1)).collect();
        steps.extend([Sync, write(5 << 20, 3 << 20, 200)]);
        let path = dir.path().join("app.db");
        // Bytes below the committed size: above it, nothing has to go through the journal.
        fs::File::create(&path).unwrap().set_len(72 << 20).unwrap();
        crash::crash(&path, &settings, &steps);
        for threads in [4, 1] {
            let copy = fs::read(&path).unwrap();
            let counted = Counted::default();
            let options = Options { threads, dry_run: threads == 4, ..Options::default() };
            let reports = recover_path(&path, &settings, &options, &counted).unwrap();
            assert!(matches!(reports[0].outcome, Outcome::Recovered), "{reports:?}");
            assert!(!options.dry_run || fs::read(&path).unwrap() == copy);
        }
        let expected = |at: usize| (at >> 20) as u8 + 1;
        let found = fs::read(&path).unwrap();
        assert_eq!(found.len(), 72 << 20);
        let differs = found.iter().enumerate().position(|(at, &byte)| byte != expected(at));
        assert_eq!(differs, None, "{name}");
    }
}

#[test]
fn threads_and_progress() {
    for threads in [1, 2, 3, 8, 64] {
        let dir = Scratch::on_tmpfs(&format!("threads{threads}"));
        let settings = Settings { policy: famio::PolicyChoice::Redo, ..Settings::default() };
        let crashed = Crashed::new(dir, &settings, &long_history());
        let counted = Counted::default();
        let options = Options { threads, ..Options::default() };
        let reports = recover_path(&crashed.path, &settings, &options, &counted).unwrap();
        assert!(matches!(reports[0].outcome, Outcome::Recovered), "{reports:?}");
        crashed.assert_recovered();
        let [announced, advanced] = [&counted.announced, &counted.advanced].map(|n| n.load(Ordering::Relaxed));
        assert!(announced == advanced && announced == reports[0].bytes && announced > 0, "{announced} {advanced}");
        assert_eq!(counted.ended.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_folder_with_several_files_below_it() {
    let dir = Scratch::on_tmpfs("folder");
    let steps = crash::history();
    let (_, committed) = crash::model(&crash::initial(), &steps);
    let mut paths = Vec::new();
    for (i, settings) in in_place().into_iter().enumerate() {
        let folder = dir.path().join(format!("a{}", i % 3)).join("b");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("file{i}"));
        fs::write(&path, crash::initial()).unwrap();
        crash::crash(&path, &settings, &steps);
        paths.push(path);
    }
    // A file that cannot be recovered does not keep the others from being recovered.
    let bad = crash::journals(&paths[0].with_file_name(".famio")).remove(0);
    let damaged = fs::read(&bad).unwrap();
    fs::write(&bad, &damaged[..3000]).unwrap();
    let reports = recover_path(dir.path(), &Settings::default(), &Options::default(), &Silent).unwrap();
    assert_eq!(reports.len(), paths.len(), "{reports:?}");
    assert_eq!(reports.iter().filter(|report| crash::is_stopped(&report.outcome)).count(), 1, "{reports:?}");
    fs::write(&bad, damaged).unwrap();
    let reports = recover_path(dir.path(), &Settings::default(), &Options::default(), &Silent).unwrap();
    assert!(matches!(&reports[..], [report] if matches!(report.outcome, Outcome::Recovered)), "{reports:?}");
    for path in paths {
        assert!(fs::read(&path).unwrap() == committed, "{}", path.display());
        assert!(!path.with_file_name(".famio").exists());
    }
    let reports = recover_path(dir.path(), &Settings::default(), &Options::default(), &Silent).unwrap();
    assert!(reports.is_empty(), "{reports:?}");
    assert!(recover_path(&dir.path().join("none"), &Settings::default(), &Options::default(), &Silent).is_err());
}

/// The journal's header with another state.
fn in_state(crashed: &Crashed, state: State) -> Vec<u8> {
    let mut journal = crashed.journal.clone();
    for at in [0, 2048] {
        let copy: [u8; 2048] = journal[at..at + 2048].try_into().unwrap();
        if let Ok(mut header) = Header::decode(&copy) {
            header.state = state;
            journal[at..at + 2048].copy_from_slice(&header.encode());
        }
    }
    journal
}

#[test]
fn leftovers_of_creations_and_closes() {
    everywhere("leftover", |crashed| {
        for state in [State::Creating, State::Clean] {
            let journal = in_state(&crashed, state);
            for marked in [true, false] {
                for by_open in [true, false] {
                    crashed.restore();
                    crashed.put_journal(&journal);
                    if !marked {
                        crash::remove_mark(&crashed.path);
                    }
                    if by_open {
                        drop(Opened::new(&crashed.path, &crashed.settings));
                    } else {
                        let report = crashed.recover(Use::Refuse);
                        assert!(matches!(report.outcome, Outcome::Clean), "{report:?}");
                    }
                    // It committed nothing, or everything is in the file.
                    assert!(fs::read(&crashed.path).unwrap() == crashed.raw, "{state:?}: a leftover was replayed");
                    assert!(crash::get_mark(&crashed.path).is_none() && !crashed.journal_path.exists());
                    assert!(!crashed.dir.path().join(".famio").exists());
                }
            }
        }
        // A creation that was interrupted before there was a header.
        for length in [0usize, 1, 4096, 8192] {
            crashed.restore();
            crash::remove_mark(&crashed.path);
            crashed.put_journal(&vec![0; length]);
            drop(Opened::new(&crashed.path, &crashed.settings));
            assert!(fs::read(&crashed.path).unwrap() == crashed.raw && !crashed.journal_path.exists(), "{length}");
        }
        // Only the arena is left, and the control file that names it.
        crash::crash(&crashed.path, &crashed.settings, &[crash::write(0, 100, 99)]);
        let control = common::arenas::control(&crashed.path).unwrap();
        let page = fs::read(&control).unwrap();
        crashed.restore();
        assert!(matches!(crashed.recover(Use::Refuse).outcome, Outcome::Recovered));
        fs::create_dir(control.parent().unwrap()).unwrap();
        fs::write(&control, &page).unwrap();
        fs::set_permissions(&control, fs::Permissions::from_mode(0o600)).unwrap();
        let arena = crash::arena(&crashed.path);
        fs::write(&arena, [0xFF; 8192]).unwrap();
        let opened = Opened::new(&crashed.path, &crashed.settings);
        opened.write(0, b"again");
        drop(opened);
        assert_eq!(&fs::read(&crashed.path).unwrap()[..5], b"again");
        assert!(!arena.exists() && !control.exists());
    });
}

/// Crash, recover, commit, crash: the epochs of the first life have no meaning in the second.
#[test]
fn lives_one_after_the_other() {
    everywhere("lives", |crashed| {
        let mut model = crashed.committed.clone();
        for life in 0..4u8 {
            let steps = [
                write(100 * u64::from(life), 5000, 100 + life),
                Sync,
                write(0, 9000, 200),
                crash::Size(7000 + u64::from(life)),
            ];
            crash::crash(&crashed.path, &crashed.settings, &steps);
            model = crash::model(&model, &steps).1;
        }
        drop(Opened::new(&crashed.path, &crashed.settings));
        assert!(fs::read(&crashed.path).unwrap() == model, "{:?}", crashed.settings);
    });
}

/// A file with preallocated length is cut when it is closed; a kill just then must not look like an outsider's
/// change.
#[test]
fn a_kill_at_the_end_of_a_close_is_no_conflict() {
    let steps = [write(0, 5000, 1), Sync, write(100, 30_000, 2), DieClosing];
    everywhere_with("dies-closing", &steps, |crashed| {
        drop(Opened::new(&crashed.path, &crashed.settings));
        crashed.assert_recovered();
    });
}

/// It used to say that the journal had been restarted.
#[test]
fn a_backup_beside_a_program_says_that_the_journal_cannot_be_read() {
    let dir = Scratch::on_disk("damaged-in-use");
    let path = dir.path().join("app.db");
    fs::write(&path, crash::initial()).unwrap();
    let steps = [write(0, 9000, 1), Sync, write(0, 9000, 2), Sync, write(0, 9000, 3), Sync];
    let mut child = crash::hold(&path, &Settings::default(), &steps);
    let journal = crash::journals(&dir.path().join(".famio")).pop().unwrap();
    let bytes = fs::read(&journal).unwrap();
    let first = bytes.windows(64).position(|window| window == [1; 64]).unwrap();
    let damaged = fs::File::options().write(true).open(&journal).unwrap();
    damaged.write_all_at(&[7; 64], first as u64).unwrap();
    let copy = dir.path().join("copy");
    let backup = || famio::recovery::backup(&path, &copy, false, &Settings::default(), &|_| {});
    let text = backup().unwrap_err().to_string();
    assert!(text.contains("app.db: its journal can't be read while it is used"), "{text}");
    assert!(!copy.exists());
    damaged.write_all_at(&bytes[first..first + 64], first as u64).unwrap();
    backup().unwrap();
    assert!(fs::read(&copy).unwrap() == crash::model(&crash::initial(), &steps).1);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A journal that a kill left without a header is known by its name; examining the folder removes it. The killed
/// process had attached to the file and had no journal yet.
#[test]
fn a_folder_with_a_control_file_alone_is_cleaned_up() {
    let dir = Scratch::on_tmpfs("control-alone");
    let path = dir.path().join("file");
    fs::write(&path, "there before").unwrap();
    let opened = Opened::new(&path, &Settings { journal: JournalChoice::Always, ..Settings::default() });
    opened.write(0, b"after");
    let control = common::arenas::control(&path).unwrap();
    let page = fs::read(&control).unwrap();
    let recover = |dry_run| {
        let options = Options { dry_run, ..Options::default() };
        recover_path(dir.path(), &Settings::default(), &options, &Silent).unwrap();
    };
    recover(false);
    assert!(control.exists(), "it is in use");
    drop(opened);
    fs::create_dir(control.parent().unwrap()).unwrap();
    fs::write(&control, page).unwrap();
    fs::set_permissions(&control, fs::Permissions::from_mode(0o600)).unwrap();
    recover(true);
    assert!(control.exists());
    recover(false);
    assert!(!control.parent().unwrap().exists());
    assert_eq!(fs::read(&path).unwrap(), b"after before");
}

#[test]
fn a_folder_with_an_empty_journal_is_cleaned_up() {
    everywhere("empty-journal", |crashed| {
        let path = crashed.path.clone();
        drop(Opened::new(&path, &crashed.settings));
        for length in [0, 100, 8192] {
            crashed.put_journal(&vec![0; length]);
            let reports = recover_path(crashed.dir.path(), &crashed.settings, &Options::default(), &Silent).unwrap();
            assert!(matches!(reports[..], [famio::recovery::Report { outcome: Outcome::Clean, .. }]), "{reports:?}");
            crashed.assert_recovered();
        }
    });
}
