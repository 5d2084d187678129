//! `famio recover`, `status` and `check` of folders: they name what they cannot examine, depth and path length do not
//! matter, and no marked file is skipped.

#[path = "common/crashed.rs"]
mod crashed;

use crashed::Crashed;
use rustix::fs::{CWD, Mode, OFlags, XattrFlags, fsetxattr, mkdirat, openat};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn crash_child() {
    crashed::child();
}

fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.env_remove("FAMIO_POOL").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

fn famio(args: &[&str], path: &Path) -> (i32, String, String) {
    run(Command::new(env!("CARGO_BIN_EXE_famio")).args(args).arg(path).current_dir("/"))
}

fn am_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: needs root, for other users");
    }
    root
}

/// Marks a file with a journal that does not exist.
fn mark(file: &OwnedFd) {
    fsetxattr(file, "user.famio", b"any mark, be it a damaged one", XattrFlags::empty()).unwrap();
}

fn make(path: &Path) -> OwnedFd {
    File::create(path).unwrap().into()
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The journal of a crash is removed: only the mark shows that the file is not as its last SYNC left it.
#[test]
fn a_marked_file_whose_journal_is_gone() {
    let crashed = Crashed::new();
    std::fs::remove_dir_all(crashed.folder().join(".famio")).unwrap();
    // Beside a folder that has a `.famio/` and is walked first.
    let other = crashed.folder().join("other");
    std::fs::create_dir_all(other.join(".famio")).unwrap();
    let (file, journal) = (crashed.file().display().to_string(), crashed.folder().join(".famio").display().to_string());
    for (args, expected) in [(&["recover"][..], 3), (&["recover", "--dry-run"], 3), (&["status"], 3), (&["check"], 1)] {
        for path in [crashed.folder(), crashed.file()] {
            let (status, out, err) = famio(args, &path);
            assert_eq!(status, expected, "{args:?}: {out}{err}");
            assert!(err.contains(&file) && err.contains(&journal), "{args:?}: {err}");
            assert!(!out.contains("nothing") && !out.contains("no journals"), "{args:?}: {out}");
        }
    }
    let (status, out, _) = famio(&["status", "--json"], &crashed.folder());
    assert!(status == 3 && out.contains("\"state\": \"missing\""), "{out}");
    let (status, out, err) = famio(&["recover", "--use=file"], &crashed.folder());
    assert!(status == 0 && out.contains(&file), "{out}{err}");
    let (status, out, _) = famio(&["recover"], &crashed.folder());
    assert!(status == 0 && out.contains("nothing to recover"), "{out}");
    assert_eq!(famio(&["status"], &crashed.folder()).0, 0);
}

/// The mark leads to a journal in a pool elsewhere; both give one report, whichever is found first.
#[test]
fn a_marked_file_whose_journal_is_in_a_pool() {
    for pool in ["a-pool", "z-pool"] {
        let crashed = Crashed::in_pool(pool);
        let (status, out, err) = famio(&["status"], &crashed.folder());
        assert!(status == 5 && out.matches("app.db").count() == 1 && out.contains("needs recovery"), "{out}{err}");
        let (status, out, err) = famio(&["recover", "--dry-run"], &crashed.folder());
        assert!(status == 0 && out.matches("would be recovered").count() == 1, "{pool}: {out}{err}");
        let (status, out, err) = famio(&["recover"], &crashed.folder().join("data"));
        assert!(status == 0 && out.contains("recovered to epoch"), "{out}{err}");
        crashed.is_committed();
    }
}

/// 20 names of 250 bytes: a path of 5,000. The file at its end has a mark.
fn long(folder: &Path) -> PathBuf {
    let mut path = folder.to_path_buf();
    let mut here = openat(CWD, folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..20 {
        let name = "x".repeat(250);
        mkdirat(&here, &*name, Mode::RWXU).unwrap();
        here = openat(&here, &*name, OFlags::DIRECTORY, Mode::empty()).unwrap();
        path.push(name);
    }
    mark(&openat(&here, "marked", OFlags::RDWR | OFlags::CREATE, Mode::RUSR).unwrap());
    path.join("marked")
}

#[test]
fn no_path_is_too_long() {
    let crashed = Crashed::new();
    let path = long(&crashed.folder());
    for (args, expected) in [(&["status"][..], 3), (&["check"], 1), (&["recover"], 3)] {
        let (status, out, err) = famio(args, &crashed.folder());
        assert_eq!(status, expected, "{args:?}: {out}{err}");
        assert!(err.contains(path.to_str().unwrap()), "{args:?}: {err}");
        assert!(out.contains("app.db"), "{args:?}: {out}");
    }
    crashed.is_committed();
    let (status, _, err) = famio(&["recover", "--use=file"], &crashed.folder());
    assert_eq!(status, 0, "{err}");
    assert_eq!(famio(&["recover"], &crashed.folder()).0, 0);
}

#[test]
fn no_folder_is_too_deep() {
    let crashed = Crashed::new();
    let mut here = openat(CWD, crashed.folder(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for level in 0..10_000 {
        mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = openat(&here, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        // On the way back, too.
        if level == 5_000 {
            mkdirat(&here, "a", Mode::RWXU).unwrap();
            let aside = openat(&here, "a", OFlags::DIRECTORY, Mode::empty()).unwrap();
            mark(&openat(&aside, "aside", OFlags::RDWR | OFlags::CREATE, Mode::RUSR).unwrap());
            mkdirat(&here, "z", Mode::RWXU).unwrap();
            let aside = openat(&here, "z", OFlags::DIRECTORY, Mode::empty()).unwrap();
            mark(&openat(&aside, "beside", OFlags::RDWR | OFlags::CREATE, Mode::RUSR).unwrap());
        }
    }
    mark(&openat(&here, "bottom", OFlags::RDWR | OFlags::CREATE, Mode::RUSR).unwrap());
    let program = env!("CARGO_BIN_EXE_famio");
    let script = format!("ulimit -n 64; exec {program} recover {}", crashed.folder().display());
    let (status, out, err) = run(Command::new("sh").args(["-c", &script]));
    let names = ["/d/a/aside: conflict", "/d/z/beside: conflict", "/d/d/bottom: conflict"];
    assert!(names.iter().all(|name| err.contains(name)), "{} bytes: {}", err.len(), &err[..err.len().min(2000)]);
    assert!(status == 3 && out.contains("recovered to epoch"), "{status}: {out}");
    crashed.is_committed();
    // The test's own library would need a descriptor per level to remove this.
    assert!(Command::new("rm").arg("-rf").arg(crashed.folder().join("d")).status().unwrap().success());
}

/// What a user may not read must be named, not counted as nothing.
#[test]
fn what_cannot_be_read_is_named() {
    if !am_root() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    mode(folder.path(), 0o755);
    let program = folder.path().join("famio");
    std::fs::copy(env!("CARGO_BIN_EXE_famio"), &program).unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(data.join("closed")).unwrap();
    mode(&data.join("closed"), 0o700);
    let as_user = |args: &[&str], path: &Path| {
        run(Command::new(&program).args(args).arg(path).current_dir("/").uid(1234).gid(1234))
    };
    for (args, expected) in [(&["recover"][..], 1), (&["status"], 1), (&["check"], 3)] {
        for path in [data.clone(), data.join("closed")] {
            let (status, out, err) = as_user(args, &path);
            assert_eq!(status, expected, "{args:?}: {out}{err}");
            assert!(err.contains("data/closed") && err.contains("ermission denied"), "{args:?}: {err}");
            assert!(!out.contains("nothing") && !out.contains("no journals"), "{args:?}: {out}");
        }
    }
    mode(&data.join("closed"), 0o755);
    mark(&make(&data.join("secret")));
    mode(&data.join("secret"), 0o600);
    mark(&make(&data.join("told")));
    for (args, expected) in [(&["recover"][..], 1), (&["status"], 1)] {
        let (status, out, err) = as_user(args, &data);
        assert_eq!(status, expected, "{args:?}: {out}{err}");
        assert!(err.contains("data/secret: could not be examined"), "{args:?}: {err}");
        assert!(err.contains("data/told"), "{args:?}: {err}");
    }
}

/// FIFOs under every name that has a meaning: no command waits for a writer.
#[test]
fn nothing_waits_for_a_fifo() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let fifo = |path: PathBuf| rustix::fs::mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
    let journal = format!("{}.journal", "0a".repeat(16));
    std::fs::create_dir_all(folder.path().join("pool/.famio")).unwrap();
    std::fs::create_dir(folder.path().join("here")).unwrap();
    fifo(folder.path().join("file.db"));
    fifo(folder.path().join("here/.famio"));
    fifo(folder.path().join("here/famio.toml"));
    fifo(folder.path().join("pool/.famio").join(&journal));
    mark(&make(&folder.path().join("here/app.db")));
    let program = env!("CARGO_BIN_EXE_famio");
    for args in ["recover", "status", "check", "doctor"] {
        for path in [".", "app.db", "../file.db", "../pool"] {
            let mut command = Command::new("timeout");
            command.args(["20", program, args, path]).current_dir(folder.path().join("here"));
            let (status, out, err) = run(&mut command);
            assert_ne!(status, 124, "{args} {path} hangs");
            assert!(err.contains("famio.toml is not obeyed: it is not a regular file"), "{args} {path}: {out}{err}");
        }
        if args != "doctor" {
            let (status, out, err) = famio(&[args], folder.path());
            assert!(status != 0 && err.contains("not a regular file"), "{args}: {out}{err}");
        }
    }
}

#[test]
fn settings_of_somebody_else_are_not_obeyed() {
    if !am_root() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let here = folder.path().join("here");
    std::fs::create_dir(&here).unwrap();
    let toml = folder.path().join("famio.toml");
    std::fs::write(&toml, "durability = 'process'\npool = '/nowhere'\n").unwrap();
    let doctor = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
        let (_, out, err) = run(command.arg("doctor").current_dir(&here).env_remove("FAMIO_DURABILITY"));
        out + &err
    };
    assert!(doctor().contains("/nowhere"), "our own");
    std::os::unix::fs::chown(&toml, Some(1234), Some(1234)).unwrap();
    let said = doctor();
    assert!(said.contains("famio.toml is not obeyed: it belongs to user 1234"), "{said}");
    assert!(!said.contains("/nowhere"), "{said}");
}
