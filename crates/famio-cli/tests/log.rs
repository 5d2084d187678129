//! Where the library's messages go.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

/// `None`: the library is not built.
fn run(folder: &Path, options: &[&str], script: &str) -> Option<Output> {
    let library = common::built("libfamio_preload.so")?;
    let mut command = common::famio();
    command.args(["run", "--no-config", "--atomic", "a.db"]).args(options).args(["--", "python3", "-c", script]);
    Some(command.current_dir(folder).env("FAMIO_PRELOAD", library).output().unwrap())
}

const NOTHING: &str = "import sys; print('its own', file=sys.stderr)";
/// Killed after a SYNC; then another process opens the file.
const RECOVERED: &str = "
import os, signal
if os.fork() == 0:
    a = os.open('a.db', os.O_RDWR | os.O_CREAT)
    os.write(a, b'x')
    os.fsync(a)
    os.write(a, b'y')
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
os.open('a.db', os.O_RDWR)";

#[test]
fn a_file_takes_what_stderr_would() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let log = folder.path().join("famio.log");
    for runs in 1..=2 {
        let Some(output) = run(folder.path(), &["--log", "famio.log"], NOTHING) else { return };
        assert_eq!(String::from_utf8_lossy(&output.stderr), "its own\n");
        let text = std::fs::read_to_string(&log).unwrap();
        assert_eq!(text.matches("--atomic a.db selected no file").count(), runs, "{text}");
        assert!(text.lines().all(|line| line.starts_with("20") && line.contains("Z famio[")), "{text}");
    }
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn levels_leave_out_what_matters_less() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(output) = run(folder.path(), &["--quiet"], NOTHING) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stderr), "its own\n");
    let output = run(folder.path(), &["--log-level", "info"], RECOVERED).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a.db: recovered to its last SYNC\n"), "{said}");
    let output = run(folder.path(), &["--journal", "always", "--log-level", "info"], RECOVERED).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a.db: recovered to its last SYNC, epoch "), "{said}");
    let output = run(folder.path(), &[], RECOVERED).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// No setting weakens durability without a message on stderr: one, though each process opens a file, unless a process
/// has another stderr.
#[test]
fn what_weakens_durability_is_on_stderr_in_any_case() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = ["--durability", "process", "--log", "famio.log", "--log-level", "off"];
    let Some(output) = run(folder.path(), &options, RECOVERED) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("durability process").count(), 1, "{said}");
    let elsewhere = "import os; null = os.open('/dev/null', os.O_WRONLY)
def opens(error):
    if os.fork() == 0:
        os.dup2(error, 2)
        os.close(os.open('a.db', os.O_RDWR | os.O_CREAT))
        os._exit(0)
    os.wait()
opens(null); opens(2); opens(2)";
    let output = run(folder.path(), &options, elsewhere).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("durability process").count(), 1, "{said}");
}

#[test]
fn a_log_that_can_not_be_written_is_refused_and_one_that_goes_falls_back() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(output) = run(folder.path(), &["--log", "none/famio.log"], NOTHING) else { return };
    assert_eq!(output.status.code(), Some(125));
    std::fs::create_dir(folder.path().join("logs")).unwrap();
    let output = run(folder.path(), &["--log", "logs/famio.log"], "import os; os.rmdir('logs')").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("selected no file"), "{said}");
}
