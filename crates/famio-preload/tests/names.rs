//! An open atomic file that gets another name or another file's name, or loses its last one: its contents are right,
//! and nothing of Famio's is left.

#[path = "../../famio/tests/common/arenas.rs"]
mod arenas;
mod common;

use common::{Folder, build, succeed, under};
use famio::Settings;
use famio::recovery::{Options, Outcome, Silent, recover_path};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program, removed when dropped.
struct Program(PathBuf);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A folder with the file and another folder; on tmpfs, or where the tests are built.
fn place(what: &str, on_disk: bool) -> Folder {
    let name = format!("names-{what}");
    let folder = if on_disk { Folder::on_disk(&name) } else { Folder::new(&name) };
    for name in ["atomic", "plain", "atomic-other", "plain-other"] {
        fs::write(folder.path().join(name), "old").unwrap();
    }
    fs::create_dir(folder.path().join("folder")).unwrap();
    folder
}

/// Every file below, with its contents. The other file, if the program did not touch it, must be unchanged.
fn contents(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(contents(&entry.path()).into_iter().map(|(below, text)| (format!("{name}/{below}"), text)));
            assert_ne!(name, ".famio");
        } else {
            all.insert(name, fs::read_to_string(entry.path()).unwrap());
        }
    }
    all
}

/// The arena of a file that is attached, or was when its process died.
fn arena(path: &Path) -> PathBuf {
    arenas::arena(path)
}

fn marked(path: &Path) -> bool {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: two C strings; no buffer is asked for.
    unsafe { libc::getxattr(path.as_ptr(), c"user.famio".as_ptr(), std::ptr::null_mut(), 0) >= 0 }
}

/// No journal, no mark, and nothing for recovery to do.
fn nothing_left(folder: &Folder, arenas: &[PathBuf], what: &str) {
    for name in contents(folder.path()).keys() {
        assert!(!name.contains("famio"), "{what}: {name}");
        let path = folder.path().join(name);
        assert!(!marked(&path), "{what}: {name} is marked");
        assert!(!arena(&path).exists(), "{what}: {name} has an arena");
    }
    for arena in arenas {
        assert!(!arena.exists(), "{what}: {} is left", arena.display());
    }
    let reports = recover_path(folder.path(), &Settings::default(), &Options::default(), &Silent).unwrap();
    assert!(reports.iter().all(|r| matches!(r.outcome, Outcome::NothingToDo)), "{what}: {reports:?}");
}

/// The final state: names, with `_` for the file's own name, and contents.
type End = &'static [(&'static str, &'static str)];

fn check_end(folder: &Folder, name: &str, end: End, what: &str) {
    let mut found = contents(folder.path());
    let others: &str = if name == "plain" { "atomic" } else { "plain" };
    found.retain(|found, _| !found.trim_start_matches("folder/").starts_with(others));
    let end: BTreeMap<String, String> =
        end.iter().map(|(at, text)| (at.replace('_', name), text.to_string())).collect();
    assert_eq!(found, end, "{what}");
}

fn arenas(folder: &Folder) -> Vec<PathBuf> {
    ["atomic", "atomic-other"].map(|name| arena(&folder.path().join(name))).into()
}

#[test]
fn names_change_under_an_open_file() {
    let cases: [(&str, End); 11] = [
        ("dirty", &[("_-other", "old"), ("folder/_", "first, then")]),
        ("clean", &[("_-other", "old"), ("folder/_", "first, then")]),
        ("same", &[("_-other", "first, then")]),
        ("over", &[("_-other", "from here")]),
        ("exchange", &[("_", "that there"), ("_-other", "from here")]),
        ("unlink", &[("_", "other"), ("_-other", "old")]),
        ("unlink-clean", &[("_", "other"), ("_-other", "old")]),
        ("unlink-first", &[("_-other", "old")]),
        ("link", &[("_", "first, then"), ("_-other", "first, then")]),
        ("link-unlink", &[("_-other", "FIRST, then")]),
        ("failed", &[("_", "first, then"), ("_-other", "old")]),
    ];
    let program = Program(build("names"));
    for (on_disk, number) in [(false, None), (true, None), (false, Some("number")), (true, Some("number"))] {
        for (what, end) in cases {
            let folder = place(what, on_disk);
            let arenas = arenas(&folder);
            if what.starts_with("link") {
                for name in ["atomic-other", "plain-other"] {
                    fs::remove_file(folder.path().join(name)).unwrap();
                }
            }
            succeed(Command::new(&program.0).args(["plain", what]).current_dir(folder.path()).env_remove("LD_PRELOAD"));
            check_end(&folder, "plain", end, what);
            succeed(under(&folder, &program.0).args(["atomic", what]).args(number));
            check_end(&folder, "atomic", end, what);
            nothing_left(&folder, &arenas, what);
        }
    }
}

