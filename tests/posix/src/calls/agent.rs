//! A worker, as its coordinator sees it.

use super::worker::LINE;
use crate::setup::Setup;
use famio_test_support::launch::literal;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Nothing here takes longer (in seconds), unless it hangs. Waits for ownership take up to a minute.
const LONGEST: i32 = 100;

/// A worker process.
pub struct Agent {
    child: Child,
    told: Option<ChildStdin>,
    says: ChildStdout,
    messages: File,
}

/// The answer to a command.
pub enum Said {
    /// Done.
    Ok,
    /// The difference found.
    Differs(String),
    /// The worker was killed meanwhile.
    Killed,
}

impl Agent {
    /// Starts a worker under Famio; files in the folder whose names begin with `atomic` are atomic.
    pub fn start(setup: &Setup, folder: &Path, seed: u64, options: &[&str]) -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
        let mut glob: OsString = literal(folder);
        glob.push("/atomic*");
        let mut command = setup.famio()?.run(&[glob]);
        command.arg(me).args(["worker", "--seed", &seed.to_string()]).args(options).arg(folder);
        let mut messages = famio_test_support::place::memory().to_path_buf();
        messages.push(format!("famio-posix-messages-{}", std::process::id()));
        let failed = |error| format!("{}: {error}", messages.display());
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&messages).map_err(failed)?;
        std::fs::remove_file(&messages).map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file.try_clone().map_err(failed)?);
        // SAFETY: one system call, which is allowed after a fork.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command.spawn().map_err(|error| format!("famio: {error}"))?;
        let (told, says) = (child.stdin.take(), child.stdout.take().ok_or("no pipe")?);
        Ok(Self { child, told, says, messages: file })
    }

    /// Sends a command, and waits for the answer.
    pub fn tell(&mut self, what: &str) -> Said {
        let told = self.told.as_mut().is_some_and(|told| writeln!(told, "{what}").is_ok());
        let line = if told { self.line() } else { Some(String::new()) };
        match line.as_deref() {
            Some("ok\n") => Said::Ok,
            Some("") => self.why_it_ended(what),
            Some(line) => Said::Differs(line.trim_end().replace(LINE, "\n") + &self.messages()),
            None => {
                let _ = self.child.kill();
                Said::Differs(format!("hung: no answer to {what:?} in {LONGEST} s{}", self.messages()))
            }
        }
    }

    /// As [`Self::tell`], if the worker must not be killed.
    pub fn ask(&mut self, what: &str) -> Result<(), String> {
        match self.tell(what) {
            Said::Ok => Ok(()),
            Said::Differs(why) => Err(why),
            Said::Killed => Err(format!("killed by itself in {what:?}{}", self.messages())),
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        while !bytes.ends_with(b"\n") {
            let mut poll = libc::pollfd { fd: self.says.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one structure, which is alive.
            if unsafe { libc::poll(&mut poll, 1, LONGEST * 1000) } == 0 {
                return None;
            }
            match self.says.read(&mut buffer) {
                Ok(n) if n > 0 => bytes.extend_from_slice(&buffer[..n]),
                _ => break,
            }
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn why_it_ended(&mut self, what: &str) -> Said {
        let status = self.child.wait();
        match status.map(|status| (status, status.signal())) {
            Ok((_, Some(libc::SIGKILL))) => Said::Killed,
            Ok((status, _)) => {
                let what: String = what.chars().take(200).collect();
                Said::Differs(format!("ended in {what:?}: {status}{}", self.messages()))
            }
            Err(error) => Said::Differs(format!("wait: {error}")),
        }
    }

    /// The stderr of the worker and of Famio in it.
    fn messages(&mut self) -> String {
        let mut text = String::new();
        let _ = self.messages.rewind();
        let _ = self.messages.read_to_string(&mut text);
        if text.is_empty() { text } else { format!("\n  stderr: {}", text.trim_end()) }
    }

    /// Makes it exit.
    pub fn end(mut self) -> Result<(), String> {
        drop(self.told.take());
        let rest = self.line();
        if rest.is_none() {
            return Err(format!("hung at its end{}", self.messages()));
        }
        let status = self.child.wait().map_err(|error| format!("wait: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("at its end: {status}{}", self.messages())) }
    }

    /// Kills it.
    pub fn kill(mut self) -> Result<(), String> {
        self.child.kill().map_err(|error| format!("kill: {error}"))?;
        self.child.wait().map(|_| ()).map_err(|error| format!("wait: {error}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
