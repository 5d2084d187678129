//! `famio recover` and `famio status` on files of a killed process.

mod common;

use famio::file::{Access, AtomicFile, UserBuf};
use famio::{JournalChoice, Settings};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const FILE: &str = "FAMIO_TEST_FILE";
const BLOCK: usize = 4096;

/// Not a test of its own, but the process that is killed: one commit, then more writes.
#[test]
fn child() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let path = PathBuf::from(path);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let settings = Settings { journal: JournalChoice::Always, ..Settings::default() };
    let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &settings).unwrap();
    write(&atomic, 0, b'b');
    write(&atomic, BLOCK as u64, b'b');
    atomic.sync().unwrap();
    write(&atomic, 0, b'c');
    write(&atomic, 2 * BLOCK as u64, b'c');
    // To stderr, since the test runner prints its own lines on stdout.
    std::io::stderr().write_all(b"ready\n").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

fn write(atomic: &AtomicFile, offset: u64, byte: u8) {
    let mut data = [byte; BLOCK];
    let buffer = [UserBuf { base: data.as_mut_ptr(), len: BLOCK }];
    // SAFETY: the buffer is alive and valid for its length.
    unsafe { atomic.write(offset, &buffer) }.unwrap();
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// A file of two blocks of `a` on tmpfs.
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir_in("/dev/shm").unwrap() };
        std::fs::write(place.file(), [b'a'; 2 * BLOCK]).unwrap();
        place
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("app.db")
    }

    /// A process that has the file open, with one commit and an open epoch.
    fn writer(&self) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(FILE, self.file());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        child
    }

    /// The place after a crash.
    fn crashed() -> Self {
        let place = Self::new();
        let mut child = place.writer();
        child.kill().unwrap();
        child.wait().unwrap();
        place
    }

    fn famio(&self, args: &[&str], path: &Path) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
        command.args(args).arg(path).current_dir(self.folder.path()).env_remove("FAMIO_POOL");
        let Output { status, stdout, stderr } = command.output().unwrap();
        (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
    }

    #[track_caller]
    fn expect(&self, args: &[&str], status: i32, word: &str) {
        let (code, text) = self.famio(args, &self.file());
        assert_eq!(code, status, "{args:?}: {text}");
        assert!(text.contains(word), "{args:?}: '{word}' is not in: {text}");
    }

    #[track_caller]
    fn is_committed(&self) {
        assert!(std::fs::read(self.file()).unwrap() == [b'b'; 2 * BLOCK]);
        let names: Vec<_> = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [self.file()]);
    }
}

#[test]
fn a_crash_is_seen_and_recovered() {
    let place = Place::crashed();
    place.expect(&["status"], 5, "dead");
    place.expect(&["status", "--json"], 5, "\"alive\": false");
    place.expect(&["recover", "--dry-run"], 0, "would be recovered to epoch");
    place.expect(&["status"], 5, "needs recovery");
    place.expect(&["recover"], 0, "recovered to epoch");
    place.is_committed();
    place.expect(&["recover"], 0, "nothing to recover");
    place.expect(&["status"], 0, "no journals");
}

/// It was reported as unreadable, which a monitor takes for damage.
#[test]
fn a_journal_whose_creation_was_cut_short_is_not_unreadable() {
    let place = Place::crashed();
    let journals = journals(&place);
    assert_eq!(journals.len(), 1);
    place.expect(&["recover"], 0, "recovered");
    std::fs::create_dir(journals[0].parent().unwrap()).unwrap();
    std::fs::set_permissions(journals[0].parent().unwrap(), std::fs::Permissions::from_mode(0o700)).unwrap();
    for length in [0, 4096, 1 << 20] {
        File::create(&journals[0]).unwrap().set_len(length).unwrap();
        std::fs::set_permissions(&journals[0], std::fs::Permissions::from_mode(0o600)).unwrap();
        place.expect(&["status"], 5, "needs recovery");
        place.expect(&["check"], 0, "its creation was cut short");
    }
    place.expect(&["recover"], 0, "leftovers removed");
    place.expect(&["status"], 0, "no journals");
}

