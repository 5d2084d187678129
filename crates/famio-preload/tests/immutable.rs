//! A file that becomes immutable (`chattr +i`) while it has a journal. No process, not even root's, may copy
//! committed data to it. On a plain file that data would be there already, so it must be readable all the same.

mod common;

use common::{Folder, build, succeed, under};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const OLD: usize = 20_000;
const SIZE: usize = 15_000;

struct Bench {
    folder: Folder,
    program: PathBuf,
    domain: &'static str,
}

fn chattr(how: &str, path: &Path) -> bool {
    let done = Command::new("chattr").arg(how).arg(path).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

impl Bench {
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = under(&self.folder, program);
        if self.domain == "emulated" {
            command.envs([("FAMIO_DOMAIN", "emulated"), ("FAMIO_DURABILITY", "process")]);
        }
        command
    }

    fn does(&self, what: &str) -> Command {
        let mut command = self.command(&self.program);
        command.args(["atomic", what]);
        command
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("atomic")
    }

    fn committed() -> Vec<u8> {
        (0..SIZE).map(|at| if (5000..9100).contains(&at) { b'B' } else { b'a' }).collect()
    }

    /// A process that was killed has left it, and it cannot be written any more.
    fn killed(&self) {
        let done = self.does("die").output().unwrap();
        assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(chattr("+i", &self.file()));
    }

    /// Makes the file writable again: the next process that opens it recovers it.
    fn is_recovered(&self) {
        assert!(chattr("-i", &self.file()));
        succeed(self.command("cat").arg("atomic"));
        assert!(fs::read(self.file()).unwrap() == Self::committed());
        assert_eq!(self.folder.names(), ["atomic"]);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        chattr("-i", &self.file());
        let _ = fs::remove_file(&self.program);
    }
}

/// On a disk with a journal of records and one in place, and in memory.
fn everywhere(name: &str, test: impl Fn(&Bench)) {
    for (on_disk, domain) in [(true, ""), (true, "emulated"), (false, "emulated"), (false, "")] {
        let folder = if on_disk { Folder::on_disk(name) } else { Folder::new(name) };
        let bench = Bench { folder, program: build("immutable"), domain };
        fs::write(bench.file(), [b'a'; OLD]).unwrap();
        if !(chattr("+i", &bench.file()) && chattr("-i", &bench.file())) {
            eprintln!("NOT TESTED, {domain}: it takes root, chattr and a file system that has it");
            continue;
        }
        test(&bench);
    }
}

/// It could not be opened at all.
#[test]
fn what_a_killed_process_has_committed_can_be_read() {
    everywhere("immutable-killed", |bench| {
        bench.killed();
        let (_, said) = succeed(&mut bench.does("read"));
        assert_eq!(said.matches("chattr -i").count(), 1, "{said}");
        let output = bench.command("cat").arg("atomic").output().unwrap();
        assert!(output.status.success() && output.stdout == Bench::committed());
        bench.is_recovered();
    });
}

/// The same in the process whose `close` had failed.
#[test]
fn what_could_not_be_closed_can_be_read() {
    everywhere("immutable-closed", |bench| {
        let (_, said) = succeed(&mut bench.does("close"));
        assert!(said.contains("chattr -i") || bench.folder.path().starts_with("/dev/shm"), "{said}");
        bench.is_recovered();
    });
}

#[test]
fn who_reads_it_sees_what_is_written_when_it_may_be() {
    everywhere("immutable-read-on", |bench| {
        bench.killed();
        succeed(&mut bench.does("read on"));
        let mut expected = Bench::committed();
        expected[5000] = b'C';
        assert!(fs::read(bench.file()).unwrap() == expected);
        assert_eq!(bench.folder.names(), ["atomic"]);
    });
}
