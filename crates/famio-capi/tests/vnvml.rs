//! The interface of vNVML: what it does and refuses, and what is left of transactions over two regions after kills.

mod common;

use common::{Folder, Linked, Mounted, beside, build, command, kills, succeed, under_valgrind};
use std::process::Command;

const PROGRAM: &str = "crates/famio-capi/tests/programs/vnvml.c";
/// What the program leaves.
const FILES: [&str; 4] = ["alone", "one", "shared", "two"];

fn run(folder: &Folder, command: &mut Command) {
    succeed(command.current_dir(folder.path()));
    assert_eq!(folder.names(), FILES);
    assert_eq!(
        ["one", "two"].map(|name| std::fs::read(folder.path().join(name)).unwrap()[..4].to_vec()),
        [*b"last"; 2]
    );
}

#[test]
fn what_it_does_and_refuses() {
    for linked in [Linked::Shared, Linked::Static] {
        let program = build(PROGRAM, linked);
        run(&Folder::new(&format!("vnvml-{linked:?}")), &mut command(&program));
        let folder = Folder::on_disk(&format!("vnvml-{linked:?}"));
        run(&folder, command(&program).env("ON_DISK", "1"));
    }
}

#[test]
fn under_each_policy_and_the_interposer() {
    let program = build(PROGRAM, Linked::Shared);
    for policy in ["undo", "redo", "alternate"] {
        let folder = Folder::new(&format!("vnvml-{policy}"));
        run(&folder, command(&program).env("FAMIO_POLICY", policy).env("FAMIO_JOURNAL", "always"));
    }
    for pattern in ["another", ""] {
        let folder = Folder::new(&format!("vnvml-interposed-{pattern}"));
        let mut command = command(&program);
        command.env("LD_PRELOAD", beside("libfamio_preload.so")).env("FAMIO_ATOMIC", pattern);
        run(&folder, &mut command);
    }
}

/// On file systems of 16 MiB, of both kinds.
#[test]
fn without_room() {
    let folder = Folder::on_disk("vnvml-full");
    let program = build(PROGRAM, Linked::Shared);
    for kind in ["tmpfs", "ext4"] {
        let Some(mounted) = Mounted::new(folder.path(), kind) else { return };
        let memory = ["memory"].iter().filter(|_| kind == "tmpfs");
        succeed(command(&program).arg("full").args(memory).current_dir(&mounted.0));
    }
}

/// Each run is killed in a transaction over two regions: the next finds all of it or nothing, in both.
#[test]
fn transactions_of_two_regions_survive_kills() {
    let program = build("crates/famio-capi/tests/programs/vnvml_kill.c", Linked::Shared);
    let count = std::env::var("FAMIO_KILLS").map_or(15, |count| count.parse().unwrap());
    for kinds in ["pp", "ss", "ps"] {
        for folder in [Folder::new(&format!("vnvml-{kinds}")), Folder::on_disk(&format!("vnvml-{kinds}"))] {
            kills(&program, folder.path(), &[kinds, "work", "1000000"], Some(&[kinds, "check"]), count);
            succeed(command(&program).arg(folder.path()).args([kinds, "check"]));
            succeed(command(&program).arg(folder.path()).args(["sp", "work", "5"])); // the kinds are not the files'
            assert_eq!(folder.names(), ["0", "1"]);
        }
    }
}

/// With the journals in a pool, in memory, before files on a disk.
#[test]
fn tiered_files_survive_kills() {
    let program = build("crates/famio-capi/tests/programs/vnvml_kill.c", Linked::Shared);
    let (folder, pool) = (Folder::on_disk("vnvml-tiered"), Folder::new("vnvml-pool"));
    let wrapper = common::libraries().join("tiered");
    let script = format!(
        "#!/bin/sh\nFAMIO_POOL={} FAMIO_DURABILITY=process exec {} \"$@\" 2>/dev/null\n",
        pool.path().display(),
        program.display()
    );
    // By another process: a child that a test beside this one starts would have it open for writing, too (ETXTBSY).
    let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
    succeed(command("sh").args(["-c", write, "sh", &script]).arg(&wrapper));
    kills(&wrapper, folder.path(), &["pp", "work", "1000000"], Some(&["pp", "check"]), 10);
    succeed(command(&wrapper).arg(folder.path()).args(["ps", "check"]));
    assert_eq!((folder.names(), pool.names()), (vec!["0".to_string(), "1".to_string()], Vec::new()));
}

#[test]
fn under_valgrind_without_an_error_of_memory() {
    let program = build("examples/nv_bank.c", Linked::Shared);
    let folder = Folder::new("vnvml-valgrind");
    if let Some(mut valgrind) = under_valgrind(&program) {
        succeed(valgrind.arg(folder.path()).args(["transfer", "40"]));
        assert_eq!(succeed(command(&program).arg(folder.path()).arg("check")), "40\n");
    }
}
