//! What was handed back to the kernel, or is a program's standard error, where another program goes on with it.

mod common;

use common::{Folder, build, succeed, under};

fn run(how: &str, domain: &str) -> Folder {
    let program = build("handed_back");
    let folder = Folder::new(&format!("handed-back-{how}"));
    let mut command = under(&folder, &program);
    if !domain.is_empty() {
        command.env("FAMIO_DOMAIN", domain);
    }
    succeed(command.args(["atomic", how]));
    let _ = std::fs::remove_file(program);
    folder
}

/// It could be read by the same descriptor, since the library opens it for both; and a file that was opened anew was atomic again,
/// beside a descriptor that writes past the log.
#[test]
fn stays_so_and_write_only_after_an_exec() {
    for how in ["write-only", "write-only-shared"] {
        assert_eq!(run(how, "").read("atomic"), b"AB\0XY", "{how}");
    }
}

/// Was `EBUSY`.
#[test]
fn one_that_appends_becomes_a_standard_stream_after_an_exec() {
    assert_eq!(run("append", "").read("atomic"), b"onetwothree");
}

/// A child that shares the description has an ordinary file then, and not a session that writes by offset.
#[test]
fn one_that_appends_becomes_a_standard_stream_beside_a_child() {
    assert_eq!(run("append-forked", "").read("atomic"), b"onetwothree");
}

/// It was atomic by that descriptor, with a session beside what the kernel wrote, which was lost.
#[test]
fn is_so_by_a_descriptor_that_a_child_has_not_used_yet() {
    for domain in ["", "emulated"] {
        assert_eq!(run("forked", domain).read("atomic"), b"onetwothree");
    }
}

/// Opened anew it was atomic, beside the descriptor that the other of the two writes by.
#[test]
fn stays_so_after_a_fork() {
    for domain in ["", "emulated"] {
        assert_eq!(run("forked-after", domain).read("atomic"), b"onetwothreelast");
    }
}

#[test]
fn what_a_program_opened_as_descriptor_2_gets_no_messages_of_the_next_one() {
    for how in ["data", "spawned"] {
        let folder = run(how, "emulated");
        assert_eq!((folder.read("plain"), folder.read("atomic")), (vec![], b"bytes".to_vec()), "{how}");
    }
}

#[test]
fn what_it_put_there_by_dup2_is_its_standard_error() {
    let said = run("log", "emulated").read("log");
    assert!(String::from_utf8_lossy(&said).contains("domain emulated"));
}

/// Was the kernel's size, and the file was handed back.
#[test]
fn a_look_by_name_is_no_standard_stream() {
    assert_eq!(run("stat", "").read("atomic"), b"bytes");
}
