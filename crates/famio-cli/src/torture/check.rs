//! The user's checker: a shell command, without Famio.

use crate::failure::{FAILED, Failure};
use crate::interrupt::{Interrupts, Woken};
use rustix::process::{self, Pid, PidfdFlags, Signal};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// How much of its output is shown; all of it is kept.
const SHOWN: usize = 8192;

/// Runs it. Returns its status and output if it reports a problem.
pub fn run(
    check: &OsStr,
    output: &Path,
    folder: &Path,
    kills: u64,
    interrupts: &Interrupts,
) -> Result<Option<(ExitStatus, String)>, Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Failure::new(FAILED, format!("{what}: {error}"));
    let path = folder.join("check.output");
    let file = File::create(&path).map_err(|error| failed(&path.display().to_string(), &error))?;
    let errors = file.try_clone().map_err(|error| failed(&path.display().to_string(), &error))?;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(check).stdin(Stdio::null()).stdout(file).stderr(errors).process_group(0);
    command.env("FAMIO_TORTURE_OUTPUT", output).env("FAMIO_TORTURE_KILLS", kills.to_string());
    let mut child = command.spawn().map_err(|error| failed("/bin/sh", &error))?;
    let pid = Pid::from_child(&child);
    let handle = process::pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed("pidfd_open", &error))?;
    let woken = interrupts.wait(&handle, None).map_err(|error| failed("the check", &error))?;
    if let Woken::Signal(signal) = woken {
        let _ = process::kill_process_group(pid, Signal::KILL); // it may have ended by now
        let _ = child.wait(); // the command ends with the interruption, whatever the check's status
        return Err(Failure::new(128 + signal, "interrupted"));
    }
    let status = child.wait().map_err(|error| failed("wait", &error))?;
    if status.success() {
        return Ok(None);
    }
    let bytes = std::fs::read(&path).map_err(|error| failed(&path.display().to_string(), &error))?;
    Ok(Some((status, String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN)..]).into_owned())))
}
