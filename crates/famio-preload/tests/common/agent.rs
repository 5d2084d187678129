//! Processes that execute commands on a file, one per line of standard input; and checks that nothing is left
//! afterwards.

#[path = "../../../famio/tests/common/shared_memory.rs"]
pub mod shared_memory;

use super::{Folder, build, under};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::OnceLock;

/// A process that executes commands.
pub struct Agent {
    pub child: Child,
    pub told: Option<ChildStdin>,
    pub says: BufReader<ChildStdout>,
}

pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("agent"))
}

/// The pool of tiered journals of files in this folder.
pub fn pool(folder: &Folder) -> PathBuf {
    Path::new("/dev/shm").join(format!("{}-pool", folder.path().file_name().unwrap().display()))
}

/// As an agent has it.
pub fn set_domain(command: &mut std::process::Command, folder: &Folder, domain: &str) {
    if domain == "emulated" || domain == "tiered" {
        command.env("FAMIO_DOMAIN", "emulated");
    }
    if domain == "tiered" {
        std::fs::create_dir_all(pool(folder)).unwrap();
        command.env("FAMIO_POOL", pool(folder)).env("FAMIO_DURABILITY", "process");
    }
}

impl Agent {
    pub fn new(folder: &Folder, domain: &str) -> Self {
        Self::set(folder, domain, &[])
    }

    /// With these settings.
    pub fn set(folder: &Folder, domain: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = under(folder, program());
        set_domain(&mut command, folder, domain);
        command.envs(environment.iter().copied());
        Self::of(command)
    }

    pub fn of(mut command: std::process::Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (told, says) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, told, says }
    }

    /// In a container: with its own mount and process namespaces, and the same folders.
    pub fn contained(folder: &Folder, domain: &str) -> Self {
        let inside = ["--mount", "--pid", "--fork", "--mount-proc", "--"];
        let mut command = under(folder, "unshare");
        command.args(inside).arg(program());
        set_domain(&mut command, folder, domain);
        let mut agent = Self::of(command);
        assert_eq!(agent.tell("open atomic"), "ok");
        agent
    }

    pub fn with(folder: &Folder, domain: &str) -> Self {
        let mut agent = Self::new(folder, domain);
        assert_eq!(agent.tell("open atomic"), "ok");
        agent
    }

    pub fn tell(&mut self, what: &str) -> String {
        self.ask(what);
        self.answer()
    }

    /// Sends a command without waiting for the answer.
    pub fn ask(&mut self, what: &str) {
        writeln!(self.told.as_mut().unwrap(), "{what}").unwrap();
    }

    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[track_caller]
    pub fn ok(&mut self, what: &str) {
        assert_eq!(self.tell(what), "ok", "{what}");
    }

    #[track_caller]
    pub fn each(&mut self, what: &[&str]) {
        what.iter().for_each(|what| self.ok(what));
    }

    #[track_caller]
    pub fn sees(&mut self, at: u64, what: &str) {
        assert_eq!(self.tell(&format!("read {at} {}", what.len())), what);
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to a process that this test has started.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Stops all its threads; one of them may go on for a moment after the signal.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: a child of this process; checking whether it has stopped does not reap it.
        let stopped = unsafe { libc::waitpid(self.child.id() as i32, &mut status, libc::WUNTRACED) };
        assert!(stopped > 0 && libc::WIFSTOPPED(status), "{status:#x}");
    }

    /// Waits until all of its threads were asleep at a thousand checks in a row: its background has nothing to do.
    pub fn idle(&self) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let sleeps = |task: std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("status")).is_ok_and(|status| status.contains("State:\tS"))
        };
        let mut seen = 0;
        while seen < 1000 {
            let all = std::fs::read_dir(&tasks).unwrap().flatten().all(sleeps);
            seen = if all { seen + 1 } else { 0 };
            std::thread::yield_now();
        }
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// For a container: kills the process in it.
    pub fn kill_contained(mut self) {
        let me = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{me}/task/{me}/children")).unwrap();
        let inside: i32 = children.trim().parse().unwrap();
        // SAFETY: a signal to a process that this test has started.
        assert_eq!(unsafe { libc::kill(inside, libc::SIGKILL) }, 0);
        self.child.wait().unwrap();
    }

    /// Makes it exit, without waiting.
    pub fn begin_to_end(&mut self) {
        self.told = None;
    }

    pub fn end(mut self) {
        drop(self.told.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a test with each kind of journal: those of [`with_journal_beside`], and in memory before a disk.
pub fn everywhere(name: &str, test: impl Fn(&Folder, &str)) {
    with_journal_beside(name, &test);
    on(Folder::on_disk(&format!("turns-{name}-tiered")), "tiered", &test);
}

/// Runs a test with a journal beside the file: in memory with and without flushes, and on a disk.
pub fn with_journal_beside(name: &str, test: impl Fn(&Folder, &str)) {
    for domain in ["process", "emulated"] {
        on(Folder::new(&format!("turns-{name}-{domain}")), domain, &test);
    }
    on(Folder::on_disk(&format!("turns-{name}")), "power", &test);
}

fn on(folder: Folder, domain: &str, test: &impl Fn(&Folder, &str)) {
    std::fs::write(folder.path().join("atomic"), ".".repeat(10_000)).unwrap();
    test(&folder, domain);
    nothing_left(&folder);
}

pub fn nothing_left(folder: &Folder) {
    assert!(folder.names().iter().all(|name| !name.contains("famio")), "{:?}", folder.names());
    let left = shared_memory::of_folder(folder.path());
    assert!(left.is_empty(), "{left:?}");
    if pool(folder).exists() {
        std::fs::remove_dir(pool(folder)).expect("an empty pool");
    }
}
