//! The library's own descriptors, and programs that close, replace, move and use up descriptors.

mod common;

use common::{Folder, build, succeed, under, under_domain};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// Whether the file has what was written last, and synced.
fn is_all(folder: &Folder, letter: u8) -> bool {
    let bytes = folder.read("atomic");
    bytes.len() == 64 * (64 << 10) && bytes.iter().all(|&byte| byte == letter)
}

fn run(folder: &Folder, program: &Path, how: &str, domain: &str) -> Command {
    let mut command = under_domain(folder, program, domain);
    command.args(["atomic", how]);
    command
}

fn folders(name: &str) -> [(Folder, &'static str); 3] {
    [
        (Folder::new(&format!("descriptors-{name}-process")), ""),
        (Folder::new(&format!("descriptors-{name}-emulated")), "emulated"),
        (Folder::on_disk(&format!("descriptors-{name}-disk")), ""),
    ]
}

/// Runs the program to its kill after the last SYNC. Every other file must have its own bytes (the program checks
/// that), and a recovery must find what was synced.
fn survives(hows: &[&str]) {
    let program = build("descriptors");
    for how in hows {
        for (folder, domain) in folders(how) {
            let done = run(&folder, &program, how, domain).output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(
                done.status.signal(),
                Some(libc::SIGKILL),
                "{how} in {:?}: {:?} {said}",
                folder.path(),
                done.status
            );
            assert!(said.lines().all(|line| line.contains("domain emulated")), "{how}: {said}");
            let mut recover = under(&folder, "cat");
            recover.arg("atomic");
            if !domain.is_empty() {
                recover.env("FAMIO_DOMAIN", domain);
            }
            succeed(&mut recover);
            let last = if ["standard", "detached"].contains(how) { b'c' } else { b'z' };
            assert!(is_all(&folder, last), "{how} in {:?}: the last SYNC is lost", folder.path());
            if *how == "standard" {
                assert_eq!((folder.read("messages"), folder.read("later")), (vec![], vec![]));
            }
        }
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn closing_all_numbers_leaves_the_librarys_open() {
    survives(&["close", "close_range", "closefrom", "syscall"]);
}

#[test]
fn what_is_closed_out_of_sight_is_opened_anew_and_never_written_through() {
    survives(&["inlined", "replaced"]);
}

/// For a moment, a descriptor of the library had the number that another thread's `open` should have got.
#[test]
fn the_program_gets_the_lowest_numbers() {
    survives(&["numbers"]);
}

#[test]
fn what_the_program_wants_moves_away() {
    survives(&["dup2", "dup2-all", "dupfd"]);
}

/// Whenever the library opens a file, it has the lowest free number for a moment. If the program put a file there at
/// that moment, the library took it for its own: it wrote a journal's header over it, and closed it.
#[test]
fn what_the_program_puts_in_the_way_of_an_open_stays_its_own() {
    survives(&["passing"]);
}

#[test]
fn a_program_that_looks_sees_none() {
    survives(&["look", "fork"]);
}

#[test]
fn nothing_is_where_standard_descriptors_were() {
    survives(&["standard", "detached"]);
}

#[test]
fn a_limit_that_is_lowered_lets_the_file_be_closed() {
    let program = build("descriptors");
    for (folder, domain) in folders("limit") {
        succeed(&mut run(&folder, &program, "limit", domain));
        assert!(is_all(&folder, b'b'));
        assert_eq!(folder.names(), ["atomic", "other-0"]);
    }
    let _ = std::fs::remove_file(program);
}

/// A temporary `EMFILE` at the first write became a permanent `EEXIST` or `EMFILE`: the journal was left.
#[test]
fn a_first_write_without_descriptors_fails_and_leaves_nothing() {
    let program = build("emfile");
    for (folder, domain) in folders("emfile") {
        succeed(&mut run(&folder, &program, "", domain));
        assert_eq!(folder.names(), ["atomic"]);
        assert_eq!(folder.read("atomic"), b"written");
    }
    let _ = std::fs::remove_file(program);
}

/// A write failed with `EMFILE` when the other process's epoch had to be read, and left an empty control file; and a
/// journal took the numbers that a low limit left to the program.
#[test]
fn work_of_ours_needs_none_of_the_programs_numbers() {
    let program = build("no_number");
    for (folder, domain) in folders("no-number") {
        let (_, said) = succeed(&mut run(&folder, &program, "", domain));
        assert!(said.lines().all(|line| line.contains("domain emulated")), "{said}");
        assert_eq!(folder.names(), ["atomic", "atomic-2"]);
        assert_eq!(folder.read("atomic"), b"Parentchildagain!");
        assert_eq!(folder.read("atomic-2"), b"other");
    }
    let _ = std::fs::remove_file(program);
}

/// A journal, a lock file with the arena, and the control page: no more, whatever journal the file has.
#[test]
fn a_file_takes_few_descriptors() {
    let program = build("descriptors");
    for (folder, domain) in folders("count") {
        let (counted, _) = succeed(&mut run(&folder, &program, "count", domain));
        let counted: u32 = counted.trim().parse().unwrap();
        assert!(counted <= 4, "{counted} in {:?}", folder.path()); // one for the file, during a checkpoint
    }
    let _ = std::fs::remove_file(program);
}

/// If the hard limit equals the soft one, the library's numbers are numbers that the program could have: a program
/// that wrote to one that it had not opened wrote into a journal.
#[test]
fn a_number_of_the_librarys_is_none_of_the_programs() {
    let program = build("stray");
    for (folder, domain) in folders("stray") {
        succeed(run(&folder, &program, "", domain).env("FAMIO_JOURNAL", "always"));
        assert_eq!(folder.names(), ["atomic"]);
        assert_eq!(folder.read("atomic"), b"SYNCED");
    }
    let _ = std::fs::remove_file(program);
}

/// With threads, the kernel's table of descriptors grows slowly: a first write once took 10 to 20 ms.
#[test]
fn the_kernels_table_is_large_before_there_are_threads() {
    let folder = Folder::new("descriptors-table");
    let size = |command: &mut Command| {
        let (said, _) = succeed(command.args(["FDSize", "/proc/self/status"]));
        said.split_whitespace().last().and_then(|size| size.parse::<u32>().ok()).unwrap()
    };
    let (plain, atomic) = (size(&mut Command::new("grep")), size(&mut under(&folder, "grep")));
    assert!(plain < 1024 && atomic >= 1024, "{plain}, {atomic}");
}

/// A handle, or another process's descriptor, was the kernel's: it read old bytes, and what it synced was lost.
#[test]
fn a_descriptor_without_a_name_leads_to_the_atomic_file() {
    let program = build("without_a_name");
    for how in ["handle", "getfd", "write-only"] {
        for (folder, domain) in folders(how) {
            succeed(&mut run(&folder, &program, how, domain));
            assert!(folder.read("atomic").ends_with(b"D"), "{how}");
        }
    }
    let _ = std::fs::remove_file(program);
}