/// Its writes failed with `ESTALE`, or were cut off by what was put back; and the folder could not be removed, since
/// the removal of the file made one for its journal.
#[test]
fn a_file_that_grows_goes_on_without_its_name() {
    let program = Program(build("nameless"));
    for on_disk in [false, true] {
        let folder = if on_disk { Folder::on_disk("names-nameless") } else { Folder::new("names-nameless") };
        for how in ["unlink", "replace", "link", "folder"] {
            succeed(under(&folder, &program.0).args([how, how]));
            succeed(under(&folder, &program.0).env_remove("LD_PRELOAD").args([&format!("{how}-plain"), how]));
        }
    }
}

/// The time stayed as it was until the session ended.
#[test]
fn others_see_when_a_file_was_changed() {
    let program = Program(build("modified"));
    for on_disk in [false, true] {
        let folder = if on_disk { Folder::on_disk("names-modified") } else { Folder::new("names-modified") };
        succeed(under(&folder, &program.0).arg("atomic"));
        succeed(under(&folder, &program.0).env_remove("LD_PRELOAD").arg("plain"));
    }
}

/// For some milliseconds the size was 0: the kernel's file is cut to its committed size before a session has the rest,
/// and a `stat` by name waits for no lease.
#[test]
fn a_file_that_grew_keeps_its_size_for_others_while_it_gets_a_session() {
    let program = Program(build("grown"));
    for on_disk in [false, true] {
        let folder = if on_disk { Folder::on_disk("names-grown") } else { Folder::new("names-grown") };
        succeed(under(&folder, &program.0).arg("atomic"));
    }
}

/// The journal moves with the file, or is where the next process that opens it finds it.
#[test]
fn killed_after_a_new_name() {
    let program = Program(build("names"));
    for (on_disk, number) in [(false, None), (true, None), (false, Some("number")), (true, Some("number"))] {
        for (what, text) in [("killed", "first"), ("killed-later", "first, then")] {
            for by_recover in [false, true] {
                let folder = place(what, on_disk);
                let arenas = arenas(&folder);
                let done = under(&folder, &program.0).args(["atomic", what]).args(number).output().unwrap();
                assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{what}: {done:?}");
                if by_recover {
                    let reports = recover_path(folder.path(), &Settings::default(), &Options::default(), &Silent);
                    let sound = |o: &Outcome| matches!(o, Outcome::NothingToDo | Outcome::Clean | Outcome::Recovered);
                    assert!(reports.as_ref().is_ok_and(|all| all.iter().all(|r| sound(&r.outcome))), "{reports:?}");
                    assert_eq!(folder.read("folder/atomic"), text.as_bytes(), "{what}");
                }
                let (out, _) = succeed(under(&folder, "cat").arg("folder/atomic"));
                assert_eq!(out, text, "{what}");
                assert!(!folder.path().join("atomic").exists(), "{what}");
                nothing_left(&folder, &arenas, what);
            }
        }
    }
}

