//! How often a session flushes the disk's cache, counted in system calls.

mod common;
#[path = "common/small.rs"]
mod small;

use common::Scratch;
use famio::AtomicFile;
use small::Small;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FILE: &str = "FAMIO_TEST_FLUSHES";
/// Sessions with a SYNC, and as many without.
const SESSIONS: usize = 10;

#[test]
fn child() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    for session in 0..2 * SESSIONS {
        let file = AtomicFile::open(&path).unwrap();
        file.write_at(format!("session {session:2}").as_bytes(), 100).unwrap();
        if session < SESSIONS {
            file.sync().unwrap();
        }
        file.close().unwrap();
    }
}

/// Flushes of a session that overwrites an existing file. `None`: there is no strace.
fn flushes(folder: &Path) -> Option<usize> {
    let (path, trace) = (folder.join("file"), folder.join("trace"));
    std::fs::write(&path, [b'.'; 10_000]).unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-e", "trace=fsync,fdatasync,syncfs,sync", "-o"]).arg(&trace);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "child"]);
    let Ok(status) = command.env(FILE, &path).stdout(Stdio::null()).status() else {
        println!("SKIPPED: no strace");
        return None;
    };
    assert!(status.success(), "{status}");
    let trace = std::fs::read_to_string(trace).unwrap();
    let calls = trace.lines().filter(|line| line.contains("sync") && !line.contains(" resumed>")).count();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((&bytes[100..110], bytes.len()), (&b"session 19"[..], 10_000));
    assert!(!folder.join(".famio").exists());
    assert_eq!(calls % (2 * SESSIONS), 0, "{trace}");
    Some(calls / (2 * SESSIONS))
}

/// Five before: for the mark, for the header, for the commit, for the file, for the mark.
#[test]
fn a_short_session_flushes_twice_where_the_order_is_kept() {
    let Some(small) = Small::in_memory("flushes", 64) else { return };
    assert!(flushes(&small.path()).is_none_or(|flushes| flushes == 2));
}

/// Nine before.
#[test]
fn a_short_session_flushes_seven_times_elsewhere() {
    let folder = Scratch::on_disk("flushes");
    let flushes = flushes(folder.path());
    assert!(flushes.is_none_or(|flushes| flushes == 7 || flushes == 2), "{flushes:?}");
}
