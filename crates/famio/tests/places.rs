//! Files, journals and pools that are not where they were: moved, copied, removed, of another setting, not writable.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch};
use crash::{Crashed, everywhere, in_place, is_stopped};
use famio::recovery::{Outcome, Use};
use famio::{JournalChoice, Settings};
use std::fs;
use std::path::Path;

#[test]
fn crash_child() {
    crash::child();
}

/// Opening `path` must fail with `EIO` and a message that names it and its journal, if it has one, and change nothing.
fn is_refused(path: &Path, settings: &Settings, what: &str) {
    let before = fs::read(path).unwrap();
    let error = Opened::try_new(path, settings).err().unwrap_or_else(|| panic!("{what}: opened"));
    assert_eq!(error.errno(), libc::EIO, "{what}: {error}");
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()), "{what}: {text}");
    assert!(text.contains(".journal") || text.contains("it is a copy"), "{what}: {text}");
    assert!(fs::read(path).unwrap() == before, "{what}: touched");
}

fn is_recovered(path: &Path, settings: &Settings, committed: &[u8]) {
    drop(Opened::new(path, settings));
    assert!(fs::read(path).unwrap() == committed);
    assert!(crash::get_mark(path).is_none());
}

#[test]
fn moved_within_its_folder() {
    everywhere("renamed", |crashed| {
        let to = crashed.dir.path().join("renamed.db");
        fs::rename(&crashed.path, &to).unwrap();
        let _ = fs::remove_file(crash::arena(&to));
        is_recovered(&to, &crashed.settings, &crashed.committed);
        assert!(!crashed.journal_path.exists());
    });
}

#[test]
fn moved_without_its_journal_and_back() {
    everywhere("moved", |crashed| {
        let elsewhere = crashed.dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let to = elsewhere.join("app.db");
        fs::rename(&crashed.path, &to).unwrap();
        is_refused(&to, &crashed.settings, "moved without its journal");
        for on_conflict in [Use::Refuse, Use::Journal] {
            assert!(is_stopped(&crash::recover(&to, &crashed.settings, on_conflict).outcome));
        }
        assert!(fs::read(&to).unwrap() == crashed.raw && crashed.journal_path.exists());
        fs::rename(&to, &crashed.path).unwrap();
        crashed.forget_arena(); // renaming changes the file's times
        is_recovered(&crashed.path, &crashed.settings, &crashed.committed);
    });
}

#[test]
fn moved_together_with_its_journal() {
    everywhere("together", |crashed| {
        let elsewhere = crashed.dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::rename(&crashed.path, elsewhere.join("app.db")).unwrap();
        fs::rename(crashed.dir.path().join(".famio"), elsewhere.join(".famio")).unwrap();
        // A rename changes the file's times, like an outsider's write; after the end of a boot, that is not checked.
        let _ = fs::remove_file(crash::arena(&elsewhere.join("app.db")));
        is_recovered(&elsewhere.join("app.db"), &crashed.settings, &crashed.committed);
        assert!(!elsewhere.join(".famio").exists());
    });
}

#[test]
fn a_copy_with_its_attributes_is_no_file_of_that_journal() {
    everywhere("copied", |crashed| {
        for (i, with_journal) in [false, true].into_iter().enumerate() {
            let folder = crashed.dir.path().join(format!("copy{i}"));
            fs::create_dir(&folder).unwrap();
            let to = folder.join("app.db");
            fs::copy(&crashed.path, &to).unwrap();
            crash::set_mark(&to, &crashed.mark);
            if with_journal {
                use std::os::unix::fs::DirBuilderExt;
                fs::DirBuilder::new().mode(0o700).create(folder.join(".famio")).unwrap();
                let name = crashed.journal_path.file_name().unwrap();
                fs::copy(&crashed.journal_path, folder.join(".famio").join(name)).unwrap();
            }
            is_refused(&to, &crashed.settings, "a copy");
            assert!(is_stopped(&crash::recover(&to, &crashed.settings, Use::Journal).outcome));
            // The user may declare the copy to be right.
            let report = crash::recover(&to, &crashed.settings, Use::File);
            assert!(matches!(report.outcome, Outcome::Discarded), "{report:?}");
            is_recovered(&to, &crashed.settings, &crashed.raw);
        }
        // Beside the original.
        let to = crashed.dir.path().join("beside.db");
        fs::copy(&crashed.path, &to).unwrap();
        crash::set_mark(&to, &crashed.mark);
        is_refused(&to, &crashed.settings, "a copy beside");
        assert!(matches!(crash::recover(&to, &crashed.settings, Use::File).outcome, Outcome::Discarded));
        assert!(fs::read(&crashed.journal_path).unwrap() == crashed.journal, "the original's journal was touched");
        is_recovered(&crashed.path, &crashed.settings, &crashed.committed);
    });
}