/// In a folder it was shown as one whose creation was cut short.
#[test]
fn an_emptied_journal_of_a_marked_file_is_unreadable() {
    let place = Place::crashed();
    let journal = journals(&place).pop().unwrap();
    let size = std::fs::metadata(&journal).unwrap().len();
    let emptied = File::options().write(true).open(&journal).unwrap();
    emptied.set_len(0).unwrap();
    emptied.set_len(size).unwrap();
    for path in [place.file(), place.folder.path().to_path_buf()] {
        let (code, said) = place.famio(&["status"], &path);
        assert!(code == 1 && said.contains("unreadable") && !said.contains("needs recovery"), "{said}");
    }
}

/// Another way than the one that was advised cannot work: the copy has no journal.
#[test]
fn what_to_do_with_a_copy_is_said() {
    let place = Place::crashed();
    let copy = place.folder.path().join("copy.db");
    assert!(Command::new("cp").args(["-a"]).args([place.file(), copy.clone()]).status().unwrap().success());
    let said = |args: &[&str], status: i32| {
        let (code, said) = place.famio(args, &copy);
        assert_eq!(code, status, "{args:?}: {said}");
        said
    };
    let conflict = said(&["recover"], 3);
    assert!(conflict.contains("famio backup") && !conflict.contains("--use=journal"), "{conflict}");
    assert!(said(&["recover", "--use=file"], 0).contains("kept as it is"));
    place.expect(&["recover"], 0, "recovered to epoch");
}

#[test]
fn a_folder_is_searched() {
    let place = Place::crashed();
    let (code, text) = place.famio(&["recover"], place.folder.path());
    assert!(code == 0 && text.contains("recovered to epoch"), "{text}");
    place.is_committed();
}

/// The second one said 'try again': the first one had removed the `.famio/` that it had found.
#[test]
fn recoveries_of_one_folder_wait_for_each_other() {
    for round in 0..10 {
        let place = Place::crashed();
        let path = if round % 2 == 0 { place.file() } else { place.folder.path().to_path_buf() };
        let recover = || {
            let mut command = common::famio();
            command.arg("recover").arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let running: Vec<Child> = (0..6).map(|_| recover()).collect();
        let ended: Vec<Output> = running.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let all = ended.iter().map(common::running::said).collect::<String>();
        assert!(ended.iter().all(|output| output.status.success()), "{all}");
        assert_eq!(all.matches("recovered to epoch").count(), 1, "{all}");
        place.is_committed();
    }
}

/// There was nothing to recover, it said.
#[test]
fn a_journal_leads_to_its_file() {
    let place = Place::crashed();
    let (code, text) = place.famio(&["recover"], &journals(&place)[0]);
    assert!(code == 0 && text.contains("app.db: recovered to epoch"), "{text}");
    place.is_committed();
    // A user's file may have such a name.
    let own = place.folder.path().join(format!("{}.journal", "0a".repeat(16)));
    std::fs::write(&own, "own").unwrap();
    let (code, text) = place.famio(&["recover"], &own);
    assert!(code == 0 && text.contains(".journal: nothing to recover"), "{text}");
}

/// `famio recover a b c | true` ended after the first one.
#[test]
fn a_reader_that_has_ended_stops_no_recovery() {
    let places = [Place::crashed(), Place::crashed(), Place::crashed()];
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = common::famio();
    let status = command.arg("recover").args(places.each_ref().map(Place::file)).stdout(writer).status().unwrap();
    assert!(status.success(), "{status}");
    places.iter().for_each(Place::is_committed);
}

/// They failed, since they opened the control file for writing.
#[test]
fn a_read_only_file_system_can_be_looked_at() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: not root, so that there is no read-only mount");
    }
    let place = Place::crashed();
    let script = r#"
