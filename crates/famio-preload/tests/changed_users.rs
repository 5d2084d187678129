//! Programs that change their user or root, or a file's owner, while they have the file open: `famio-hostile` found
//! what broke.

mod common;

use common::{Folder, build, succeed, under};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

struct Bench {
    folder: Folder,
    program: PathBuf,
}

impl Bench {
    /// A file of root's, in a folder of root's with that mode. `None`: needs root, to become other users.
    fn new(name: &str, disk: bool, mode: u32) -> Option<Self> {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("NOT TESTED: {name} takes root, to become another user");
            return None;
        }
        let folder = if disk { Folder::on_disk(name) } else { Folder::new(name) };
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
        Some(Self { folder, program: build("changed_users") })
    }

    fn run(&self, what: &str) -> String {
        succeed(under(&self.folder, &self.program).args(["atomic", what])).1
    }

    /// Runs it until it kills itself. Returns what was said.
    fn run_until_killed(&self, what: &str) -> String {
        let done = under(&self.folder, &self.program).args(["atomic", what]).output().unwrap();
        assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    }

    fn ends_with(&self, text: &str) {
        assert_eq!(String::from_utf8_lossy(&self.folder.read("atomic")), text);
        assert_eq!(self.folder.names(), ["atomic"]);
    }

    /// As [`ends_with`](Self::ends_with), once another process has opened the file, and removed what the program could
    /// not remove.
    fn ends_after_a_look_with(&self, text: &str) {
        assert_eq!(String::from_utf8_lossy(&self.folder.read("atomic")), text);
        assert_eq!(succeed(under(&self.folder, "cat").arg("atomic")), (text.into(), String::new()));
        self.ends_with(text);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}

/// Journal and mark used to stay when the program was root again, and at its end.
#[test]
fn a_file_demoted_as_another_user_is_tidied_up_when_the_program_comes_back() {
    for (what, mode) in
        [("demoted as another, 0644", 0o755), ("demoted as another, 0644", 0o777), ("demoted as another", 0o755)]
    {
        for disk in [false, true] {
            let Some(bench) = Bench::new("users-demoted", disk, mode) else { return };
            bench.run(what);
            bench.ends_with("Program");
        }
    }
}

/// Its journal used to stay, and was in the way of the next session: the file was demoted.
#[test]
fn a_file_checkpointed_as_another_user_is_protected_when_the_program_comes_back() {
    for disk in [false, true] {
        let Some(bench) = Bench::new("users-renamed", disk, 0o777) else { return };
        assert_eq!(bench.run_until_killed("renamed as another"), "");
        assert_eq!(succeed(under(&bench.folder, "cat").arg("atomic")).0, "Program");
        bench.ends_with("Program");
    }
}

/// It failed with `ENOENT`: that the mark's journal had ended could not be looked up.
#[test]
fn a_file_checkpointed_in_another_root_can_become_a_standard_stream() {
    for disk in [false, true] {
        let Some(bench) = Bench::new("users-root", disk, 0o777) else { return };
        bench.run("renamed in another root");
        bench.ends_after_a_look_with("Program");
    }
}

/// It failed with `EBUSY`: the control file that stayed beside memory of root's was taken for another process.
#[test]
fn a_file_passed_by_exec_as_another_user_can_become_a_standard_stream() {
    for disk in [false, true] {
        let Some(bench) = Bench::new("users-exec", disk, 0o777) else { return };
        bench.run("exec as another");
        bench.ends_after_a_look_with("program!");
    }
}

/// The child's calls failed with `EBUSY`: it did not trust its parent's journal, which was still the former owner's.
#[test]
fn a_journal_follows_the_owner_that_a_child_gives_the_file() {
    for disk in [false, true] {
        let Some(bench) = Bench::new("users-child", disk, 0o777) else { return };
        assert_eq!(bench.run("a child takes the file back"), "");
        bench.ends_with("Program");
    }
}

/// It failed with `EFBIG`.
#[test]
fn an_open_under_a_low_limit_waits_for_a_session_that_ends() {
    for disk in [false, true] {
        let Some(bench) = Bench::new("users-limit", disk, 0o755) else { return };
        bench.run("a low limit while others end");
        bench.ends_with("program");
    }
}

/// Recovery raised `SIGXFSZ`, which ended the program.
#[test]
fn a_file_longer_than_the_limit_is_not_recovered_and_the_program_goes_on() {
    for disk in [false, true] {
        let Some(bench) = Bench::new("users-large", disk, 0o755) else { return };
        bench.run_until_killed("killed with a large file");
        let said = bench.run("opened under a low limit");
        assert!(said.contains("not recovered under this limit (ulimit -f), both are kept"), "{said}");
        assert_eq!(bench.folder.names(), ["atomic"]);
    }
}
