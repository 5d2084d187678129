//! Machines with little space in `/dev/shm`, as containers have by default.

mod common;

use common::agent::Agent;
use common::{Folder, build, library, succeed};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PIECE: usize = 1 << 16;

/// The data that `epoch` writes.
fn written(megabytes: usize, letter: u8) -> Vec<u8> {
    let mut all = vec![letter; megabytes << 20];
    for (i, piece) in all.chunks_mut(PIECE).enumerate() {
        piece[i % 1000..][..8].copy_from_slice(&(i as u64).to_ne_bytes());
    }
    all
}

/// A command under the interposer, in a mount namespace where `/dev/shm` is as `mount` makes it. `None`, with a loud
/// message, if this process may not mount.
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

/// It used to fail with `ENOSPC` at 62 MiB, though the disk had space.
#[test]
fn an_epoch_larger_than_shm_goes_on_on_the_disk() {
    let folder = Folder::on_disk("small-shm");
    let program = build("epoch");
    let run = |args: &[&str]| Some(with_shm(SMALL, &folder, &program)?.args(args).output().unwrap());
    let Some(done) = run(&["atomic", "512", "A", "sync"]) else { return };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(folder.read("atomic") == written(512, b'A'));
    assert_eq!(folder.names(), ["atomic"]);
    // Killed in a second large epoch, the file is unchanged.
    let done = run(&["atomic", "96", "B", "kill"]).unwrap();
    assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(folder.names(), [".famio", "atomic"]);
    let (out, _) = succeed(with_shm(SMALL, &folder, Path::new("sha1sum")).unwrap().arg("atomic"));
    std::fs::write(folder.path().join("plain"), written(512, b'A')).unwrap();
    let (plain, _) = succeed(Command::new("sha1sum").arg("plain").current_dir(folder.path()));
    assert_eq!(out.split(' ').next(), plain.split(' ').next());
    // And it can go on.
    let done = run(&["atomic", "10", "C", "sync"]).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let found = folder.read("atomic");
    assert!(found[..10 << 20] == written(10, b'C') && found[10 << 20..] == written(512, b'A')[10 << 20..]);
    let _ = std::fs::remove_file(program);
}

/// A process in another process's mount namespace.
fn beside(other: &Agent, folder: &Folder, agent: &Path) -> Agent {
    let mut command = Command::new("nsenter");
    let folder = format!("--wd={}", folder.path().display());
    command.args(["--mount", "--target", &other.child.id().to_string(), &folder]);
    command.args(["env", &format!("LD_PRELOAD={}", library().display()), "FAMIO_ATOMIC=atomic*"]).arg(agent);
    Agent::of(command)
}

/// A file in a new folder, opened by two processes with one small `/dev/shm`; and their program. `None`: impossible
/// here.
fn two_with_small_shm(name: &str) -> Option<(Folder, PathBuf, [Agent; 2])> {
    let folder = Folder::on_disk(name);
    std::fs::write(folder.path().join("atomic"), "........").unwrap();
    let agent = build("agent");
    let mut a = Agent::of(with_shm(SMALL, &folder, &agent)?);
    a.ok("open atomic");
    let mut b = beside(&a, &folder, &agent);
    b.ok("open atomic");
    Some((folder, agent, [a, b]))
}

/// The epoch cannot be handed over: other processes get an error until it is committed. A reader used to wait a
/// minute even after that, and then got an error.
#[test]
fn an_epoch_larger_than_shm_beside_other_processes_is_written_and_committed() {
    let Some((folder, agent, [mut a, mut b])) = two_with_small_shm("small-shm-two") else { return };
    a.each(&["write 0 begin", "sync", "fill 100 a"]);
    for (what, good) in [("write 0 other", "ok"), ("read 1000000 5", "aaaaa")] {
        let answer = b.tell(what);
        assert!(answer == good || answer == "Device or resource busy", "{what}: {answer}");
    }
    a.each(&["write 5 A", "sync"]);
    b.sees(1_000_000, "aaaaa");
    b.each(&["fill 70 b", "sync"]);
    a.sees(1_000_000, "bbbbb");
    a.sees(80 << 20, "aaaaa");
    a.each(&["write 0 end", "sync"]);
    b.end();
    a.end();
    let found = folder.read("atomic");
    assert!(found.starts_with(b"endbb") && found.len() == 100 << 20);
    assert!(found[3..70 << 20].iter().all(|&byte| byte == b'b') && found[70 << 20..].iter().all(|&byte| byte == b'a'));
    assert_eq!(folder.names(), ["atomic"]);
    let _ = std::fs::remove_file(agent);
}