#[test]
fn a_copy_without_attributes_is_an_ordinary_file() {
    everywhere("plain", |crashed| {
        let to = crashed.dir.path().join("copy.db");
        fs::copy(&crashed.path, &to).unwrap();
        crash::remove_mark(&to);
        is_recovered(&to, &crashed.settings, &crashed.raw);
        assert!(fs::read(&crashed.journal_path).unwrap() == crashed.journal);
    });
}

#[test]
fn the_mark_was_lost() {
    everywhere("unmarked", |crashed| {
        crash::remove_mark(&crashed.path);
        is_refused(&crashed.path, &crashed.settings, "no mark");
        assert!(is_stopped(&crashed.recover(Use::Refuse).outcome));
        let report = crashed.recover(Use::Journal);
        assert!(matches!(report.outcome, Outcome::Recovered), "{report:?}");
        crashed.assert_recovered();
    });
}

#[test]
fn the_mark_was_damaged() {
    everywhere("marked", |crashed| {
        crashed.forget_arena();
        for at in 0..crashed.mark.len() {
            let mut bad = crashed.mark.clone();
            bad[at] ^= 0x11;
            crash::set_mark(&crashed.path, &bad);
            let error = Opened::try_new(&crashed.path, &crashed.settings).err().expect("opened");
            assert_eq!(error.errno(), libc::EIO, "byte {at}: {error}");
            assert!(error.to_string().contains("app.db") && error.to_string().contains(".journal"), "{error}");
            assert!(fs::read(&crashed.path).unwrap() == crashed.raw);
        }
        // Either choice resolves it.
        let report = crashed.recover(Use::Journal);
        assert!(matches!(report.outcome, Outcome::Recovered), "{report:?}");
        crashed.assert_recovered();
        crashed.restore();
        crash::set_mark(&crashed.path, b"nonsense");
        let report = crashed.recover(Use::File);
        assert!(matches!(report.outcome, Outcome::Discarded), "{report:?}");
        assert!(crash::get_mark(&crashed.path).is_none() && fs::read(&crashed.path).unwrap() == crashed.raw);
    });
}

#[test]
fn the_journal_is_gone() {
    everywhere("gone", |crashed| {
        fs::remove_dir_all(crashed.dir.path().join(".famio")).unwrap();
        is_refused(&crashed.path, &crashed.settings, "no journal");
        assert!(is_stopped(&crashed.recover(Use::Journal).outcome));
        let report = crashed.recover(Use::File);
        assert!(matches!(report.outcome, Outcome::Discarded), "{report:?}");
        is_recovered(&crashed.path, &crashed.settings, &crashed.raw);
    });
}

/// A file and a pool, both on the file system for these settings.
fn with_pool(name: &str, mut with: impl FnMut(Crashed, &Path)) {
    let all = in_place().into_iter().map(|settings| (true, settings)).chain([(false, Settings::default())]);
    for (i, (on_tmpfs, settings)) in all.enumerate() {
        let name = format!("{name}{i}");
        let dir = if on_tmpfs { Scratch::on_tmpfs(&name) } else { Scratch::on_disk(&name) };
        let pool = dir.path().join("pool");
        fs::create_dir(&pool).unwrap();
        let settings = Settings { pool: Some(pool.clone()), ..settings };
        with(Crashed::usual(dir, &settings), &pool);
    }
}

