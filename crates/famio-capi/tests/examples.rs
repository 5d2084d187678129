//! The examples are real programs: they run, also under valgrind, and their data survives a kill at any moment.

mod common;

use common::{Folder, Linked, beside, build, command, kills, succeed, under_valgrind};
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn both(name: &str, work: impl Fn(&Folder)) {
    for folder in [Folder::new(name), Folder::on_disk(name)] {
        work(&folder);
        assert!(folder.names().iter().all(|name| !name.contains("famio")), "{:?}", folder.names());
    }
}

#[test]
fn the_hash_map_in_c() {
    for linked in [Linked::Shared, Linked::Static] {
        let program = build("examples/hashmap.c", linked);
        both(&format!("hashmap-{linked:?}"), |folder| {
            let file = folder.path().join("map");
            let run = |args: &[&str]| succeed(command(&program).arg(&file).args(args));
            run(&["put", "a", "1"]);
            run(&["put", "b", "22"]);
            run(&["put", "a", "333"]);
            assert_eq!((run(&["get", "a"]), run(&["get", "b"])), ("333\n".into(), "22\n".into()));
            run(&["del", "b"]);
            assert_eq!(run(&["list"]), "a=333\n");
            assert_eq!(command(&program).arg(&file).args(["get", "b"]).status().unwrap().code(), Some(1));
            run(&["del", "a"]);
            assert_eq!(run(&["rounds", "200"]).lines().count(), 200);
            assert_eq!(run(&["check"]), "200\n");
        });
    }
}

#[test]
fn the_hash_map_survives_kills() {
    let program = build("examples/hashmap.c", Linked::Shared);
    both("hashmap-kills", |folder| {
        kills(&program, &folder.path().join("map"), &["rounds", "1000000"], Some(&["check"]), 20);
        succeed(command(&program).arg(folder.path().join("map")).arg("check"));
    });
}

#[test]
fn the_containers_in_cpp_survive_kills() {
    let program = build("examples/containers.cpp", Linked::Shared);
    both("containers", |folder| {
        let file = folder.path().join("ledger");
        assert_eq!(succeed(command(&program).arg(&file).arg("3")), "100000 0\n1\n2\n3\n");
        assert_eq!(succeed(command(&program).arg(&file).arg("0")), "100000 3\n");
        let file = folder.path().join("another");
        succeed(command(&program).arg(&file).arg("0"));
        kills(&program, &file, &["1000000"], None, 20);
        succeed(command(&program).arg(&file).arg("0"));
    });
}

/// A transfer must be in both files or in none.
#[test]
fn the_banks_in_c_and_rust_survive_kills() {
    let in_c = ["examples/bank.c", "examples/nv_bank.c"].map(|source| build(source, Linked::Shared));
    for program in in_c.into_iter().chain([beside("examples/bank")]) {
        both("bank", |folder| {
            succeed(command(&program).arg(folder.path()).args(["transfer", "3"]));
            assert_eq!(succeed(command(&program).arg(folder.path()).arg("check")), "3\n");
            let killed = folder.path().join("killed");
            std::fs::create_dir(&killed).unwrap();
            kills(&program, &killed, &["transfer", "1000000"], Some(&["check"]), 20);
            succeed(command(&program).arg(&killed).arg("check"));
        });
    }
}

/// A process that had found the files empty gave them their money once more, over the transfers of others.
#[test]
fn a_bank_gives_its_money_once_though_several_begin() {
    let program = build("examples/bank.c", Linked::Shared);
    for _ in 0..20 {
        let folder = Folder::new("bank-begin");
        let begin =
            |_| command(&program).arg(folder.path()).args(["transfer", "5"]).stdout(Stdio::null()).spawn().unwrap();
        for mut child in [0; 6].map(begin) {
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(succeed(command(&program).arg(folder.path()).arg("check")), "30\n");
    }
}

fn queue() -> PathBuf {
    beside("examples/queue")
}

#[test]
fn the_queue_in_rust_survives_kills() {
    let program = queue();
    both("queue", |folder| {
        let file = folder.path().join("queue");
        let run = |args: &[&str]| succeed(command(&program).arg(&file).args(args));
        run(&["put", "one"]);
        run(&["put", "two"]);
        assert_eq!((run(&["take"]), run(&["take"]), run(&["take"])), ("one\n".into(), "two\n".into(), String::new()));
        let file = folder.path().join("work");
        succeed(command(&program).arg(&file).args(["work", "10"]));
        let found = succeed(command(&program).arg(&file).args(["work", "0"]));
        assert_eq!(found, "10\n");
        let file = folder.path().join("killed");
        kills(&program, &file, &["work", "1000000"], None, 20);
        succeed(command(&program).arg(&file).args(["work", "0"]));
    });
}

/// Including the library's use of memory.
#[test]
fn valgrind_finds_nothing() {
    let programs: [(PathBuf, &[&str]); 3] = [
        (build("examples/hashmap.c", Linked::Shared), &["rounds", "40"]),
        (build("examples/containers.cpp", Linked::Shared), &["40"]),
        (queue(), &["work", "40"]),
    ];
    for (program, args) in programs {
        let folder = Folder::new("valgrind");
        for _ in 0..2 {
            let Some(mut valgrind) = under_valgrind(&program) else { return };
            succeed(valgrind.arg(folder.path().join("file")).args(args));
        }
    }
}

/// Under `famio run`, the program has two libraries, and the interposer has the files.
#[test]
fn a_program_of_libfamio_runs_under_the_interposer() {
    let program = build("examples/hashmap.c", Linked::Shared);
    let folder = Folder::new("interposed");
    let file = folder.path().join("map");
    for pattern in ["map", "another", ""] {
        let run = |args: &[&str]| {
            let mut command: Command = command(&program);
            command.env("LD_PRELOAD", beside("libfamio_preload.so")).env("FAMIO_ATOMIC", pattern);
            succeed(command.arg(&file).args(args))
        };
        assert_eq!(run(&["rounds", "50"]).lines().count(), 50);
        run(&["check"]);
    }
    assert_eq!(succeed(command(&program).arg(&file).arg("check")), "150\n");
    assert_eq!(folder.names(), ["map"]);
}

/// The crate has its own copy of the library, and must not have files beside the interposer.
#[test]
fn a_program_of_the_crate_is_refused_under_the_interposer() {
    let folder = Folder::new("refused");
    let mut command: Command = command(queue());
    command.env("LD_PRELOAD", beside("libfamio_preload.so")).env("FAMIO_ATOMIC", "queue");
    let done = command.arg(folder.path().join("queue")).arg("take").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("famio run"), "{said}");
    assert!(folder.names().is_empty());
}
