//! C programs, one per family of calls, run on a plain file and then on an atomic one.

mod common;

use common::{Folder, build, only, same, succeed, under, under_domain};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

#[test]
fn open_family() {
    assert_eq!(same("open"), "");
}

#[test]
fn reads_writes_sizes_and_stat() {
    // At its end, it sets a limit under which no journal fits.
    let said = same("io");
    assert!(said.lines().count() == 1 && said.contains("because of a limit on file sizes"), "{said}");
}

/// Names, rights and descriptors by number used to go past the library.
#[test]
fn calls_by_number() {
    assert_eq!(same("by_number"), "");
}

#[test]
fn duplicates_ranges_and_locks() {
    same("dup");
}

#[test]
fn splices() {
    assert_eq!(same("splice"), "");
}

#[test]
fn demotion_is_said_and_right() {
    let said = same("demote");
    assert!(said.contains("demoted to an ordinary file because of io_submit(2)"), "{said}");
}

#[test]
fn asynchronous_requests() {
    assert_eq!(same("aio"), "");
    // A kill takes the file back to what `aio_fsync` committed.
    let program = build("aio");
    let folder = Folder::new("aio-kill");
    let done = under(&folder, &program).args(["atomic", "kill"]).output().unwrap();
    assert_eq!(done.status.signal(), Some(libc::SIGKILL));
    let (out, _) = succeed(under(&folder, "cat").arg("atomic"));
    assert_eq!(out, "0123456789");
    let _ = std::fs::remove_file(program);
}

