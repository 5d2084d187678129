//! Detects processes that hang.
//!
//! The rule under test is "no hang over 5 s", so this is the only time limit here. Only time counts in which the
//! group could have made progress but did not: not an interval in which one of its threads waited for a processor
//! (`/proc/PID/schedstat`) or for the disk (state D). So a busy machine causes no finding, and a process that sleeps
//! on a futex, or spins, causes one after exactly 5 s. After a minute, every process does.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// The longest permitted hang.
pub const LONGEST: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
/// However busy the machine is.
const AT_MOST: Duration = Duration::from_secs(60);

/// How a process ended.
pub enum Ended {
    /// By itself or by a signal.
    Status(ExitStatus),
    /// It did not; what its threads were doing. It has been killed.
    Hung(String),
}

impl Ended {
    /// Describes a signal that is a crash, or a hang.
    pub fn crash(&self) -> Option<String> {
        match self {
            Self::Hung(_) => Some("hung".into()),
            Self::Status(status) => {
                status.signal().filter(|&signal| signal != libc::SIGKILL).map(|signal| match signal {
                    libc::SIGSEGV => "SIGSEGV".into(),
                    libc::SIGBUS => "SIGBUS".into(),
                    libc::SIGABRT => "SIGABRT".into(),
                    other => format!("signal {other}"),
                })
            }
        }
    }
}

/// Time in which a group of processes could have made progress, but did not.
pub struct Patience {
    group: i32,
    spent: Duration,
    began: Instant,
    last: Instant,
    moved: u64,
    delay: u64,
}

impl Patience {
    /// Starts now.
    pub fn new(group: i32) -> Self {
        Self { group, spent: Duration::ZERO, began: Instant::now(), last: Instant::now(), moved: 0, delay: 0 }
    }

    /// Checks again; returns what the group's threads are doing if it hangs.
    pub fn look(&mut self, moved: u64) -> Option<String> {
        let passed = self.last.elapsed();
        self.last = Instant::now();
        if moved != self.moved {
            (self.moved, self.spent, self.began) = (moved, Duration::ZERO, self.last);
            return None;
        }
        let threads = threads(self.group);
        let delay = threads.iter().map(|thread| thread.delay).sum::<u64>();
        let waited = Duration::from_nanos(delay.saturating_sub(self.delay));
        self.delay = delay;
        let starved = waited * 4 > passed || threads.iter().any(|thread| thread.state == 'D');
        if !starved {
            // If this took longer than a check, this process did not run either.
            self.spent += passed.min(LOOK * 2);
        }
        (self.spent > LONGEST || self.began.elapsed() > AT_MOST)
            .then(|| threads.iter().map(Thread::describe).collect::<Vec<_>>().join("\n"))
    }
}

/// Waits for the end of a process that leads its group; `moved` counts its progress.
pub fn wait(child: &mut Child, mut moved: impl FnMut() -> u64) -> Result<Ended, String> {
    let id = child.id() as i32;
    let pidfd = pidfd(id)?;
    let mut patience = Patience::new(id);
    let ended = loop {
        let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is alive.
        if unsafe { libc::poll(&mut poll, 1, LOOK.as_millis() as i32) } > 0 {
            break None;
        }
        if let Some(what) = patience.look(moved()) {
            break Some(what);
        }
    };
    if ended.is_some() {
        kill_group(id);
    }
    let status = child.wait().map_err(|error| format!("wait: {error}"))?;
    Ok(ended.map_or(Ended::Status(status), Ended::Hung))
}

/// A child's pidfd.
pub fn pidfd(id: i32) -> Result<OwnedFd, String> {
    // SAFETY: the process is a child that is not reaped, and the descriptor is new.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, id, 0);
        if fd < 0 {
            return Err(format!("pidfd_open: {}", std::io::Error::last_os_error()));
        }
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Kills and reaps all processes of a group that was started here. The group's number cannot be reused: this is
/// process 1 of its own namespace, and the group has members.
pub fn kill_group(group: i32) {
    // SAFETY: no pointers but a null.
    unsafe {
        libc::kill(-group, libc::SIGKILL);
    }
}

/// Waits until all processes of a group have ended; orphans are children of this process, which is process 1.
pub fn rest(group: i32, mut moved: impl FnMut() -> u64) -> Option<String> {
    let mut patience = Patience::new(group);
    loop {
        // SAFETY: no pointers but a null.
        let done = unsafe { libc::waitpid(-group, std::ptr::null_mut(), libc::WNOHANG) };
        if done < 0 {
            return None;
        }
        if done == 0 {
            if let Some(what) = patience.look(moved()) {
                kill_group(group);
                // SAFETY: as above.
                while unsafe { libc::waitpid(-group, std::ptr::null_mut(), 0) } > 0 {}
                return Some(what);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Where the first of the threads sleeps in the kernel, as part of a message.
pub fn place(threads: &str) -> String {
    let frames = threads.lines().next().and_then(|line| line.rsplit_once("; ")).map_or("", |(_, frames)| frames);
    let name = frames.split(" < ").next().unwrap_or_default().trim_start_matches("[<0>] ");
    match name.split('+').next() {
        None | Some("") => String::new(),
        Some("wait_for_partner") => ", opening a FIFO".into(),
        Some("__break_lease") => ", opening a file under a lease".into(),
        Some(name) => format!(" in {name}"),
    }
}

struct Thread {
    path: String,
    name: String,
    state: char,
    delay: u64,
}

impl Thread {
    fn describe(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(format!("{}/{name}", self.path)).unwrap_or_default();
        let call = read("syscall");
        let stack = read("stack").lines().take(4).map(str::trim).collect::<Vec<_>>().join(" < ");
        format!("{} ({}) {}: system call {}; {stack}", self.path, self.name, self.state, call.trim())
    }
}

fn threads(group: i32) -> Vec<Thread> {
    let mut all = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // SAFETY: no pointers.
        if unsafe { libc::getpgid(id) } != group {
            continue;
        }
        for task in std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
            let path = task.path().to_string_lossy().into_owned();
            let read = |name: &str| std::fs::read_to_string(format!("{path}/{name}")).unwrap_or_default();
            let stat = read("stat");
            let Some((head, tail)) = stat.rsplit_once(") ") else { continue };
            let delay = read("schedstat").split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
            all.push(Thread {
                name: head.split_once('(').map_or("", |(_, name)| name).to_owned(),
                state: tail.chars().next().unwrap_or('?'),
                delay,
                path,
            });
        }
    }
    all
}
