//! How much stack calls on atomic files take: a signal handler's stack, or a thread's, may be small.

mod common;

use common::{Folder, build, succeed, under};
use std::os::unix::process::ExitStatusExt;

/// The most that each call may take, in bytes, on a disk; and as docs/posix.md says for all.
const LIMITS: [(&str, usize); 14] = [
    ("open", 6144),
    ("first-write", 6144),
    ("first-sync", 4096),
    ("overwrite", 9216),
    ("session", 9216),
    ("sync", 4608),
    ("write-block", 8192),
    ("write", 4096),
    ("read", 3072),
    ("stat", 3072),
    ("cut", 3072),
    ("open-again", 4096),
    ("close", 6144),
    ("open-empty", 9216),
];

fn places(what: &str) -> [(Folder, Option<(&'static str, &'static str)>); 2] {
    let name = format!("stack-{what}");
    [(Folder::new(&name), Some(("FAMIO_DOMAIN", "emulated"))), (Folder::on_disk(&name), None)]
}

/// Up to 21 KiB: buffers for paths and headers, and blocks, lay in frames that called deeper.
#[test]
fn calls_take_little_stack() {
    let program = build("stack");
    for (folder, domain) in places("calls") {
        // The dynamic linker's share of a first call is not the library's.
        let mut command = under(&folder, &program);
        command.arg("atomic").env("LD_BIND_NOW", "1").envs(domain);
        let (out, _) = succeed(&mut command);
        eprintln!("{domain:?}\n{out}");
        for line in out.lines() {
            let (name, taken) = line.split_once(' ').unwrap();
            let taken: usize = taken.parse().unwrap();
            let most = LIMITS.iter().find(|(of, _)| *of == name).unwrap().1;
            assert!(taken <= most, "{name} takes {taken} bytes of stack, not at most {most} ({domain:?})");
        }
    }
    let _ = std::fs::remove_file(program);
}

/// The most that the first `open` after a crash takes.
const RECOVERY: usize = 24 << 10;

#[test]
fn a_recovery_takes_more() {
    let program = build("stack");
    for (folder, domain) in places("recovery") {
        let killed = under(&folder, &program).args(["atomic", "kill"]).envs(domain).output().unwrap();
        assert_eq!(killed.status.signal(), Some(libc::SIGKILL), "{killed:?}");
        let (out, _) = succeed(under(&folder, &program).arg("atomic").env("LD_BIND_NOW", "1").envs(domain));
        let taken = out.lines().find_map(|line| line.strip_prefix("open ")).unwrap().parse::<usize>().unwrap();
        eprintln!("{domain:?}: {taken}");
        assert!(taken <= RECOVERY, "{taken} bytes ({domain:?})");
    }
    let _ = std::fs::remove_file(program);
}

/// It ended by SIGSEGV.
#[test]
fn threads_and_handlers_may_have_small_stacks() {
    let program = build("stack");
    for (folder, domain) in places("small") {
        for how in ["thread", "12288"] {
            let mut command = under(&folder, &program);
            succeed(command.args(["atomic", how]).env("LD_BIND_NOW", "1").envs(domain));
        }
    }
    let _ = std::fs::remove_file(program);
}
