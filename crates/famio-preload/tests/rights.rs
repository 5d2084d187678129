//! Rights that are missing: what can be protected is, the rest is said and left to the kernel before the first write.

mod common;

use common::{Folder, build, succeed, under};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

const NOBODY: u32 = 65534;
const LEFT: &str = "handed back to the kernel because it can't be protected";

struct Bench {
    folder: Folder,
    program: PathBuf,
}

impl Bench {
    /// `None`: this takes root, to become others.
    fn new(name: &str) -> Option<Self> {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("NOT TESTED: {name} takes root, to become another user");
            return None;
        }
        Some(Self { folder: Folder::new(name), program: build("rights") })
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.folder.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    /// A file of root's that everybody may write, in a folder of root's.
    fn file(&self, text: &str) {
        std::fs::write(self.folder.path().join("atomic"), text).unwrap();
        self.mode("atomic", 0o666);
    }

    fn command(&self, what: &str) -> Command {
        let mut command = under(&self.folder, &self.program);
        command.args(["atomic", what]);
        command
    }

    fn killed(&self, command: &mut Command) {
        let done = command.output().unwrap();
        assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}

/// Was `EACCES` at the first write.
#[test]
fn a_file_made_read_only_is_protected() {
    let Some(bench) = Bench::new("rights-read-only") else { return };
    bench.mode(".", 0o777);
    bench.killed(&mut bench.command("kill a read-only one"));
    assert_eq!(bench.folder.names(), [".famio", "atomic"]);
    let (_, said) = succeed(&mut bench.command("read"));
    assert_eq!(said, "");
    assert_eq!(bench.folder.names(), ["atomic"]);
    assert_eq!(bench.folder.read("atomic"), b"committed");
    let mode = std::fs::metadata(bench.folder.path().join("atomic")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o444);
}

/// Was `EACCES`.
#[test]
fn whose_folder_is_anothers_writes_through_the_kernel() {
    let Some(bench) = Bench::new("rights-folder") else { return };
    bench.file("as it was");
    let (_, said) = succeed(bench.command("be refused").env("FAMIO_REQUIRE", "1"));
    assert!(said.contains(".famio") && !said.contains(LEFT), "{said}");
    let (_, said) = succeed(&mut bench.command("write"));
    assert_eq!(said.matches(LEFT).count(), 1, "{said}");
    assert!(said.contains("/atomic: ") && said.contains(".famio"), "{said}");
    assert_eq!(bench.folder.names(), ["atomic"]);
}

#[test]
fn whose_folder_is_anothers_is_protected_by_a_pool() {
    let Some(bench) = Bench::new("rights-pool") else { return };
    bench.file("as it was");
    let pool = bench.folder.path().join("pool");
    std::fs::create_dir(&pool).unwrap();
    chown(&pool, Some(NOBODY), Some(NOBODY)).unwrap();
    bench.killed(bench.command("kill").env("FAMIO_POOL", &pool));
    let (_, said) = succeed(bench.command("read").env("FAMIO_POOL", &pool));
    assert_eq!(said, "");
    assert_eq!(bench.folder.read("atomic"), b"committed");
    assert_eq!(std::fs::read_dir(&pool).unwrap().count(), 0);
}

/// Was `ENOENT` at `open`.
#[test]
fn a_root_without_proc_and_dev() {
    let Some(bench) = Bench::new("rights-chroot") else { return };
    let (_, said) = succeed(&mut bench.command("chroot"));
    assert_eq!(said.matches(LEFT).count(), 1, "{said}");
    assert_eq!(bench.folder.read("jail/atomic"), b"in jail");
}

/// The second was `EBUSY`.
#[test]
fn workers_that_gave_up_root_write_through_the_kernel() {
    let Some(bench) = Bench::new("rights-workers") else { return };
    bench.file("................");
    let (_, said) = succeed(&mut bench.command("workers"));
    assert_eq!(said.matches(LEFT).count(), 2, "{said}");
    assert_eq!(bench.folder.names(), ["atomic"]);
}

/// Nothing is lost, and what to do is said.
#[test]
fn a_file_made_immutable_by_another() {
    let Some(mut bench) = Bench::new("rights-immutable") else { return };
    bench.folder = Folder::on_disk("rights-immutable");
    if !std::path::Path::new("/usr/bin/chattr").exists() {
        eprintln!("NOT TESTED: there is no chattr");
        return;
    }
    let (_, said) = succeed(&mut bench.command("immutable"));
    assert_eq!(said.matches("chattr -i").count(), 2, "{said}");
    assert_eq!(bench.folder.names(), ["atomic"]);
}
