//! Journals that their files do not need any more, and journals that cannot be read.

mod common;

use common::running::{famio, said, start};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const WRITER: &str = "
import os, sys
a = os.open('o.db', os.O_RDWR | os.O_CREAT)
os.write(a, b'old' * 5000)
os.fsync(a)
os.pwrite(a, b'open', 100)
print('ready', flush=True)
sys.stdin.read()";

/// A folder with `o.db`, left by a killed process, and its journal. `None`: the library is not built.
fn crashed() -> Option<(tempfile::TempDir, PathBuf)> {
    crashed_in("/dev/shm")
}

fn crashed_in(parent: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir_in(parent).unwrap();
    drop(start(folder.path(), &["--journal", "always", "--atomic", "o.db"], WRITER)?);
    let journal = journal_in(&folder.path().join(".famio"));
    Some((folder, journal))
}

fn journal_in(pool: &Path) -> PathBuf {
    let mut paths = std::fs::read_dir(pool).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|end| end == "journal")).unwrap()
}

/// It used to be refused forever: its file existed, though it did not need the journal.
#[test]
fn a_journal_that_its_moved_file_does_not_need_can_be_forgotten() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: not root, so that the place of the file is unknown");
    }
    let Some((folder, journal)) = crashed() else { return };
    let (folder, journal) = (folder.path(), journal.to_str().unwrap());
    std::fs::create_dir(folder.join("moved")).unwrap();
    let (here, there) = (folder.join("o.db"), folder.join("moved/o.db"));
    std::fs::rename(&here, &there).unwrap();
    let refused = famio(folder, &["forget", "--yes", journal]);
    let text = said(&refused);
    let advice = format!("move it back to {}", here.display());
    assert!(refused.status.code() == Some(3) && text.contains(&advice), "{text}");
    let kept = famio(folder, &["recover", "--use=file", "moved/o.db"]);
    assert!(kept.status.success(), "{}", said(&kept));
    let forgotten = famio(folder, &["forget", "--yes", journal]);
    assert!(forgotten.status.success(), "{}", said(&forgotten));
    assert!(!Path::new(journal).exists() && there.exists());
}

#[test]
fn a_file_that_is_moved_back_is_recovered() {
    let Some((folder, _)) = crashed() else { return };
    let folder = folder.path();
    std::fs::create_dir(folder.join("moved")).unwrap();
    std::fs::rename(folder.join("o.db"), folder.join("moved/o.db")).unwrap();
    std::fs::rename(folder.join("moved/o.db"), folder.join("o.db")).unwrap();
    assert!(famio(folder, &["recover", "o.db"]).status.success());
    assert_eq!(std::fs::read(folder.join("o.db")).unwrap(), b"old".repeat(5000));
}

/// The advice used to be to use the journal, which was impossible, and the message that its creation had been cut
/// short.
#[test]
fn a_journal_of_another_version_has_one_advice() {
    let Some((folder, journal)) = crashed() else { return };
    let folder = folder.path();
    let mut bytes = std::fs::read(&journal).unwrap();
    // The version follows the magic in both copies of the header.
    for at in [8, 2048 + 8] {
        bytes[at] = 9;
    }
    std::fs::write(&journal, &bytes).unwrap();
    for (args, status) in [(["recover", "o.db"], 3), (["check", "o.db"], 1)] {
        let output = famio(folder, &args);
        let text = said(&output);
        assert!(output.status.code() == Some(status) && text.contains("format version 9"), "{args:?}: {text}");
        assert!(text.contains("--use=file keeps the file as it is"), "{args:?}: {text}");
        assert!(!text.contains("--use=journal") && !text.contains("cut short"), "{args:?}: {text}");
    }
    let entry: serde_json::Value =
        serde_json::from_slice(&famio(folder, &["status", "--json", "o.db"]).stdout).unwrap();
    assert!(entry[0]["kind"].is_null() && entry[0]["why"].as_str().unwrap().contains("version 9"), "{entry}");
    // The backup replaces the file; the journal is removed, which is reported.
    std::fs::write(folder.join("o.bak"), "new").unwrap();
    let restored = famio(folder, &["restore", "o.bak", "o.db"]);
    let text = said(&restored);
    assert!(restored.status.success() && text.contains(&*journal.to_string_lossy()), "{text}");
    assert!(text.contains("could not be read") && !journal.exists(), "{text}");
}