mount --bind "$PWD" "$PWD" && mount -o remount,bind,ro "$PWD" && cd "$PWD" || { echo no mount; exit 0; }
for path in . app.db; do
  "$FAMIO" check $path && "$FAMIO" recover --dry-run $path; "$FAMIO" status $path
done
"$FAMIO" recover . || "$FAMIO" recover app.db || echo not recovered"#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).env("FAMIO", env!("CARGO_BIN_EXE_famio"));
    let text = common::running::said(&command.current_dir(place.folder.path()).output().unwrap());
    if text.contains("no mount") {
        return eprintln!("SKIPPED: no mounts");
    }
    let count = |part: &str| text.matches(part).count();
    assert_eq!((count("sound, at epoch"), count("would be recovered"), count("needs recovery")), (2, 2, 2), "{text}");
    assert!(count("read-only file system") == 2 && text.contains("not recovered"), "{text}");
    place.expect(&["recover"], 0, "recovered to epoch");
    place.is_committed();
}

#[test]
fn a_change_by_somebody_else_needs_a_decision() {
    for (winner, size) in [("--use=journal", 2 * BLOCK), ("--use=file", 2 * BLOCK + 5)] {
        let place = Place::crashed();
        // Extended to the size that the crash left, and further.
        File::options().write(true).open(place.file()).unwrap().set_len(2 * BLOCK as u64 + 5).unwrap();
        place.expect(&["recover"], 3, "--use");
        place.expect(&["status"], 5, "needs recovery");
        place.expect(&["recover", winner], 0, "app.db");
        assert_eq!(std::fs::metadata(place.file()).unwrap().len(), size as u64, "{winner}");
        place.expect(&["status"], 0, "no journals");
    }
}

/// A folder with one conflict lost what the journals of all other files had.
#[test]
fn where_nothing_contradicts_there_is_nothing_to_decide() {
    for winner in ["--use=file", "--use=journal"] {
        let place = Place::crashed();
        place.expect(&["recover", winner], 0, "recovered to epoch");
        place.is_committed();
    }
}

#[test]
fn a_file_in_use_is_left_alone() {
    let place = Place::new();
    let mut child = place.writer();
    let pid = child.id().to_string();
    place.expect(&["recover"], 4, &pid);
    place.expect(&["status"], 0, &pid);
    child.kill().unwrap();
    child.wait().unwrap();
    place.expect(&["recover"], 0, "recovered to epoch");
    place.is_committed();
}

/// The epoch of a journal of records used to be shown as 0, and its state after a crash as 'active'.
#[test]
fn a_journal_of_records_tells_its_epoch() {
    let place = Place { folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() };
    std::fs::write(place.file(), [b'a'; 2 * BLOCK]).unwrap();
    let entry = |place: &Place, status: i32| -> serde_json::Value {
        let (code, text) = place.famio(&["status", "--json"], &place.file());
        assert_eq!(code, status, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[0].clone()
    };
    let mut child = place.writer();
    let used = entry(&place, 0);
    if used["kind"] != "records" {
        eprintln!("SKIPPED: {} has no journals of records", place.folder.path().display());
    } else {
        assert_eq!((&used["epoch"], &used["state"], &used["alive"]), (&1.into(), &"active".into(), &true.into()));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left = entry(&place, 5);
    assert_eq!((&left["state"], &left["journal_state"]), (&"needs recovery".into(), &"active".into()));
    if used["kind"] == "records" {
        assert_eq!(left["epoch"], 1);
    }
    place.expect(&["recover"], 0, "recovered to epoch");
}

/// A data file under a lease must not be opened: that would end the lease, or fail.
#[test]
fn a_look_ends_no_lease() {
    let place = Place::crashed();
    let held = File::options().read(true).write(true).open(place.file()).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&held);
    // SAFETY: an open descriptor; a lease break must not end this process.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        assert_eq!(libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK), 0);
    }
    for _ in 0..4 {
        place.expect(&["status"], 5, "needs recovery");
        let (code, text) = place.famio(&["status", "--json"], place.folder.path());
        assert_eq!(code, 5, "{text}");
    }
    // SAFETY: an open descriptor.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETLEASE) }, libc::F_WRLCK);
}

