//! What `famio backup --force` and `famio restore` replace, and what they do not touch.

mod common;

use common::running::{self, Running, famio, said};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Commits `old`, writes more, reports that, and waits for the end of its input.
const WRITER: &str = "
import os, sys
a = os.open('a.db', os.O_RDWR | os.O_CREAT)
os.write(a, b'old' * 5000)
os.fsync(a)
os.pwrite(a, b'open', 100)
print('ready', flush=True)
sys.stdin.read()";

/// Has the file open, and has only read so far.
const READER: &str = "
import os, sys
a = os.open('a.db', os.O_RDWR)
os.read(a, 10)
print('ready', flush=True)
sys.stdin.read()";

fn refuses(folder: &Path, args: &[&str], status: i32, text: &str) {
    let output = famio(folder, args);
    assert!(output.status.code() == Some(status) && said(&output).contains(text), "{args:?}: {}", said(&output));
}

fn start(folder: &Path, program: &str) -> Option<Running> {
    running::start(folder, &["--journal", "always", "--atomic", "a.db"], program)
}

/// A folder with a file that a killed process has left with its journal.
fn crashed(parent: &str) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir_in(parent).unwrap();
    drop(start(folder.path(), WRITER)?);
    assert_eq!(famio(folder.path(), &["status", "a.db"]).status.code(), Some(5));
    Some(folder)
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The journal used to be dropped before the copy was examined, which left the file in the middle of an epoch.
#[test]
fn a_restore_that_fails_leaves_the_journal() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let Some(folder) = crashed(parent) else { return };
        let folder = folder.path();
        refuses(folder, &["restore", "none.bak", "a.db"], 1, "none.bak: no such file");
        std::fs::create_dir(folder.join("dir.bak")).unwrap();
        refuses(folder, &["restore", "dir.bak", "a.db"], 1, "not a regular file");
        assert_eq!(famio(folder, &["status", "a.db"]).status.code(), Some(5));
        assert!(famio(folder, &["recover", "a.db"]).status.success());
        assert_eq!(std::fs::read(folder.join("a.db")).unwrap(), b"old".repeat(5000));
    }
}

/// A name that the shell had completed once cost a file what only its journal had.
#[test]
fn what_lies_among_journals_is_not_replaced() {
    let Some(folder) = crashed(env!("CARGO_TARGET_TMPDIR")) else { return };
    let folder = folder.path();
    std::fs::write(folder.join("some.bak"), "other").unwrap();
    let journals: Vec<_> = names(&folder.join(".famio")).iter().map(|name| format!(".famio/{name}")).collect();
    assert!(journals.iter().any(|name| name.ends_with(".journal")), "{journals:?}");
    symlink(&journals[0], folder.join("link")).unwrap();
    for name in journals.iter().map(String::as_str).chain(["link", ".famio/new"]) {
        refuses(folder, &["restore", "some.bak", name], 1, "journals of atomic files");
        refuses(folder, &["backup", "--force", "some.bak", name], 1, "journals of atomic files");
    }
    assert!(famio(folder, &["recover", "a.db"]).status.success());
    assert_eq!(std::fs::read(folder.join("a.db")).unwrap(), b"old".repeat(5000));
}

#[test]
fn a_restore_to_a_full_disk_leaves_the_journal_and_names_the_file() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: not root, so that there is no small file system");
    }
    let Some(library) = common::built("libfamio_preload.so") else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
mount -t tmpfs -o size=4m none "$PWD" && cd "$PWD" || { echo no mount; exit 0; }
python3 - <<END
import os, signal, subprocess
end, other = os.pipe()
p = subprocess.Popen([os.environ['FAMIO'], 'run', '--no-config', '--journal', 'always', '--atomic', 'a.db', '--', 'python3', '-c',
    os.environ['WRITER']], stdin=end, stdout=subprocess.PIPE)
p.stdout.readline()
p.kill()
p.wait()
END
"$FAMIO" restore "$BIG" a.db
echo "restore $?"
"$FAMIO" status a.db
echo "status $?"
ls -A"#;
    let big = folder.path().join("big.bak");
    std::fs::write(&big, vec![1; 16 << 20]).unwrap();
    std::fs::create_dir(folder.path().join("disk")).unwrap();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .current_dir(folder.path().join("disk"))
        .envs([("FAMIO_PRELOAD", library.as_os_str()), ("FAMIO", env!("CARGO_BIN_EXE_famio").as_ref())])
        .envs([("WRITER", WRITER.as_ref()), ("BIG", big.as_os_str())])
        .output()
        .unwrap();
    let said = said(&output);
    if said.contains("no mount") {
        return eprintln!("SKIPPED: no mounts");
    }
    assert!(said.contains("restore 1\n") && said.contains("status 5\n"), "{said}");
    assert!(said.contains("a.db: no space left") && !said.contains("famio-backup"), "{said}");
}

