//! One life of the program: started under Famio in its own process group, killed with everything that it started.

use super::moment::Moment;
use crate::failure::{FAILED, Failure};
use crate::interrupt::{Interrupts, Woken};
use crate::run::Protect;
use crate::settings::{ConfigChoice, Layer};
use rustix::process::{self, Pid, PidfdFlags, Signal, WaitOptions};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How much of a program's messages is shown.
const SHOWN: usize = 4096;

/// How a life ended.
pub enum Ended {
    /// It was killed here.
    Killed,
    /// It ended by itself, after this time.
    Itself(ExitStatus, Duration),
}

/// What is run, and where its output goes.
pub struct Program<'a> {
    command: &'a [OsString],
    config: ConfigChoice<'a>,
    variables: Vec<(&'static str, OsString)>,
    me: PathBuf,
    folder: PathBuf,
}

impl<'a> Program<'a> {
    /// Output goes to files in `folder`.
    pub fn new(command: &'a [OsString], protect: &'a Protect, layer: &Layer, folder: &Path) -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
        // Orphans of the program become children of this process, so that it can kill them and wait for them.
        process::set_child_subreaper(Some(process::getpid())).map_err(|error| format!("subreaper: {error}"))?;
        let config = protect.options.config();
        Ok(Self { command, config, variables: layer.variables(), me, folder: folder.to_path_buf() })
    }

    /// The file with the output of its last life.
    pub fn output(&self) -> PathBuf {
        self.folder.join("program.stdout")
    }

    /// The end of what the program and Famio wrote to stderr in its last life.
    pub fn messages(&self) -> String {
        let bytes = std::fs::read(self.folder.join("program.stderr")).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN)..]).into_owned()
    }

    /// Starts it, and kills it at that moment if it still runs. On return, none of its processes exists.
    pub fn run(&self, moment: Moment, interrupts: &Interrupts) -> Result<Ended, Failure> {
        let failed = |error: String| Failure::new(FAILED, error);
        let mut command = Command::new(&self.me);
        command.arg("run");
        command.args(self.config.options());
        command.arg("--").args(self.command).process_group(0);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // A killed program prints no report at its end, so it needs no record.
        command.env(famio::posix::run_record::VARIABLE, crate::run::record::NONE);
        command.stdin(input()).stdout(self.file("program.stdout")?).stderr(self.file("program.stderr")?);
        die_with_us(&mut command);
        let started = Instant::now();
        let child = command.spawn().map_err(|error| failed(format!("{}: {error}", self.me.display())))?;
        let pid = Pid::from_child(&child);
        let outcome = self.wait(pid, started, moment, interrupts);
        let status = end_all(pid).map_err(failed);
        match outcome? {
            // It may have ended between the last check and the kill.
            None if status.as_ref().is_ok_and(|status| status.signal() != Some(libc::SIGKILL)) => {
                Ok(Ended::Itself(status?, started.elapsed()))
            }
            None => status.map(|_| Ended::Killed),
            Some(after) => Ok(Ended::Itself(status?, after)),
        }
    }

    /// Waits until it has ended by itself, or must be killed now.
    fn wait(
        &self,
        pid: Pid,
        started: Instant,
        moment: Moment,
        interrupts: &Interrupts,
    ) -> Result<Option<Duration>, Failure> {
        let failed = |error: String| Failure::new(FAILED, error);
        let handle: OwnedFd =
            process::pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(format!("pidfd_open: {error}")))?;
        let interrupted = |signal| Failure::new(128 + signal, "interrupted");
        match interrupts.wait(&handle, Some(moment.after.saturating_sub(started.elapsed()))).map_err(failed)? {
            Woken::Ready => return Ok(Some(started.elapsed())),
            Woken::Signal(signal) => return Err(interrupted(signal)),
            Woken::Time => {}
        }
        if let Some(stopped) = moment.stopped {
            let _ = process::kill_process_group(pid, Signal::STOP); // it may have ended by now
            if let Woken::Signal(signal) = interrupts.wait(&handle, Some(stopped)).map_err(failed)? {
                return Err(interrupted(signal));
            }
        }
        Ok(None)
    }

    fn file(&self, name: &str) -> Result<File, Failure> {
        let path = self.folder.join(name);
        File::create(&path).map_err(|error| Failure::new(FAILED, format!("{}: {error}", path.display())))
    }
}

/// Kills the group, and all processes that left it, and waits until all are gone. Returns the leader's status.
fn end_all(leader: Pid) -> Result<ExitStatus, String> {
    let _ = process::kill_process_group(leader, Signal::KILL); // all of it may have ended by now
    let mut status = None;
    loop {
        match process::wait(WaitOptions::empty()) {
            Ok(Some((pid, ended))) if pid == leader => status = Some(ExitStatus::from_raw(ended.as_raw())),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => break,
            Err(error) => return Err(format!("wait: {error}")),
        }
        // Processes of other groups whose parents are gone. They are children of this process, so their ids cannot be
        // reused.
        for pid in children() {
            let _ = process::kill_process(pid, Signal::KILL); // it may have ended by now
        }
    }
    status.ok_or_else(|| "the program's end was not seen".into())
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let me = std::process::id();
    let text = std::fs::read_to_string(format!("/proc/self/task/{me}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

/// Each start reads a file from its beginning; a terminal or a pipe cannot be reread.
fn input() -> Stdio {
    let is_file = std::fs::metadata("/proc/self/fd/0").is_ok_and(|found| found.is_file());
    match is_file.then(|| File::open(OsStr::new("/proc/self/fd/0"))) {
        Some(Ok(file)) => file.into(),
        _ => Stdio::null(),
    }
}

/// If this command is killed, the program must not go on.
fn die_with_us(command: &mut Command) {
    let parent = process::getpid();
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // Too late if the parent is gone already.
            if process::getppid() != Some(parent) {
                return Err(std::io::Error::other("famio torture is gone"));
            }
            Ok(())
        })
    };
}
