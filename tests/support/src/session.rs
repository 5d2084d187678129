//! One life of a program: given input, perhaps killed with everything that it has started, and its output up to then.

use crate::launch::Launcher;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// When to send SIGKILL.
#[derive(Clone, Copy, Debug)]
pub enum Kill {
    /// Let it end.
    Never,
    /// This long after its start.
    AfterStart(Duration),
    /// This long after its first line of output.
    AfterFirstLine(Duration),
}

/// Nothing here takes longer, unless it hangs.
const LONGEST: Duration = Duration::from_secs(120);

/// The result of a session.
#[derive(Debug)]
pub struct Ended {
    /// Its lines of output, and when they arrived.
    pub lines: Vec<(Instant, String)>,
    /// The stderr of the program and of Famio in it.
    pub messages: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Whether it was still alive when SIGKILL was sent.
    pub killed: bool,
    /// Whether it was killed because it did not end by itself.
    pub hung: bool,
}

impl Ended {
    /// The numbers N of the lines `ack N`.
    pub fn acknowledged(&self) -> impl Iterator<Item = u64> + '_ {
        self.lines.iter().filter_map(|(_, line)| line.strip_prefix("ack ")?.parse().ok())
    }

    /// The lines without the times.
    pub fn text(&self) -> Vec<&str> {
        self.lines.iter().map(|(_, line)| line.as_str()).collect()
    }

    /// Whether it ended by itself, without an error.
    pub fn is_ok(&self) -> bool {
        self.status.success() && !self.killed && !self.hung
    }
}

/// Runs sqlite3 on `database`, feeds it with `statements` as fast as it accepts them, and kills it as `kill` says.
/// All of its output counts, including what was still in the pipe.
pub fn run(
    launcher: &Launcher,
    database: &Path,
    statements: impl Iterator<Item = String> + Send,
    kill: Kill,
) -> Result<Ended, String> {
    drive(launcher.command(database), statements, kill)
}

/// As [`run`], with any program. SIGKILL goes to its process group.
pub fn drive(mut command: Command, input: impl Iterator<Item = String> + Send, kill: Kill) -> Result<Ended, String> {
    let statements = input;
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    let started = Instant::now();
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut input), Some(output), Some(mut messages)) = pipes else { return Err("no pipes".into()) };
    thread::scope(|scope| {
        scope.spawn(move || {
            for text in statements {
                // A broken pipe: it is dead.
                if input.write_all(text.as_bytes()).is_err() {
                    break;
                }
            }
        });
        let (first_line, first) = channel();
        let lines = scope.spawn(move || {
            let mut lines = Vec::new();
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                lines.push((Instant::now(), String::from_utf8_lossy(&line).into_owned()));
                let _ = first_line.send(());
            }
            lines
        });
        let messages = scope.spawn(move || {
            let mut bytes = Vec::new();
            let _ = messages.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let (killed, hung) = wait_and_kill(&mut child, kill, started, &first);
        let status = child.wait().map_err(|error| format!("wait: {error}"))?;
        let lines = lines.join().map_err(|_| "reader panicked")?;
        let messages = messages.join().map_err(|_| "reader panicked")?;
        Ok(Ended { lines, messages, status, killed, hung })
    })
}

/// Returns when the child is dead or has closed its output. The channel has one item per line, and ends with them.
fn wait_and_kill(child: &mut Child, kill: Kill, started: Instant, lines: &Receiver<()>) -> (bool, bool) {
    let until = match kill {
        Kill::Never => None,
        Kill::AfterStart(delay) => Some(started + delay),
        Kill::AfterFirstLine(delay) => match lines.recv_timeout(LONGEST) {
            Ok(()) => Some(Instant::now() + delay),
            Err(_) => None,
        },
    };
    let deadline = until.unwrap_or(started + LONGEST);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(()) if !left.is_zero() => {}
            Err(RecvTimeoutError::Disconnected) => return (false, false),
            _ => {
                let alive = matches!(child.try_wait(), Ok(None));
                let sent = kill_group(child);
                return (until.is_some() && alive && sent, until.is_none());
            }
        }
    }
}

/// Sends SIGKILL to the child, its group, and everything that it started and that has left the group, as fio's jobs
/// do. Returns whether it was sent. The child is stopped first, so that it starts nothing unseen.
pub fn kill_group(child: &mut Child) -> bool {
    let id = child.id() as i32;
    // SAFETY: sends signals, and waits; `info` is ours. The child is not reaped, nor does it reap its own children
    // any more, so neither their ids nor its group's can be reused.
    unsafe {
        // Not the whole group: a stopped child of `vfork` keeps its parent from stopping.
        libc::kill(id, libc::SIGSTOP);
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, id as u32, &raw mut info, libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT);
        let others = started_by(id);
        let sent = libc::kill(-id, libc::SIGKILL) == 0;
        for other in others {
            libc::kill(other, libc::SIGKILL);
        }
        sent
    }
}

/// The descendants of a process.
fn started_by(id: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let children: String = threads.flat_map(|thread| std::fs::read_to_string(thread.path().join("children"))).collect();
    let own = children.split_ascii_whitespace().flat_map(str::parse);
    own.flat_map(|child| started_by(child).into_iter().chain([child])).collect()
}