/// A program without Famio (this test) renames the open file: the close must find its journal all the same.
#[test]
fn an_outsider_renames_an_open_file() {
    let program = Program(build("names"));
    for on_disk in [false, true] {
        for what in ["outsider", "outsider-clean"] {
            let folder = place(what, on_disk);
            let arenas = arenas(&folder);
            let mut command = under(&folder, &program.0);
            command.args(["atomic", what]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut byte = [0];
            child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            fs::rename(folder.path().join("atomic"), folder.path().join("folder/atomic")).unwrap();
            child.stdin.as_mut().unwrap().write_all(&byte).unwrap();
            let done = child.wait_with_output().unwrap();
            assert!(done.status.success(), "{what}: {done:?}");
            check_end(&folder, "atomic", &[("_-other", "old"), ("folder/_", "first, then")], what);
            nothing_left(&folder, &arenas, what);
        }
    }
}

/// A control file left by a process that was killed just before removing it: beside a removed file, no process would
/// look for it.
#[test]
fn a_control_file_goes_with_its_file() {
    let program = Program(build("names"));
    for on_disk in [false, true] {
        let folder = place("control", on_disk);
        under(&folder, &program.0).args(["atomic", "killed"]).output().unwrap();
        let pools = [folder.path().join(".famio"), folder.path().join("folder/.famio")];
        let pool = pools.iter().find(|pool| pool.exists()).unwrap();
        let entries = fs::read_dir(pool).unwrap().map(|entry| entry.unwrap().path());
        let control = entries.into_iter().find(|path| path.extension().is_some_and(|what| what == "control")).unwrap();
        succeed(under(&folder, "cat").arg("folder/atomic"));
        assert!(pools.iter().all(|pool| !pool.exists()));
        let beside = pools[1].join(control.file_name().unwrap());
        fs::create_dir(&pools[1]).unwrap();
        fs::write(&beside, [0; 4096]).unwrap();
        fs::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        succeed(under(&folder, "rm").arg("folder/atomic"));
        assert!(!pools[1].exists());
    }
}

/// A call that failed, or changed nothing, left the file to the kernel without a word, so that a kill left half an
/// epoch; or it committed that half. One that fails unforeseen is a SYNC, and no more.
#[test]
fn a_call_that_fails_takes_no_protection_away() {
    const HALF: usize = 4096;
    let whole = [b'A'; 2 * HALF];
    let committed = [[b'B'; HALF], [b'A'; HALF]].concat();
    let nothing = ["none", "same", "same-exchange", "noreplace", "missing", "folder", "flags", "link", "elsewhere"];
    let program = Program(build("names_refused"));
    for (domain, on_disk) in [("", false), ("emulated", false), ("", true)] {
        let run = |what: &str| {
            let folder = if on_disk {
                Folder::on_disk("names-refused")
            } else {
                Folder::new(&format!("names-refused-{domain}"))
            };
            let mut command = under(&folder, &program.0);
            command
                .args(["atomic", what])
                .env("ELSEWHERE", if on_disk { "/dev/shm" } else { env!("CARGO_TARGET_TMPDIR") });
            command.env("FAMIO_REQUIRE", "1");
            if !domain.is_empty() {
                command.env("FAMIO_DOMAIN", domain);
            }
            let done = command.output().unwrap();
            let reports = recover_path(folder.path(), &Settings::default(), &Options::default(), &Silent).unwrap();
            let is_sound = |o: &Outcome| matches!(o, Outcome::NothingToDo | Outcome::Clean | Outcome::Recovered);
            assert!(reports.iter().all(|r| is_sound(&r.outcome)), "{what}: {reports:?} {done:?}");
            (folder, done)
        };
        let check = |what: &str, name: &str, expected: &[u8]| {
            let (folder, done) = run(what);
            if done.status.code() == Some(77) {
                return println!("SKIPPED: {what}, not root");
            }
            assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{what}: {done:?}");
            let text = |bytes: &[u8]| bytes.chunks(HALF).map(|half| half[0] as char).collect::<String>();
            let found = folder.read(name);
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(found == expected, "{what} {domain:?} {on_disk}: {} {said}", text(&found));
        };
        for what in nothing {
            check(what, "atomic", &whole);
        }
        for what in ["folder-rights", "sticky"] {
            check(what, "rights/atomic", &whole);
        }
        for what in ["unforeseen-unlink", "unforeseen-rename"] {
            check(what, "atomic", &committed);
        }
        check("moved-against-foresight", "empty/atomic", &committed);
        let (folder, done) = run("gone-against-foresight");
        assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{done:?}");
        assert_eq!(folder.names(), ["empty", "ordinary"]);
    }
}

/// The process that removes the name leaves the file to the kernel only where no other process has more of it.
#[test]
fn processes_share_a_file_whose_name_is_gone() {
    let program = Program(build("names_shared"));
    for (domain, on_disk) in [("", false), ("emulated", false), ("", true)] {
        let folder = if on_disk { Folder::on_disk("names-shared") } else { Folder::new("names-shared") };
        for how in ["reads", "writes", "came"] {
            let mut command = under(&folder, &program.0);
            if !domain.is_empty() {
                command.env("FAMIO_DOMAIN", domain);
            }
            succeed(command.args(["atomic", how]));
            succeed(under(&folder, &program.0).env_remove("LD_PRELOAD").args(["plain", how]));
            assert!(folder.names().is_empty(), "{how}: {:?}", folder.names());
        }
    }
}

/// What is remembered of an absent name holds until something is made in its folder.
#[test]
fn a_name_that_was_often_absent_is_seen_once_it_is_there() {
    for folder in [Folder::new("absent"), Folder::on_disk("absent")] {
        let program = Program(build("absent"));
        succeed(&mut under(&folder, &program.0));
    }
}