/// Both failed because the folder was not there, whatever pool was named.
#[test]
fn a_file_whose_pool_is_gone_can_be_kept_or_replaced() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("other")).unwrap();
    std::fs::write(folder.join("o.bak"), "new").unwrap();
    for args in [
        &["recover", "--use=file", "o.db"][..],
        &["recover", "--use=file", "--pool", "other", "o.db"],
        &["restore", "o.bak", "o.db"],
        &["restore", "--pool", "other", "o.bak", "o.db"],
    ] {
        std::fs::create_dir(folder.join("pool")).unwrap();
        let pool = folder.join("pool").display().to_string();
        let Some(running) = start(folder, &["--journal", "always", "--pool", &pool, "--atomic", "o.db"], WRITER) else {
            return;
        };
        drop(running);
        std::fs::remove_dir_all(folder.join("pool")).unwrap();
        let refused = famio(folder, &["recover", "o.db"]);
        let text = said(&refused);
        assert!(refused.status.code() == Some(3) && text.contains("--use=file") && text.contains(&pool), "{text}");
        let done = famio(folder, args);
        assert!(done.status.success(), "{args:?}: {}", said(&done));
        let kept = std::fs::read(folder.join("o.db")).unwrap();
        assert_eq!(kept == b"new", args[0] == "restore", "{args:?}");
        let found = famio(folder, &["status", "."]);
        assert!(found.status.success() && said(&found).contains("no journals"), "{args:?}: {}", said(&found));
        std::fs::remove_file(folder.join("o.db")).unwrap();
    }
}

/// A backup said that the file was written all the time, and a recovery not what to do.
#[test]
fn a_damaged_journal_is_named_with_what_to_do() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let Some((folder, journal)) = crashed_in(parent) else { return };
        let folder = folder.path();
        let mut bytes = std::fs::read(&journal).unwrap();
        bytes[4096..].fill(0xff); // all behind the header
        std::fs::write(&journal, &bytes).unwrap();
        for (args, status) in [(&["backup", "o.db", "o.bak"][..], 3), (&["recover", "o.db"], 1), (&["recover", "."], 1)]
        {
            let output = famio(folder, args);
            let text = said(&output);
            assert!(output.status.code() == Some(status), "{parent}: {args:?}: {text}");
            let has = |part: &str| text.contains(part);
            assert!(has(journal.to_str().unwrap()) && has("famio recover --use=file /"), "{parent}: {args:?}: {text}");
            assert!(!has("tries") && !folder.join("o.bak").exists() && journal.exists(), "{parent}: {args:?}: {text}");
        }
        assert!(famio(folder, &["recover", "--use=file", "o.db"]).status.success());
        assert!(famio(folder, &["status", "."]).status.success());
    }
}

/// A recovery that makes kept writes durable has the file open like a program, and the others said that it was in use.
#[test]
fn recoveries_wait_for_one_that_keeps_writes() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        for _ in 0..10 {
            let folder = tempfile::tempdir_in(parent).unwrap();
            let folder = folder.path();
            let options = ["--journal", "always", "--on-kill", "keep", "--atomic", "o.db"];
            let Some(running) = start(folder, &options, WRITER) else { return };
            drop(running);
            let recover = |number: usize| {
                let mut command = common::famio();
                command.current_dir(folder).args(["recover", [".", "o.db"][number % 2]]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            };
            let running: Vec<_> = (0..6).map(recover).collect();
            let ended: Vec<_> = running.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
            let all: String = ended.iter().map(said).collect();
            assert!(ended.iter().all(|output| output.status.success()), "{parent}: {all}");
            let mut kept = b"old".repeat(5000);
            kept[100..104].copy_from_slice(b"open");
            assert!(std::fs::read(folder.join("o.db")).unwrap() == kept && !folder.join(".famio").exists(), "{all}");
        }
    }
}
