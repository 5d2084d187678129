//! Copies of files as of their last SYNC.

mod common;

use common::running::{self, Running, said};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Each epoch writes one letter to all blocks; a part of the next epoch is always there, unsynced.
const WRITER: &str = "
import os, sys
a = os.open('a.db', os.O_RDWR | os.O_CREAT)
letter = epochs = 0
while True:
    letter, epochs = letter % 250 + 1, epochs + 1
    for block in range(64):
        os.pwrite(a, bytes([letter]) * 4096, block * 4096)
    os.fsync(a)
    os.pwrite(a, b'open', 100)
    if epochs == 5:
        os.write(1, b'ready\\n')";

fn famio(folder: &Path) -> Command {
    let mut command = common::famio();
    command.current_dir(folder);
    command
}

fn start(folder: &Path) -> Option<Running> {
    running::start(folder, &["--journal", "always", "--atomic", "a.db"], WRITER)
}

fn is_of_one_sync(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len(), 64 * 4096);
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "{}", path.display());
}

#[test]
fn a_copy_is_of_one_sync_while_a_program_writes_and_after_a_kill() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let path = |name: &str| folder.path().join(name);
        let Some(mut child) = start(folder.path()) else { return };
        for round in 0..8 {
            let name = format!("copy-{round}");
            let output = famio(folder.path()).args(["backup", "--json", "a.db", &name]).output().unwrap();
            assert!(output.status.success(), "{parent}: {}", said(&output));
            let entry: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(entry["epoch"].as_u64() >= Some(5) && entry["bytes"] == 64 * 4096, "{entry}");
            is_of_one_sync(&path(&name));
        }
        let refused = famio(folder.path()).args(["restore", "copy-0", "a.db"]).output().unwrap();
        assert!(refused.status.code() == Some(4) && said(&refused).contains("stop"), "{}", said(&refused));
        child.kill();
        // A file that a crash left is copied as a recovery would leave it, and stays unchanged.
        let journal = || std::fs::read_dir(path(".famio")).unwrap().count();
        let before = journal();
        let output = famio(folder.path()).args(["backup", "a.db", "crashed"]).output().unwrap();
        assert!(output.status.success(), "{parent}: {}", said(&output));
        is_of_one_sync(&path("crashed"));
        assert_eq!(journal(), before);
        // Restoring removes the journal of the old file.
        let output = famio(folder.path()).args(["restore", "copy-3", "a.db"]).output().unwrap();
        assert!(output.status.success(), "{parent}: {}", said(&output));
        assert_eq!(std::fs::read(path("a.db")).unwrap(), std::fs::read(path("copy-3")).unwrap());
        let output = famio(folder.path()).args(["status", "."]).output().unwrap();
        assert!(output.status.success() && said(&output).contains("no journals"), "{}", said(&output));
        assert!(
            std::fs::read_dir(folder.path())
                .unwrap()
                .all(|entry| { !entry.unwrap().file_name().to_string_lossy().ends_with(".famio-backup") })
        );
    }
}

/// The command used to wait silently, for as long as the kernel lets a process keep its lease: 45 seconds.
#[test]
fn who_is_awaited_is_told() {
    const GROWER: &str = "
import os, time
a = os.open('a.db', os.O_RDWR | os.O_CREAT)
os.write(a, b'synced')
os.fsync(a)
os.write(a, b'open')
os.write(1, b'ready\\n')
time.sleep(600)";
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(child) = running::start(folder.path(), &["--journal", "auto", "--atomic", "a.db"], GROWER) else { return };
    let send = |signal: &str| Command::new("kill").args([signal, &child.0.id().to_string()]).status().unwrap();
    assert!(send("-STOP").success());
    let mut backup = famio(folder.path()).args(["backup", "a.db", "copy"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(backup.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(send("-CONT").success());
    assert!(line.contains(&format!("a.db: waiting for process {} (python3)", child.0.id())), "{line}");
    assert!(backup.wait().unwrap().success());
    assert_eq!(std::fs::read(folder.path().join("copy")).unwrap(), b"synced");
}

#[test]
fn a_name_that_is_taken_is_kept_and_an_ordinary_file_is_copied() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a"), "a").unwrap();
    std::fs::set_permissions(path("a"), PermissionsExt::from_mode(0o640)).unwrap();
    std::fs::write(path("b"), "b").unwrap();
    let backup = |args: &[&str]| famio(folder.path()).arg("backup").args(args).output().unwrap();
    let refused = backup(&["a", "b"]);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("--force"), "{}", said(&refused));
    assert_eq!(std::fs::read(path("b")).unwrap(), b"b");
    assert!(backup(&["--force", "a", "b"]).status.success());
    assert_eq!(std::fs::read(path("b")).unwrap(), b"a");
    assert_eq!(std::fs::metadata(path("b")).unwrap().permissions().mode() & 0o777, 0o640);
    std::fs::create_dir(path("folder")).unwrap();
    assert!(backup(&["a", "folder"]).status.success() && path("folder/a").exists());
    for (from, to) in [("none", "c"), ("folder", "c"), ("a", "no/such/c")] {
        let output = backup(&[from, to]);
        assert!(output.status.code() == Some(1) && !path("c").exists(), "{from}: {}", said(&output));
    }
}

#[test]
fn a_failure_is_json_too() {
    let folder = tempfile::tempdir().unwrap();
    for (args, file, copy) in [
        (["backup", "--json", "none", "c"], "none", "c"),
        (["restore", "--json", "none", "a"], "a", "none"),
        (["backup", "--json", "none", "no/"], "none", "no/"),
    ] {
        let output = famio(folder.path()).args(args).output().unwrap();
        assert!(output.status.code() == Some(1) && !output.stderr.is_empty(), "{}", said(&output));
        let entry: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(entry["file"] == file && entry["copy"] == copy && entry["bytes"] == 0, "{entry}");
        assert!(entry["error"].as_str().is_some_and(|error| error.contains("no")), "{entry}");
    }
    std::fs::write(folder.path().join("a"), "a").unwrap();
    let output = famio(folder.path()).args(["backup", "--json", "a", "b"]).output().unwrap();
    let entry: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && entry["error"].is_null() && entry["bytes"] == 1, "{entry}");
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let folder = tempfile::tempdir().unwrap();
    let of = |args: &[&str]| said(&famio(folder.path()).args(args).output().unwrap());
    assert!(!of(&["status", "none"]).contains('\u{1b}'));
    assert!(of(&["status", "none", "--color", "always"]).contains("\u{1b}[1;31mfamio: \u{1b}[0m"));
    assert!(!of(&["--color=never", "--help"]).contains('\u{1b}'));
    assert!(of(&["--color=always", "--help"]).contains('\u{1b}'));
}

/// In a mode, the bits of the group are those of the list's mask. Without the list they were the group's.
#[test]
fn nobody_may_do_more_with_a_copy_that_has_no_access_control_list() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a.db"), "private").unwrap();
    // Version 2: the owner and user 12345 may read and write, the group nothing; mask; others nothing.
    let entries = [(1, 6, u32::MAX), (2, 6, 12345), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(bits)].concat());
        list.extend(u32::to_le_bytes(id));
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(path("a.db"), "system.posix_acl_access", &list, flags).is_err() {
        return eprintln!("SKIPPED: no access control lists here");
    }
    let mode = |name: &str| std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("a.db"), 0o660);
    assert!(famio(folder.path()).args(["backup", "a.db", "copy"]).status().unwrap().success());
    assert!(famio(folder.path()).args(["restore", "copy", "a.db"]).status().unwrap().success());
    assert_eq!((mode("copy"), mode("a.db")), (0o600, 0o600));
}
