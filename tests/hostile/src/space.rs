//! New namespaces: with another `/dev/shm` and a separate process tree, so that nothing outside is touched, and
//! everything ends with this program.

use crate::options::Options;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const PREFIX: &str = "famio-hostile-";

/// Runs this command again, inside.
pub fn go_in() -> Result<bool, String> {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("famio-hostile: SKIPPED: needs root");
        return Ok(true);
    }
    const WAYS: [&str; 6] = ["--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let may = Command::new("unshare").args(WAYS).arg("true").output();
    if !may.as_ref().is_ok_and(|output| output.status.success()) {
        println!("famio-hostile: SKIPPED: needs unshare with mount and process namespaces");
        return Ok(true);
    }
    sweep();
    let base = PathBuf::from(format!("/tmp/{PREFIX}{}", std::process::id()));
    std::fs::create_dir(&base).map_err(|error| format!("{}: {error}", base.display()))?;
    let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let mut command = Command::new("unshare");
    command.args(WAYS).arg("--").arg(me).arg("inside").arg("--base").arg(&base).args(std::env::args_os().skip(1));
    // SAFETY: one system call, which is allowed after a fork.
    unsafe {
        command.pre_exec(|| {
            libc::setpgid(0, 0);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let signals = famio_test_support::place::block_interrupts();
    let status = command.spawn().and_then(|mut child| {
        let id = child.id() as i32;
        // SIGKILL to unshare ends process 1 of the namespace, and so all processes in it.
        std::thread::spawn(move || {
            let mut signal = 0;
            // SAFETY: both are valid; the process is ours, and not reaped before the program ends.
            unsafe {
                libc::sigwait(&signals, &mut signal);
                libc::kill(id, libc::SIGKILL);
            }
        });
        child.wait()
    });
    remove(&base);
    let status = status.map_err(|error| format!("unshare: {error}"))?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(true),
        (Some(1), _) => Ok(false),
        (_, Some(signal)) => Err(format!("interrupted (signal {signal})")),
        _ => Err("it could not be found out".into()),
    }
}

/// Removes what killed runs have left.
fn sweep() {
    for entry in std::fs::read_dir("/tmp").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|id| id.parse::<u32>().ok())
        else {
            continue;
        };
        if !Path::new(&format!("/proc/{id}")).exists() {
            remove(&entry.path());
        }
    }
}

/// `rm` handles trees deeper than the longest path, and follows no links.
fn remove(folder: &Path) {
    let _ = Command::new("rm").args(["-rf", "--one-file-system", "--"]).arg(folder).status();
}

/// The folders of a run.
pub struct Space {
    /// A folder that no other process uses.
    pub base: PathBuf,
    /// The folder for evidence.
    pub keep: PathBuf,
    /// Programs run without Famio: any finding is a defect of this test, or what Famio prevents.
    pub plain: bool,
}

impl Space {
    /// Sets it up, once inside.
    pub fn new(base: PathBuf, options: &Options) -> Result<Self, String> {
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        let outside = base.file_name().and_then(|name| name.to_str()).unwrap_or_default().trim_start_matches(PREFIX);
        let keep = options.keep.clone().unwrap_or_else(|| format!("/tmp/{PREFIX}evidence-{outside}").into());
        let space = Self { base, keep, plain: options.without_famio };
        mode(&space.base, 0o755)?;
        for part in ["bin", "disk", "memory"] {
            let path = space.base.join(part);
            std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            mode(&path, 0o755)?;
        }
        tmpfs(&space.base.join("memory"), c"mode=755")?;
        tmpfs(Path::new("/dev/shm"), c"mode=1777")?;
        let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
        for name in ["famio", "libfamio_preload.so", "famio-hostile"] {
            let other = options.famio.as_ref().filter(|_| name != "famio-hostile").map(|folder| folder.join(name));
            let from = other.unwrap_or_else(|| me.with_file_name(name));
            let to = space.binary(name);
            std::fs::copy(&from, &to).map_err(|error| format!("{}: {error}; run 'make' first", from.display()))?;
            mode(&to, 0o755)?;
        }
        Ok(space)
    }

    /// A program, in a place where every user can run it.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.base.join("bin").join(name)
    }

    /// `famio run` with these globs and options; the program must be added.
    pub fn famio_run(&self, globs: &[&str], options: &[&str]) -> Command {
        if self.plain {
            return Command::new("env");
        }
        let mut command = Command::new(self.binary("famio"));
        command.arg("run");
        for glob in globs {
            command.arg("--atomic").arg(glob);
        }
        command.args(options).arg("--");
        command
    }

    /// An empty folder for a case, on one of the two file systems.
    pub fn fresh(&self, on: &str, name: &str) -> Result<PathBuf, String> {
        let path = self.base.join(if on == "tmpfs" { "memory" } else { "disk" }).join(name);
        remove(&path);
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Keeps a folder as evidence, and the contents of `/dev/shm`.
    pub fn keep(&self, name: &str, folder: &Path) -> PathBuf {
        let to = self.keep.join(name);
        let _ = std::fs::create_dir_all(&to);
        let _ = Command::new("cp").args(["-a", "--sparse=always", "--"]).arg(folder).arg("/dev/shm").arg(&to).output();
        to
    }

    /// Empties `/dev/shm`; returns what was there.
    pub fn empty_shm(&self) -> Vec<String> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            names.push(entry.file_name().to_string_lossy().into_owned());
            remove(&entry.path());
        }
        names.sort();
        names
    }
}

fn tmpfs(at: &Path, options: &CStr) -> Result<(), String> {
    let path = CString::new(at.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: all strings are valid and end with a zero.
    let done = unsafe { libc::mount(c"tmpfs".as_ptr(), path.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast()) };
    if done == 0 { Ok(()) } else { Err(format!("mount {}: {}", at.display(), std::io::Error::last_os_error())) }
}
