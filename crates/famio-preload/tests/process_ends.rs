//! Ends of processes and threads that libc makes by itself.

mod common;

use common::agent::{everywhere, nothing_left};
use common::{Folder, build, succeed, under_domain};
use std::ffi::OsStr;
use std::process::Command;

/// In a domain of [`everywhere`]'s.
fn under(folder: &Folder, program: impl AsRef<OsStr>, domain: &str) -> Command {
    under_domain(folder, program, if domain == "emulated" { domain } else { "" })
}

/// It did not end: libc waits for the library's threads, too.
#[test]
fn a_program_ends_with_its_last_thread() {
    let program = build("main_thread_ends");
    everywhere("main-thread", |folder, domain| {
        let mut command = under(folder, "timeout", domain);
        succeed(command.args(["-s", "KILL", "60"]).arg(&program).arg("atomic"));
        assert_eq!(&folder.read("atomic")[..5], b"later");
        nothing_left(folder);
    });
    let _ = std::fs::remove_file(program);
}

/// The parent's end counted as a kill: what it had written was gone.
#[test]
fn a_daemon_goes_on_behind_what_its_parent_has_written() {
    let program = build("daemonize");
    everywhere("daemonize", |folder, domain| {
        // Until the daemon has ended, too: it has the pipes.
        succeed(under(folder, &program, domain).arg("atomic"));
        assert_eq!(folder.read("atomic"), b"headtail");
    });
    let _ = std::fs::remove_file(program);
}

/// It waited for ever: the main thread stayed, for the process to end.
#[test]
fn a_thread_may_wait_for_the_end_of_the_main_thread() {
    let program = build("main_thread_joined");
    everywhere("main-joined", |folder, domain| {
        for before in [&[][..], &["before"]] {
            let mut command = under(folder, "timeout", domain);
            succeed(command.args(["-s", "KILL", "60"]).arg(&program).arg("atomic").args(before));
            assert_eq!(&folder.read("atomic")[..5], b"later");
            nothing_left(folder);
        }
    });
    let _ = std::fs::remove_file(program);
}

/// The cancellation ended the process: it cannot go through the library.
#[test]
fn a_thread_is_cancelled_within_a_function_of_streams() {
    let (folder, program) = (Folder::new("cancel-stdio"), build("cancel_stdio"));
    for file in ["atomic", "plain"] {
        let mut command = under_domain(&folder, "timeout", "");
        succeed(command.args(["-s", "KILL", "60"]).arg(&program).args([file, "fifo"]));
        std::fs::remove_file(folder.path().join("fifo")).unwrap();
    }
    let _ = std::fs::remove_file(program);
}