/// The program went on with a file that had no name any more.
#[test]
fn a_file_is_not_copied_over_itself_nor_over_one_in_use() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = folder.path();
    let Some(running) = start(folder, WRITER) else { return };
    std::fs::hard_link(folder.join("a.db"), folder.join("hard.db")).unwrap();
    symlink("a.db", folder.join("soft.db")).unwrap();
    for dest in ["a.db", ".", "./a.db", "hard.db", "soft.db"] {
        refuses(folder, &["backup", "--force", "a.db", dest], 1, "are the same file");
        refuses(folder, &["restore", "a.db", dest], 1, "are the same file");
    }
    std::fs::write(folder.join("other"), "x").unwrap();
    refuses(folder, &["backup", "--force", "other", "a.db"], 4, "atomic file");
    drop(running);
    refuses(folder, &["backup", "--force", "other", "a.db"], 4, "atomic file");
    assert!(famio(folder, &["recover", "a.db"]).status.success());
    assert!(famio(folder, &["backup", "--force", "other", "a.db"]).status.success());
}

#[test]
fn a_process_that_has_only_read_so_far_is_named() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("a.db"), "old").unwrap();
        std::fs::write(folder.join("a.bak"), "new").unwrap();
        let Some(running) = start(folder, READER) else { return };
        let process = format!("process {} (python3)", running.0.id());
        refuses(folder, &["restore", "a.bak", "a.db"], 4, &process);
        refuses(folder, &["backup", "--force", "a.bak", "a.db"], 4, "");
        assert_eq!(std::fs::read(folder.join("a.db")).unwrap(), b"old");
        drop(running);
        assert!(famio(folder, &["restore", "a.bak", "a.db"]).status.success());
        assert_eq!(std::fs::read(folder.join("a.db")).unwrap(), b"new");
    }
}

/// They used to become regular files.
#[test]
fn what_is_no_regular_file_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.db"), "x").unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("fifo")).status().unwrap().success());
    for args in [["backup", "--force"].as_slice(), &["restore"]] {
        let args = [args, &["a.db", "fifo"]].concat();
        refuses(folder, &args, 1, "fifo: not a regular file");
    }
    assert!(std::fs::metadata(folder.join("fifo")).unwrap().file_type().is_fifo());
    symlink("nowhere", folder.join("dangling")).unwrap();
    refuses(folder, &["restore", "a.db", "dangling"], 1, "symbolic link");
    // Metrics go to the reader of the FIFO.
    let reader = Command::new("cat").arg(folder.join("fifo")).stdout(Stdio::piped()).spawn().unwrap();
    let path = folder.join("fifo");
    assert!(famio(folder, &["metrics", "--file", path.to_str().unwrap()]).status.success());
    assert!(String::from_utf8(reader.wait_with_output().unwrap().stdout).unwrap().ends_with("# EOF\n"));
    assert!(std::fs::metadata(&path).unwrap().file_type().is_fifo());
}

#[test]
fn a_link_stays_and_the_file_keeps_its_owner_and_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("data")).unwrap();
    std::fs::write(path("data/l.db"), "old").unwrap();
    std::fs::set_permissions(path("data/l.db"), PermissionsExt::from_mode(0o640)).unwrap();
    let owner = if rustix::process::geteuid().is_root() { 12345 } else { rustix::process::geteuid().as_raw() };
    std::os::unix::fs::chown(path("data/l.db"), Some(owner), None).unwrap();
    symlink("data/l.db", path("l.db")).unwrap();
    std::fs::write(path("l.bak"), "new").unwrap();
    std::fs::set_permissions(path("l.bak"), PermissionsExt::from_mode(0o600)).unwrap();
    let output = famio(folder.path(), &["restore", "l.bak", "l.db"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(std::fs::symlink_metadata(path("l.db")).unwrap().is_symlink());
    assert_eq!(std::fs::read(path("data/l.db")).unwrap(), b"new");
    let now = std::fs::metadata(path("data/l.db")).unwrap();
    assert_eq!((now.mode() & 0o777, now.uid()), (0o640, owner));
    assert_eq!(names(&path("data")), ["l.db"]);
}

/// In another folder, its journal was not found any more.
#[test]
fn a_file_that_has_another_name_is_recovered() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        for other in ["b.db", "other/b.db"] {
            let Some(folder) = crashed(parent) else { return };
            let folder = folder.path();
            std::fs::create_dir(folder.join("other")).unwrap();
            std::fs::hard_link(folder.join("a.db"), folder.join(other)).unwrap();
            std::fs::write(folder.join("a.bak"), "new").unwrap();
            let restored = famio(folder, &["restore", "a.bak", "a.db"]);
            assert!(restored.status.success(), "{}", said(&restored));
            let found = famio(folder, &["status", "."]);
            assert!(found.status.success() && said(&found).contains("no journals"), "{}", said(&found));
            assert_eq!(std::fs::read(folder.join(other)).unwrap(), b"old".repeat(5000));
            assert_eq!(std::fs::read(folder.join("a.db")).unwrap(), b"new");
        }
    }
}

