//! Every error that the man pages name, with the shared and the static library, under the interposer, and under
//! valgrind.

mod common;

use common::{Folder, Linked, Mounted, beside, build, command, succeed, under_valgrind};
use std::process::Command;

const ERRORS: &str = "crates/famio-capi/tests/programs/errors.c";

fn run(folder: &Folder, command: &mut Command) {
    succeed(command.current_dir(folder.path()));
    assert_eq!(folder.names(), ["file", "link", "pipe"]);
}

#[test]
fn of_the_shared_library_and_the_static_one() {
    for linked in [Linked::Shared, Linked::Static] {
        let program = build(ERRORS, linked);
        for folder in [Folder::new(&format!("errors-{linked:?}")), Folder::on_disk(&format!("errors-{linked:?}"))] {
            run(&folder, &mut command(&program));
        }
    }
}

#[test]
fn under_the_interposer() {
    let program = build(ERRORS, Linked::Shared);
    for pattern in ["another", ""] {
        let folder = Folder::new(&format!("errors-interposed-{pattern}"));
        let mut command = command(&program);
        command.env("LD_PRELOAD", beside("libfamio_preload.so")).env("FAMIO_ATOMIC", pattern);
        run(&folder, command.env("INTERPOSED", "1"));
    }
}

/// With a `/dev/shm` of two megabytes, a map belongs to one process.
#[test]
fn where_processes_can_not_share_a_map() {
    if !command("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: it takes root, and mounts of its own, for a small /dev/shm");
        return;
    }
    let program = build(ERRORS, Linked::Shared);
    let folder = Folder::on_disk("errors-no-room");
    let small = "mount -t tmpfs -o size=2m tmpfs /dev/shm && exec \"$@\"";
    let mut inside = command("unshare");
    inside.args(["--mount", "sh", "-c", small, "sh"]).arg(&program).arg("without-room");
    run(&folder, &mut inside);
}

#[test]
fn under_valgrind_without_an_error_of_memory() {
    let program = build("crates/famio-capi/tests/programs/memory.c", Linked::Shared);
    let folder = Folder::new("errors-valgrind");
    if let Some(mut valgrind) = under_valgrind(&program) {
        succeed(valgrind.current_dir(folder.path()));
    }
}

/// With a bad setting, no file is opened with another setting instead.
#[test]
fn settings_that_are_not_understood() {
    let program = build("crates/famio-capi/tests/programs/setting.c", Linked::Shared);
    let folder = Folder::new("errors-setting");
    let said = succeed(command(&program).current_dir(folder.path()).env("FAMIO_DURABILITY", "maybe"));
    assert!(said.contains("FAMIO_DURABILITY=maybe is not understood"), "{said}");
    assert!(folder.names().is_empty());
}

/// With libraries of two versions in one program, no call may go to the wrong one.
#[test]
fn an_interposer_of_another_version_is_refused() {
    let program = build("crates/famio-capi/tests/programs/setting.c", Linked::Shared);
    let folder = Folder::new("errors-version");
    let source = common::libraries().join("other.c");
    std::fs::write(
        &source,
        "static const long table[64] = {999};\nconst void *famio_nv_table(void) { return table; }\n",
    )
    .unwrap();
    let other = common::libraries().join("other.so");
    succeed(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&other).arg(&source));
    let said = succeed(command(&program).current_dir(folder.path()).env("LD_PRELOAD", &other).env("WANTED", "ENOSYS"));
    assert!(said.contains("of different versions"), "{said}");
}

/// Runs scenarios of `failing.c`, one after the other, in a temporary folder; returns what is left there.
fn scenarios(name: &str, folder: &Folder, scenarios: &[&str]) -> Vec<String> {
    let program = build("crates/famio-capi/tests/programs/failing.c", Linked::Shared);
    for scenario in scenarios {
        eprintln!("{name}: {scenario}");
        // The failures concern journals.
        succeed(command(&program).arg(scenario).current_dir(folder.path()).env("FAMIO_JOURNAL", "always"));
    }
    folder.names()
}

/// A disk that does not flush any more: SYNC and close report it, with the file's name, and the file is intact.
#[test]
fn of_a_bad_disk() {
    for fails in ["sync_fails", "close_fails"] {
        let folder = Folder::on_disk(&format!("errors-{fails}"));
        assert_eq!(scenarios(fails, &folder, &[fails, "is_whole"]), ["file"]);
    }
    let folder = Folder::on_disk("errors-vnvml");
    assert_eq!(scenarios("vnvml", &folder, &["vnvml_sync_fails", "vnvml_is_whole"]), ["one", "two"]);
}

#[test]
fn of_a_quota() {
    for folder in [Folder::on_disk("errors-quota"), Folder::new("errors-quota")] {
        scenarios("quota", &folder, &["over_quota", "vnvml_over_quota"]);
    }
}

/// `RLIMIT_FSIZE` set before the library started, also if nothing tells the library about changes.
#[test]
fn of_a_limit() {
    for folder in [Folder::on_disk("errors-limit"), Folder::new("errors-limit")] {
        assert_eq!(scenarios("limit", &folder, &["limited"]), ["file"]);
    }
}

#[test]
fn of_memory_that_can_not_be_had() {
    for folder in [Folder::on_disk("errors-memory"), Folder::new("errors-memory")] {
        scenarios("memory", &folder, &["no_memory"]);
    }
}

/// A signal during a SYNC, which holds the file's locks.
#[test]
fn of_a_signal_handler() {
    scenarios("handler", &Folder::on_disk("errors-handler"), &["in_a_handler"]);
}

/// Deleting the file while it is open is no error, and leaves nothing.
#[test]
fn of_a_file_that_is_deleted() {
    for folder in [Folder::on_disk("errors-deleted"), Folder::new("errors-deleted")] {
        assert!(scenarios("deleted", &folder, &["deleted"]).is_empty());
    }
}

#[test]
fn of_another_user() {
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: it takes root to become another user");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("errors-user");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(scenarios("user", &folder, &["forbidden"]), ["file"]);
}

/// On file systems of 16 MiB, of both kinds.
#[test]
fn of_a_full_file_system() {
    let folder = Folder::on_disk("errors-full");
    for kind in ["tmpfs", "ext4"] {
        let Some(mounted) = Mounted::new(folder.path(), kind) else { return };
        let program = build("crates/famio-capi/tests/programs/failing.c", Linked::Shared);
        succeed(command(&program).arg("full").current_dir(&mounted.0).env("FAMIO_JOURNAL", "always"));
    }
}