/// Only the writer can find what lies on the disk, so a reader acquires ownership instead.
#[test]
fn an_epoch_that_goes_on_on_the_disk_is_read_by_others() {
    let Some((_folder, agent, [mut a, mut b])) = two_with_small_shm("small-shm-read") else { return };
    a.ok("write 0 begin");
    b.sees(0, "begin");
    for i in 0..20_000u64 {
        a.ok(&format!("write {} block{i}", i * 4096));
    }
    for i in (0..20_000u64).rev().step_by(997) {
        b.sees(i * 4096, &format!("block{i}"));
    }
    b.end();
    a.end();
    let _ = std::fs::remove_file(agent);
}

/// Runs a shell command where `agent` runs.
fn in_the_place_of(agent: &Agent, script: &str) {
    let id = agent.child.id().to_string();
    succeed(Command::new("nsenter").args(["--mount", "--target", &id, "sh", "-c", script]));
}

/// Until the session goes from one to the other as it is; its open epoch has changes of both then.
fn write_in_turn(a: &mut Agent, b: &mut Agent) {
    for i in 0..4 {
        a.each(&[&format!("write 50 a{i}"), "sync"]);
        b.each(&[&format!("write 60 b{i}"), "sync"]);
    }
    a.ok("write 0 AAAA");
    b.ok("write 100 BBBB");
}

const FULL: &str = "head -c 128M /dev/zero > /dev/shm/full || true";

/// The session has what two processes wrote, cannot become a hand-over image, and one of the two is killed: what that
/// one wrote used to be committed by the next SYNC of the other.
#[test]
fn what_could_not_be_handed_over_is_rolled_back_with_its_writer() {
    let Some((folder, agent, [mut a, mut b])) = two_with_small_shm("small-shm-killed") else { return };
    let mut reader = beside(&b, &folder, &agent);
    reader.ok("open atomic");
    write_in_turn(&mut a, &mut b);
    in_the_place_of(&b, FULL);
    a.kill();
    let answer = b.tell("sync");
    assert!(answer == "ok" || answer == "No space left on device", "{answer}");
    in_the_place_of(&b, "rm /dev/shm/full");
    b.each(&["write 200 bbbb", "sync"]);
    for (at, seen) in [(0, "...."), (100, "BBBB"), (200, "bbbb")] {
        reader.sees(at, seen);
    }
    b.end();
    reader.end();
    let found = folder.read("atomic");
    assert!(found.starts_with(b"........") && found[100..104] == *b"BBBB" && found[200..] == *b"bbbb", "{answer}");
    let _ = std::fs::remove_file(agent);
}

/// As above, and the process that could not hand over goes on: it used to give the file up with what it had, wrote that
/// over what another one committed meanwhile, and its own SYNC committed nothing.
#[test]
fn what_could_not_be_handed_over_stays_with_its_owner() {
    let Some((folder, agent, [mut a, mut b])) = two_with_small_shm("small-shm-owner") else { return };
    let mut other = beside(&b, &folder, &agent);
    other.ok("open atomic");
    write_in_turn(&mut a, &mut b);
    in_the_place_of(&b, FULL);
    a.kill();
    let (first, second) = (b.tell("sync"), b.tell("sync"));
    in_the_place_of(&b, "rm /dev/shm/full");
    other.each(&["write 100 CCCC", "sync"]);
    b.sees(100, "CCCC");
    b.each(&["write 0 bb", "sync"]);
    b.end();
    other.end();
    let found = folder.read("atomic");
    assert!(found.starts_with(b"bb......") && found[100..] == *b"CCCC", "{first}, {second}");
    let _ = std::fs::remove_file(agent);
}