#[test]
fn the_pool_is_gone_at_reopen() {
    with_pool("pool-gone", |crashed, pool| {
        let away = crashed.dir.path().join("away");
        fs::rename(pool, &away).unwrap();
        is_refused(&crashed.path, &crashed.settings, "the pool is gone");
        is_refused(&crashed.path, &Settings { pool: None, ..crashed.settings.clone() }, "gone, and another setting");
        fs::create_dir(pool).unwrap();
        is_refused(&crashed.path, &crashed.settings, "the pool is empty");
        fs::remove_dir(pool).unwrap();
        fs::rename(&away, pool).unwrap();
        is_recovered(&crashed.path, &crashed.settings, &crashed.committed);
        assert!(pool.exists() && crash::journals(pool).is_empty());
    });
}

#[test]
fn reopened_with_another_pool_setting() {
    with_pool("pool-other", |crashed, pool| {
        let other = crashed.dir.path().join("other");
        fs::create_dir(&other).unwrap();
        for setting in [None, Some(other.clone())] {
            crashed.restore();
            // The mark says where the journal is.
            is_recovered(&crashed.path, &Settings { pool: setting, ..crashed.settings.clone() }, &crashed.committed);
            assert!(crash::journals(pool).is_empty());
        }
    });
}

#[test]
fn reopened_with_a_pool_setting_that_leads_nowhere() {
    with_pool("pool-nowhere", |crashed, _| {
        let settings = Settings { pool: Some("/nowhere/pool".into()), ..crashed.settings.clone() };
        match Opened::try_new(&crashed.path, &settings) {
            Ok(opened) => assert!(opened.read(0, 1 << 20) == crashed.committed),
            Err(e) => {
                assert!(e.to_string().contains("/nowhere/pool"), "{e}");
                assert!(fs::read(&crashed.path).unwrap() == crashed.raw);
            }
        }
    });
}

#[test]
fn a_pool_in_the_folder_is_recovered_as_a_folder() {
    with_pool("pool-path", |crashed, pool| {
        let options = famio::recovery::Options::default();
        let no_setting = Settings { pool: None, ..crashed.settings.clone() };
        let reports = famio::recovery::recover_path(pool, &no_setting, &options, &famio::recovery::Silent).unwrap();
        assert!(matches!(&reports[..], [report] if matches!(report.outcome, Outcome::Recovered)), "{reports:?}");
        crashed.assert_recovered();
    });
}

/// Runs as user nobody, in this thread only.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        // SAFETY: changes the ids of this thread, which ends below. By the system call, since libc's functions would
        // change those of all threads.
        let done = unsafe {
            libc::syscall(libc::SYS_setgroups, 0, 0)
                | libc::syscall(libc::SYS_setresgid, 65534, 65534, 65534)
                | libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534)
        };
        assert_eq!(done, 0);
        work()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[test]
fn a_pool_that_may_not_be_written() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("NOT TESTED: a pool without write permission needs root, to switch to another user");
        return;
    }
    for beside in [false, true] {
        let dir = Scratch::on_tmpfs(&format!("readonly-{beside}"));
        let folder = dir.path().join("folder");
        let pool = dir.path().join("pool");
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&pool).unwrap();
        let path = folder.join("app.db");
        fs::write(&path, [7; 10_000]).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
        // The pool belongs to root and is readable for all; so is the folder, for a `.famio/` in it.
        let pool_setting = (!beside).then(|| pool.clone());
        let journal = JournalChoice::Always;
        let settings = Settings { pool: pool_setting, require: true, journal, ..Settings::default() };
        as_nobody(|| {
            let opened = Opened::try_new(&path, &settings).unwrap();
            let error = opened.try_write(0, b"abc").unwrap_err();
            assert!([libc::EACCES, libc::EPERM, libc::EROFS].contains(&error.errno()), "{error:?}");
            let place = if beside { folder.join(".famio") } else { pool.clone() };
            let text = error.to_string();
            assert!(text.contains(path.to_str().unwrap()) && text.contains(place.to_str().unwrap()), "{text}");
            assert_eq!(opened.read(0, 10_000), [7; 10_000]);
        });
        assert_eq!(fs::read(&path).unwrap(), [7; 10_000]);
        assert!(crash::get_mark(&path).is_none() && crash::journals(&pool).is_empty());
    }
}