fn journals(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.folder.path().join(".famio"));
    let all = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|end| end == "journal")).collect()
}

/// It could only be removed by `rm`.
#[test]
fn an_orphaned_journal_is_shown_and_removed_when_that_is_asked_for() {
    let place = Place::crashed();
    std::fs::remove_file(place.file()).unwrap();
    let journal = journals(&place).remove(0);
    let (code, text) = place.famio(&["status"], place.folder.path());
    assert!(code == 3 && text.contains("orphaned") && text.contains("famio forget /"), "{code}: {text}");
    let (code, text) = place.famio(&["forget"], &journal);
    assert!(code == 3 && text.contains("app.db, which was ") && text.contains("--yes"), "{code}: {text}");
    assert!(journal.exists());
    let (code, text) = place.famio(&["forget", "--yes"], &journal);
    assert!(code == 0 && text.ends_with("removed\n"), "{code}: {text}");
    assert!(!place.folder.path().join(".famio").exists());
    let (code, text) = place.famio(&["forget"], &journal);
    assert!(code == 1 && text.matches(journal.to_str().unwrap()).count() == 1, "{code}: {text}");
}

#[test]
fn a_journal_that_a_file_may_need_is_not_forgotten() {
    let place = Place::new();
    let mut child = place.writer();
    let journal = journals(&place).remove(0);
    let refused = |status: i32, word: &str| {
        let (code, text) = place.famio(&["forget", "--yes"], &journal);
        assert!(code == status && text.contains(word), "{code}: {text}");
        assert!(journal.exists());
    };
    refused(4, "in use");
    child.kill().unwrap();
    child.wait().unwrap();
    refused(3, "famio recover");
    // Moved to another folder: only root can find out where.
    let moved = place.folder.path().join("elsewhere");
    std::fs::create_dir(&moved).unwrap();
    std::fs::rename(place.file(), moved.join("app.db")).unwrap();
    // SAFETY: a question.
    if unsafe { libc::geteuid() } == 0 {
        refused(3, "elsewhere/app.db");
    }
    std::fs::rename(moved.join("app.db"), place.file()).unwrap();
    place.expect(&["forget", "--yes"], 1, "not a journal");
    place.expect(&["recover"], 0, "recovered to epoch");
}

/// The message used to name a journal's path that had never existed.
#[test]
fn a_missing_journal_is_looked_for_and_not_named() {
    let place = Place::crashed();
    let moved = Place { folder: tempfile::tempdir_in("/dev/shm").unwrap() };
    std::fs::rename(place.file(), moved.file()).unwrap();
    for command in ["status", "check", "recover"] {
        let (code, text) = moved.famio(&[command], &moved.file());
        assert!(code != 0 && text.contains("looked for") && !text.contains("journal /"), "{command}: {text}");
    }
}

#[test]
fn a_path_is_named_once() {
    let place = Place::new();
    for command in ["status", "check", "recover", "forget", "doctor"] {
        let (code, text) = place.famio(&[command], Path::new("nosuch"));
        assert!(code != 0 && !text.contains("nosuch: nosuch"), "{command}: {text}");
    }
}

