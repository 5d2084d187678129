//! Demoted files, and files at a program's standard error, when another program goes on with them.

mod common;

use common::{Folder, build, succeed, under_domain};

fn run(how: &str, domain: &str) -> Folder {
    let program = build("demoted");
    let folder = Folder::new(&format!("handed-back-{how}"));
    let mut command = under_domain(&folder, &program, domain);
    succeed(command.args(["atomic", how]));
    let _ = std::fs::remove_file(program);
    folder
}

/// The file could be read through the same descriptor, since the library opens it for both; and opened again, the
/// file was atomic, beside a descriptor that wrote past the log.
#[test]
fn stays_so_and_write_only_after_an_exec() {
    for how in ["write-only", "write-only-shared"] {
        assert_eq!(run(how, "").read("atomic"), b"AB\0XY", "{how}");
    }
}

/// A moment later its maps used to be maps of memory again, and what was stored there was lost.
#[test]
fn keeps_its_maps() {
    for domain in ["", "emulated"] {
        assert!(run("mapped", domain).read("link").starts_with(b"stored 19\0"));
    }
}

/// It used to fail with `EBUSY`.
#[test]
fn one_that_appends_becomes_a_standard_stream_after_an_exec() {
    assert_eq!(run("append", "").read("atomic"), b"onetwothree");
}

/// A child that shares the description then has an ordinary file, not a session that writes by offset.
#[test]
fn one_that_appends_becomes_a_standard_stream_beside_a_child() {
    assert_eq!(run("append-forked", "").read("atomic"), b"onetwothree");
}

/// It was refused with `EBUSY` for as long as the parent took to end.
#[test]
fn a_daemons_log_becomes_its_standard_stream_while_its_parent_ends() {
    let program = build("daemon");
    let folder = Folder::new("daemon");
    succeed(under_domain(&folder, &program, "").arg("atomic"));
    assert_eq!(folder.read("atomic"), b"onetwo");
    let _ = std::fs::remove_file(program);
}

/// Through that descriptor the file was atomic, with a session whose kernel-side writes were lost.
#[test]
fn is_so_by_a_descriptor_that_a_child_has_not_used_yet() {
    for domain in ["", "emulated"] {
        assert_eq!(run("forked", domain).read("atomic"), b"onetwothree");
    }
}

/// Opened again, it was atomic, beside the descriptor by which the other process writes.
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

/// It showed the kernel's size, and the file was demoted.
#[test]
fn a_look_by_name_is_no_standard_stream() {
    assert_eq!(run("stat", "").read("atomic"), b"bytes");
}

/// Read as standard input, the file was the kernel's to that process, which then wrote past its parent's session: what
/// it had synced was lost without an error.
#[test]
fn what_reads_it_as_standard_input_does_not_write_beside_a_session() {
    let program = build("read_as_stdin");
    for how in ["inherited", "opened", "cut"] {
        for domain in ["", "emulated"] {
            let folder = Folder::new(&format!("stdin-{how}-{domain}"));
            let mut command = under_domain(&folder, &program, domain);
            let (_, said) = succeed(command.args(["atomic", how]));
            assert_eq!(said.contains("open for writing refused (EBUSY)"), how != "inherited", "{said}");
        }
    }
    let _ = std::fs::remove_file(program);
}

/// The mark of a child that had demoted the description stayed on it: the next child wrote past the parent's session.
#[test]
fn one_that_an_ended_child_has_demoted_is_atomic_to_the_next() {
    let program = build("ended_child");
    for how in ["opened", "duplicated"] {
        for domain in ["", "emulated"] {
            let folder = Folder::new(&format!("ended-{how}-{domain}"));
            let mut command = under_domain(&folder, &program, domain);
            succeed(command.args(["atomic", how]));
            let found = folder.read("atomic");
            assert!(found.len() == 10_000 && found.starts_with(b"abc\0"), "{how}, {domain}: {}", found.len());
        }
    }
    let _ = std::fs::remove_file(program);
}

/// The second open of a file that is ordinary already left no mark: the next program took the file for an atomic one, and
/// lost what it wrote by the first program's descriptors.
#[test]
fn one_that_was_ordinary_before_an_exec_stays_so() {
    let program = build("ordinary_before_exec");
    for how in ["reads", "writes", "only writes"] {
        for domain in ["", "emulated"] {
            let folder = Folder::new(&format!("exec-{}-{domain}", how.replace(' ', "-")));
            let mut command = under_domain(&folder, &program, domain);
            succeed(command.args(["atomic", how]));
            assert_eq!(folder.read("atomic"), b"abcd", "{how}, {domain}");
        }
    }
    let _ = std::fs::remove_file(program);
}
