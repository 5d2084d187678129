//! Stores in shared maps that a SYNC used to forget: after a kill the file has them.

mod common;

use common::{Folder, build, under};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const PAGE: usize = 4096;

/// What the file has after the program was killed.
fn after(what: &str, limit: Option<&str>) -> Vec<Vec<u8>> {
    let program = build("maps_kept");
    let folders = [Folder::new(&format!("kept-{what}")), Folder::on_disk(&format!("kept-{what}"))];
    let found = folders.iter().map(|folder| {
        std::fs::write(folder.path().join("atomic"), [b'-'; 4 * PAGE]).unwrap();
        let mut command = under(folder, &program);
        command.args(["atomic", what]).envs(limit.map(|limit| ("FAMIO_MAP_MEMORY", limit)));
        let done = command.output().unwrap();
        assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{what}: {}", String::from_utf8_lossy(&done.stderr));
        let read = under(folder, "cat").arg("atomic").output().unwrap(); // recovers it
        assert!(read.status.success(), "{what}: {}", String::from_utf8_lossy(&read.stderr));
        read.stdout
    });
    let found = found.collect();
    let _ = std::fs::remove_file(program);
    found
}

/// The SYNC after one that had failed returned 0 without them.
#[test]
fn what_a_failed_sync_has_found_is_found_again() {
    let (folder, program) = (Folder::new("kept-again"), build("maps_kept"));
    let script = r#"
mount -t tmpfs -o size=2m kept . && cd "$PWD" || { echo no mount; exit 0; }
head -c 16384 /dev/zero | tr '\0' - >atomic
export LD_PRELOAD="$LIBRARY" FAMIO_ATOMIC='atomic*' FAMIO_REQUIRE=1
"$PROGRAM" atomic again >&2; echo "$?"
cat atomic"#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).current_dir(folder.path());
    let done = command.env("LIBRARY", common::library()).env("PROGRAM", &program).output().unwrap();
    let _ = std::fs::remove_file(program);
    if done.stdout.starts_with(b"no mount") || !done.status.success() && done.stdout.is_empty() {
        return eprintln!("SKIPPED: no mounts: {}", String::from_utf8_lossy(&done.stderr));
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let bytes = done.stdout.strip_prefix(b"137\n").unwrap_or_else(|| panic!("{said}"));
    assert_eq!((bytes[0], bytes[PAGE]), (b'A', b'X'), "{said}");
}

/// They were of memory that the process had given up: each SYNC returned 0 without what was stored there.
#[test]
fn after_an_exec_that_failed_maps_are_of_the_file() {
    for limit in [None, Some("4K")] {
        for bytes in after("exec", limit) {
            let (stored, written) = (&bytes[PAGE..PAGE + 4], &bytes[2 * PAGE..2 * PAGE + 4]);
            assert_eq!((bytes[0], stored, written), (b'A', &b"XXX-"[..], &b"WWW-"[..]), "{limit:?}");
        }
    }
}

/// The parent looked only for its own, once it had made its map anew.
#[test]
fn what_a_child_has_stored_is_committed_by_its_parent() {
    for bytes in after("child", None) {
        assert_eq!((bytes[0], &bytes[PAGE..PAGE + 3]), (b'A', &b"cc-"[..]));
    }
}

/// Its stores went past the journal, or nobody looked for them.
#[test]
fn a_child_does_not_make_its_parents_map_one_for_stores() {
    after("protect", None).iter().for_each(|bytes| assert_eq!(bytes[0], b'B'));
}

/// Committed bytes went back to old ones in the map, and from there into the file.
#[test]
fn pages_are_not_given_up_by_another_call() {
    for limit in [None, Some("4K")] {
        for bytes in after("advice", limit) {
            assert_eq!(&bytes[PAGE..PAGE + 3], b"XY-", "{limit:?}");
        }
    }
}

#[test]
fn the_program_is_right() {
    let (folder, program) = (Folder::new("kept-plain"), build("maps_kept"));
    for what in ["exec", "child"] {
        std::fs::write(folder.path().join("plain"), [b'-'; 4 * PAGE]).unwrap();
        let mut command = Command::new(&program);
        let done = command.args(["plain", what]).current_dir(folder.path()).env_remove("LD_PRELOAD").output().unwrap();
        assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{what}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let _ = std::fs::remove_file(program);
}