#[test]
fn processes_that_use_files_are_listed_and_not_disturbed() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let place = Place { folder: tempfile::tempdir_in(parent).unwrap() };
        std::fs::write(place.file(), [b'a'; 2 * BLOCK]).unwrap();
        let mut child = place.writer();
        let pid = child.id();
        let listed = || -> Option<serde_json::Value> {
            let output = Command::new(env!("CARGO_BIN_EXE_famio")).args(["ps", "--json"]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let all: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
            all.into_iter().find(|entry| entry["pid"] == pid)
        };
        let entry = listed().expect("it is listed");
        assert_eq!(entry["file"], place.file().canonicalize().unwrap().to_str().unwrap());
        assert_eq!((&entry["owner"], &entry["open_writes"]), (&true.into(), &2.into()), "{entry}");
        assert_eq!(entry["open_bytes"], 2 * BLOCK, "{entry}");
        assert_eq!(entry["epoch"], if entry["kind"] == "records" { 1 } else { 2 }, "{entry}");
        let (_, status) = place.famio(&["status", "--json"], &place.file());
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status[0]["epoch"], entry["epoch"]);
        assert_eq!(listed().as_ref(), Some(&entry), "a second look shows the same");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(listed(), None);
        place.expect(&["recover"], 0, "recovered to epoch");
    }
}

#[test]
fn a_file_that_grows_is_listed_and_grows_on() {
    const SCRIPT: &str = "
import os
f = os.open('app.db', os.O_RDWR | os.O_CREAT)
os.write(f, b'x' * 100)
os.fsync(f)
os.write(f, b'y' * 10)
print('ready', flush=True)
input()
os.fsync(f)
print('synced', flush=True)
input()";
    let Some(library) = common::built("libfamio_preload.so") else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_famio"));
    run.args(["run", "--no-config", "--atomic", "app.db", "--", "python3", "-c", SCRIPT]).current_dir(folder.path());
    let piped = run.env("FAMIO_PRELOAD", library).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let path = folder.path().canonicalize().unwrap().join("app.db");
    let listed = || -> Option<serde_json::Value> {
        let output = Command::new(env!("CARGO_BIN_EXE_famio")).args(["ps", "--json"]).output().unwrap();
        let all: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        all.into_iter().find(|entry| entry["file"] == path.to_str().unwrap())
    };
    for (line, open_bytes) in [("ready", 10), ("synced", 0)] {
        assert_eq!(lines.next().unwrap().unwrap(), line);
        let entry = listed().expect("it is listed");
        assert_eq!((&entry["kind"], &entry["open_bytes"]), (&"growing".into(), &open_bytes.into()), "{entry}");
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(listed(), None);
}

/// The message used to be 'not permitted', with the journal's name.
#[test]
fn a_file_that_is_immutable_stays_as_it_is() {
    let place = Place::crashed();
    let chattr = |how: &str| Command::new("chattr").arg(how).arg(place.file()).stderr(Stdio::null()).status();
    if !chattr("+i").is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: it takes root, chattr and a file system that has it");
        return;
    }
    let (code, text) = place.famio(&["recover"], &place.file());
    chattr("-i").unwrap();
    assert!(code == 1 && text.contains("chattr -i"), "{text}");
    place.expect(&["recover"], 0, "recovered to epoch");
    place.is_committed();
}

#[test]
fn a_path_that_is_not_there() {
    let place = Place::new();
    let none = place.folder.path().join("none");
    for command in ["recover", "status"] {
        let (code, text) = place.famio(&[command], &none);
        assert!(code == 1 && text.contains("none"), "{command}: {text}");
    }
}

#[test]
fn check_says_what_is_wrong_and_where() {
    let place = Place::crashed();
    let (status, text) = place.famio(&["check"], &place.file());
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("sound, at epoch 2"), "{text}");
    let journal = std::fs::read_dir(place.folder.path().join(".famio")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[4096 + 2 * 256] ^= 1; // slot 2: the last commit
    std::fs::write(&journal, &bytes).unwrap();
    let (status, text) = place.famio(&["check"], place.folder.path());
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("damaged") && text.contains("at byte 4608: slot 2"), "{text}");
    std::fs::remove_file(&journal).unwrap();
    let (status, text) = place.famio(&["check"], &place.file());
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("which is not there"), "{text}");
    assert_eq!(place.famio(&["check"], &place.folder.path().join("none")).0, 3);
}
