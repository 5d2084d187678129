//! Containers by `unshare` and `nsenter` (util-linux): each has its own mount, PID and IPC namespaces and its own
//! `/dev/shm`. All are inside a mount namespace of this program, with one tmpfs for the pool.

use super::kernel;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const CONTAINER: [&str; 6] = ["--mount", "--pid", "--ipc", "--fork", "--mount-proc", "--"];
/// As large as Docker makes it. It ends with the input, which ends with this program.
const FIRST: &str = "mount -t tmpfs -o size=64m,mode=1777 shm /dev/shm && echo ready && exec cat";

/// Set in this program once it is in its own mount namespace.
const INSIDE: &str = "FAMIO_KILL_INSIDE";

/// A command in a mount namespace, and, unless it is root's, in a user namespace.
fn outside() -> Command {
    let mut command = Command::new("unshare");
    if !kernel::is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--"]);
    command
}

/// Why there are no containers here.
pub fn missing() -> Option<String> {
    let mut command = outside();
    command.arg("unshare").args(CONTAINER).args(["sh", "-c", FIRST]).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// Starts this program again in a mount namespace of its own, unless it is there.
pub fn enter() -> Result<(), String> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let error = outside().arg(me).args(std::env::args_os().skip(1)).env(INSIDE, "1").exec();
    Err(format!("unshare: {error}"))
}

/// A tmpfs in a folder, in this program's mount namespace and the containers'.
pub struct Memory(PathBuf);

impl Memory {
    /// Mounts it; the size is in bytes.
    pub fn mount(folder: PathBuf, size: u64) -> Result<Self, String> {
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let options = format!("size={size},mode=0755");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "famio-kill"]).arg(&folder))?;
        Ok(Self(folder))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A container, until it is dropped.
pub struct Container {
    holder: Child,
    first: i32,
}

impl Container {
    /// Starts one.
    pub fn start() -> Result<Self, String> {
        let mut command = Command::new("unshare");
        command.args(CONTAINER).args(["sh", "-c", FIRST]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let output = holder.stdout.take().ok_or("no pipe")?;
        BufReader::new(output).read_line(&mut line).map_err(|error| format!("container: {error}"))?;
        let first = kernel::children(holder.id() as i32);
        match first[..] {
            [first] if line == "ready\n" => Ok(Self { holder, first }),
            _ => Err("the container did not start".into()),
        }
    }

    /// A command that runs a program in it. Its child is the program.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string(), "--mount", "--pid", "--ipc", "--"]).arg(program);
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().replace('\n', "; ");
    Err(format!("{name} ({}): {text}", output.status))
}