/// An interrupted backup used to leave a file as long as the original.
#[test]
fn a_backup_that_is_killed_leaves_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path();
    let mut big = std::fs::File::create(folder.join("big")).unwrap();
    let piece = vec![7; 1 << 20];
    (0..64).for_each(|_| big.write_all(&piece).unwrap());
    for signal in ["-INT", "-TERM", "-HUP", "-KILL"] {
        let mut backup = common::famio().current_dir(folder).args(["backup", "big", "copy"]).spawn().unwrap();
        // As soon as it has created its file in the folder.
        let begun = |id: u32| {
            let all = std::fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
            all.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|path| {
                let path = path.to_string_lossy().into_owned();
                path.starts_with(&*folder.to_string_lossy()) && (path.contains("deleted") || path.contains("backup"))
            })
        };
        while !begun(backup.id()) && backup.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let _ = Command::new("kill").args([signal, &backup.id().to_string()]).status();
        backup.wait().unwrap();
        let _ = std::fs::remove_file(folder.join("copy"));
        assert_eq!(names(folder), ["big"], "{signal}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.db"), "x").unwrap();
    refuses(folder.path(), &["backup", "a.db", "nosuchdir/"], 1, "nosuchdir/: there is no such folder");
    refuses(folder.path(), &["backup", "a.db", "nosuchdir/b"], 1, "nosuchdir/b: its folder is not there");
    refuses(folder.path(), &["backup", "a.db", "a.db/b"], 1, "a.db/b: not a folder");
    refuses(folder.path(), &["forget", "nosuchfile"], 1, "nosuchfile: no such file");
    assert_eq!(names(folder.path()), ["a.db"]);
}

/// A crash between the rename and the removal of the journal leaves the new file and an orphaned journal.
#[test]
fn a_crash_after_the_rename_leaves_the_new_file() {
    let Some(folder) = crashed("/dev/shm") else { return };
    let folder = folder.path();
    let mut left = std::fs::read_dir(folder.join(".famio")).unwrap().map(|entry| entry.unwrap().path());
    let journal = left.find(|path| path.extension().is_some_and(|end| end == "journal")).unwrap();
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(folder.join("a.bak"), "new").unwrap();
    assert!(famio(folder, &["restore", "a.bak", "a.db"]).status.success());
    assert!(!folder.join(".famio").exists());
    std::fs::create_dir(folder.join(".famio")).unwrap();
    std::fs::write(&journal, bytes).unwrap();
    let recovered = famio(folder, &["recover", "a.db"]);
    assert!(recovered.status.success(), "{}", said(&recovered));
    assert_eq!(std::fs::read(folder.join("a.db")).unwrap(), b"new");
    refuses(folder, &["status", "."], 3, "orphaned");
    assert!(famio(folder, &["forget", "--yes", journal.to_str().unwrap()]).status.success());
    assert!(famio(folder, &["status", "."]).status.success());
}

/// The hidden name of the copy was longer than a file name may be.
#[test]
fn a_file_with_the_longest_name_is_replaced() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("new"), "new").unwrap();
    for length in [224, 225, 255] {
        let name = "n".repeat(length);
        for args in [&["restore", "new", &name][..], &["backup", "--force", "new", &name]] {
            std::fs::write(folder.join(&name), "old").unwrap();
            let output = famio(folder, args);
            assert!(output.status.success(), "{}", said(&output));
            assert_eq!(std::fs::read(folder.join(&name)).unwrap(), b"new");
        }
        std::fs::remove_file(folder.join(&name)).unwrap();
    }
    assert_eq!(names(folder), ["new"]);
}
