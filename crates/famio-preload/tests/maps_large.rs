//! Mapped files larger than the memory that their maps may take: they are protected, and take memory only for stores.

mod common;

use common::{Folder, build, succeed, under};
use famio_test_support::memory::twice_the_memory;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn folders(name: &str) -> [Folder; 2] {
    [Folder::new(name), Folder::on_disk(name)]
}

/// Its stdout; stderr must be empty, or say only that this is impossible here.
fn run(folder: &Folder, program: &Path, arguments: &[&str]) -> Option<String> {
    let (out, said) = succeed(under(folder, program).arg("atomic").args(arguments));
    if said.contains("demoted") {
        eprintln!("SKIPPED: this kernel cannot say which pages were stored to: {said}");
        return None;
    }
    let said: Vec<_> = said.lines().filter(|line| !line.contains("two maps of the same bytes")).collect();
    assert!(said.is_empty(), "{arguments:?}: {said:?}");
    Some(out)
}

/// A run on a plain file shows that the program is right; it reports what only Famio can do.
#[test]
fn private_pages_are_as_shared_ones() {
    let program = build("large");
    for folder in folders("large-traps") {
        if run(&folder, &program, &["traps", &twice_the_memory()]).is_some() {
            assert!(folder.names().iter().all(|name| !name.contains("famio")), "{:?}", folder.names());
        }
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn what_is_stored_and_never_synced_is_committed_at_the_end() {
    let program = build("large");
    for folder in folders("large-ends") {
        for (how, byte) in [("exit", "a"), ("_exit", "b"), ("exec", "c"), ("close", "d")] {
            run(&folder, &program, &["leave", &twice_the_memory(), how, byte]);
            let there = run(&folder, &program, &["byte", &twice_the_memory()]);
            assert!(there.is_none_or(|there| there.trim() == byte), "{how}");
            assert!(folder.names().iter().all(|name| !name.contains("famio")), "{how}: {:?}", folder.names());
        }
    }
    let _ = std::fs::remove_file(program);
}

/// About 64 MiB of copied pages, and as much again waiting to be written to the file.
#[test]
fn memory_is_bounded_by_what_was_stored_since_the_checkpoint() {
    let program = build("large");
    for folder in folders("large-memory") {
        // 1,000 stores are 4 MiB of pages; without a bound, these would be 240.
        run(&folder, &program, &["memory", &twice_the_memory(), "120", "60"]);
        let seen = run(&folder, &program, &["check", &twice_the_memory()]);
        assert!(seen.is_none_or(|seen| seen == "60\n"));
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn another_thread_that_stores_loses_nothing() {
    let program = build("large");
    for folder in folders("large-threads") {
        run(&folder, &program, &["threads", &twice_the_memory(), "25"]);
    }
    let _ = std::fs::remove_file(program);
}

/// Private pages belong to one process: they could not show what another process writes, nor does another process see
/// what is stored there.
#[test]
fn another_process_can_neither_read_write_nor_map_it_meanwhile() {
    let program = build("large");
    for folder in folders("large-others") {
        let mut child = under(&folder, &program)
            .args(["atomic", "stores", &twice_the_memory()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = child.stdout.take().unwrap(); // kept as long as the child
        said.read_exact(&mut [0; 2]).unwrap();
        let done = under(&folder, &program).args(["atomic", "other", &twice_the_memory()]).output().unwrap();
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        let _ = child.kill();
        child.wait().unwrap();
        let busy = libc::EBUSY;
        let errors = format!("{busy} {busy} {busy} Device or resource busy\n");
        assert_eq!(told, errors, "{}", String::from_utf8_lossy(&done.stderr));
        let (after, messages) = succeed(under(&folder, &program).args(["atomic", "other", &twice_the_memory()]));
        assert_eq!(after, "0 0 0 read\n", "{messages}");
    }
    let _ = std::fs::remove_file(program);
}

fn kills(kills: u64) {
    let program = build("large");
    for folder in folders("large-kills") {
        let mut last = 0;
        for kill in 0..kills {
            let mut child = under(&folder, &program)
                .args(["atomic", "stores", &twice_the_memory()])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut out = child.stdout.take().unwrap();
            let mut said = vec![0];
            out.read_exact(&mut said).unwrap();
            let reader = std::thread::spawn(move || {
                out.read_to_end(&mut said).unwrap();
                said
            });
            let until = Instant::now() + Duration::from_micros(kill * 104_729 % 900_000);
            while Instant::now() < until {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
            let said = String::from_utf8(reader.join().unwrap()).unwrap();
            let whole = said.rfind('\n').map_or("", |end| &said[..end]);
            last = whole.lines().last().map_or(last, |line| line.parse().unwrap());
            let Some(found) = run(&folder, &program, &["check", &twice_the_memory()]) else { return };
            let found: u64 = found.trim().parse().unwrap();
            assert!((last..=last + 1).contains(&found), "kill {kill}: {last} was durable, {found} is there");
            last = found;
        }
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn a_kill_leaves_the_last_msync() {
    kills(6);
}

#[test]
#[ignore = "minutes"]
fn a_kill_leaves_the_last_msync_at_many_kills() {
    kills(100);
}
