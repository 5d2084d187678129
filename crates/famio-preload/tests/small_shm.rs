//! Machines with little room in `/dev/shm`, as containers have by default.

mod common;

use common::{Folder, build, library, succeed};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

const PIECE: usize = 1 << 16;

/// What `epoch` writes.
fn written(megabytes: usize, letter: u8) -> Vec<u8> {
    let mut all = vec![letter; megabytes << 20];
    for (i, piece) in all.chunks_mut(PIECE).enumerate() {
        piece[i % 1000..][..8].copy_from_slice(&(i as u64).to_ne_bytes());
    }
    all
}

/// A command in a mount namespace where `/dev/shm` is as `mount` makes it, under the interposer. `None`, said loudly, where this
/// process may not mount.
fn with_shm(mount: &str, folder: &Folder, program: &Path) -> Option<Command> {
    let allowed = Command::new("unshare").args(["--mount", "sh", "-c", mount]).output().unwrap();
    if !allowed.status.success() {
        eprintln!("NOT TESTED: mounts of its own take root: {}", String::from_utf8_lossy(&allowed.stderr));
        return None;
    }
    let mut command = Command::new("unshare");
    let script = format!("{mount} && exec env LD_PRELOAD={} FAMIO_ATOMIC='atomic*' \"$@\"", library().display());
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(program).current_dir(folder.path());
    Some(command)
}

const SMALL: &str = "mount -t tmpfs -o size=64m small /dev/shm";

/// Was `ENOSPC` at 62 MiB, though the disk had room.
#[test]
fn an_epoch_larger_than_shm_goes_on_on_the_disk() {
    let folder = Folder::on_disk("small-shm");
    let program = build("epoch");
    let run = |args: &[&str]| Some(with_shm(SMALL, &folder, &program)?.args(args).output().unwrap());
    let Some(done) = run(&["atomic", "512", "A", "sync"]) else { return };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(folder.read("atomic") == written(512, b'A'));
    assert_eq!(folder.names(), ["atomic"]);
    // Killed in a second large epoch it is as it was.
    let done = run(&["atomic", "96", "B", "kill"]).unwrap();
    assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(folder.names(), [".famio", "atomic"]);
    let (out, _) = succeed(with_shm(SMALL, &folder, Path::new("sha1sum")).unwrap().arg("atomic"));
    std::fs::write(folder.path().join("plain"), written(512, b'A')).unwrap();
    let (plain, _) = succeed(Command::new("sha1sum").arg("plain").current_dir(folder.path()));
    assert_eq!(out.split(' ').next(), plain.split(' ').next());
    // And goes on.
    let done = run(&["atomic", "10", "C", "sync"]).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let found = folder.read("atomic");
    assert!(found[..10 << 20] == written(10, b'C') && found[10 << 20..] == written(512, b'A')[10 << 20..]);
    let _ = std::fs::remove_file(program);
}