#[test]
fn descriptors_from_a_parent_an_exec_or_a_socket() {
    assert_eq!(same("inherit"), "");
    let program = build("inherit");
    let folder = Folder::new("inherit-kill");
    let done = under(&folder, &program).args(["atomic", "kill"]).output().unwrap();
    assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&done.stderr));
    let (out, _) = succeed(under(&folder, "cat").arg("atomic"));
    assert_eq!(out, "Carent+");
    for (how, wanted) in [("orphan", "committed+"), ("orphan before", "Committed+")] {
        // The output ends when the child ends, not the parent.
        let done = under(&folder, &program).args(["atomic", how]).output().unwrap();
        assert_eq!(done.status.signal(), Some(libc::SIGKILL));
        assert_eq!(String::from_utf8_lossy(&done.stdout), "well\n", "{how}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(succeed(under(&folder, "cat").arg("atomic")).0, wanted);
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn threads_cancellation_and_signals() {
    same("threads");
}

#[test]
fn a_checked_read_ends_the_program() {
    let program = build("overflow");
    let folder = Folder::new("overflow");
    let done = under(&folder, &program).arg("atomic").output().unwrap();
    assert_eq!(done.status.signal(), Some(libc::SIGABRT));
    let _ = std::fs::remove_file(program);
}

#[test]
fn children_and_every_way_to_end() {
    let program = build("process");
    for end in ["return", "exit", "_exit", "quick_exit", "exit_group", "exec", "execle", "pass"] {
        let folder = Folder::new(&format!("process-{end}"));
        let mut command = under(&folder, &program);
        command.arg("atomic");
        if end != "return" {
            command.arg(end);
        }
        let (_, said) = succeed(&mut command);
        let foreseen = |line: &str| line.contains("standard stream");
        assert!(said.lines().all(foreseen), "{end}: {said}");
        assert_eq!(folder.names(), ["atomic"], "{end}");
        let wanted = if end == "pass" { "Rarent goes on? passed" } else { "Rarent goes on?" };
        assert_eq!(String::from_utf8(folder.read("atomic")).unwrap(), wanted, "{end}");
    }
    // A kill takes the file back to its last SYNC, for the next process that opens it.
    let folder = Folder::new("process-kill");
    let done = under(&folder, &program).args(["atomic", "kill"]).output().unwrap();
    assert_eq!(done.status.signal(), Some(libc::SIGKILL));
    let (out, _) = succeed(under(&folder, "cat").arg("atomic"));
    assert_eq!(out, "Rarent goes on?");
    assert_eq!(folder.names(), ["atomic"]);
    let _ = std::fs::remove_file(program);
}

#[test]
fn a_descriptor_does_not_slip_into_another_program() {
    let said = same("spawn");
    assert!(
        said.contains("in a child of vfork(2) a descriptor of an atomic file can't become a standard stream")
            && said.contains("by its name, or pass a pipe"),
        "{said}"
    );
    assert!(said.contains("demoted to an ordinary file because of posix_spawn(3)"), "{said}");
}

#[test]
fn an_allocator_may_open_files_before_the_start() {
    assert_eq!(same("allocator"), "");
    let program = build("allocator");
    let folder = Folder::new("allocator-late");
    succeed(under(&folder, &program).args(["atomic", "with an environment"]));
    // This may select any name, until its folder is checked.
    succeed(under(&folder, &program).env("FAMIO_ATOMIC", "./**").args(["atomic", "with an environment"]));
    let _ = std::fs::remove_file(program);
}

#[test]
fn a_stream_finds_a_file_recovered() {
    let program = build("process");
    let folder = Folder::new("stream-kill");
    under(&folder, &program).args(["atomic", "kill"]).output().unwrap();
    // fopen by libc itself: sort reads with streams.
    let (out, _) = succeed(under(&folder, "sort").arg("atomic"));
    assert_eq!(out.trim_end(), "Rarent goes on?");
    let _ = std::fs::remove_file(program);
}

#[test]
fn what_a_crash_left_is_recovered_before_its_name_goes() {
    let program = build("process");
    let folder = Folder::new("name-kill");
    let kill = || under(&folder, &program).args(["atomic", "kill"]).output().unwrap();
    kill();
    assert_eq!(folder.names(), [".famio", "atomic"]);
    succeed(under(&folder, "rm").arg("atomic"));
    assert!(folder.names().is_empty());
    for (command, left) in [
        ("mv atomic atomic.old; rm -r atomic.old", ""),
        ("mkdir x; mv atomic x/plain; cat x/*; rm -r x", "Rarent goes on?"),
    ] {
        kill();
        let (out, _) = succeed(under(&folder, "sh").args(["-c", command]));
        assert_eq!(out.trim_end(), left);
        assert!(folder.names().is_empty(), "{command}: {:?}", folder.names());
    }
    // A journal that a kill left at the end of a close, when the mark was removed already.
    kill();
    let journal = std::fs::read_dir(folder.path().join(".famio")).unwrap().next().unwrap().unwrap().path();
    succeed(under(&folder, "cat").arg("atomic"));
    std::fs::create_dir(folder.path().join(".famio")).unwrap();
    std::fs::set_permissions(folder.path().join(".famio"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    std::fs::write(&journal, []).unwrap();
    std::fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    succeed(under(&folder, "rm").arg("atomic"));
    assert!(folder.names().is_empty());
    // Replaced by a rename; and removed by a name relative to a folder's descriptor.
    kill();
    succeed(under(&folder, "sh").args(["-c", "echo new > other; mv other atomic"]));
    assert_eq!(folder.names(), ["atomic"]);
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    under(&folder, &program).current_dir(&inner).args(["atomic", "kill"]).output().unwrap();
    succeed(under(&folder, "rm").args(["-r", "--one-file-system", "inner/atomic", "inner"]));
    assert_eq!(folder.names(), ["atomic"]);
    let _ = std::fs::remove_file(program);
}

#[test]
fn nothing_is_managed_without_being_asked() {
    let program = build("io");
    let folder = Folder::new("unasked");
    succeed(under(&folder, &program).arg("plain").env_remove("FAMIO_ATOMIC"));
    succeed(under(&folder, &program).arg("plain"));
    succeed(Command::new(&program).arg("plain").current_dir(folder.path()));
    let _ = (std::fs::remove_file(program), only as fn(&str) -> _);
}

/// By the library alone, as without the filter of `famio run`.
#[test]
fn io_uring_is_refused_unless_it_is_allowed() {
    let program = build("ring");
    let folder = Folder::new("ring");
    let bare =
        Command::new(&program).arg("plain").current_dir(folder.path()).env_remove("LD_PRELOAD").status().unwrap();
    let run = |setting: &str| {
        let done = under(&folder, &program).arg("atomic").env("FAMIO_ASYNC_IO", setting).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    for setting in ["", "refuse"] {
        let (status, said) = run(setting);
        assert!(status == Some(10) && said.contains("io_uring refused"), "{status:?} {said}");
    }
    // The kernel's own answer, and the notice once.
    let (status, said) = run("allow");
    assert_eq!(status, bare.code(), "{said}");
    assert!(said.contains("not protected") && said.lines().count() == 1, "{said}");
    assert_eq!(run("perhaps").0, Some(125));
    let _ = std::fs::remove_file(program);
}

/// Reserving space and setting times must not look like an outsider's change of the file; a cut by path is not a
/// SYNC, even if the file is open with `O_DSYNC`.
#[test]
fn killed_long_after_the_last_write() {
    let program = build("late");
    for place in [Folder::new, Folder::on_disk] {
        for what in ["fallocate", "futimens", "utimensat", "utime", "truncate"] {
            let folder = place(&format!("late-{what}"));
            let done = under(&folder, &program).args(["atomic", what]).output().unwrap();
            assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&done.stderr));
            let (out, said) = succeed(under(&folder, "cat").arg("atomic"));
            assert_eq!((out.as_str(), said.as_str()), ("committed", ""), "{what}");
        }
    }
    let _ = std::fs::remove_file(program);
}

/// The library's maps used to count: under a lowered limit, the program got no memory and no stack.
#[test]
fn a_limit_on_the_address_space_leaves_the_program_what_it_asked_for() {
    assert_eq!(same("address_space"), "");
}

/// A child's `sync` returned without having committed what its parent had written.
#[test]
fn a_childs_sync_commits_what_its_parent_has_written() {
    let program = build("child_syncs");
    for how in ["sync", "syncfs"] {
        for domain in ["", "emulated"] {
            let folder = Folder::new(&format!("child-{how}-{domain}"));
            let mut command = under_domain(&folder, &program, domain);
            let done = command.args(["atomic", how]).output().unwrap();
            assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&done.stderr));
            let (out, _) = succeed(under(&folder, "cat").arg("atomic"));
            assert_eq!(out, "BBAA", "{how}, {domain}");
        }
    }
    let _ = std::fs::remove_file(program);
}
