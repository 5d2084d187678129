//! `famio run` as a shell sees it: what is refused, with which exit status, and what the program gets.

mod common;

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // An empty library: these tests concern the command.
        let source = folder.path().join("empty.c");
        std::fs::write(&source, "int famio_test_empty;\n").unwrap();
        let library = folder.path().join("libempty.so");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
        assert!(built.success());
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    fn famio(&self) -> Command {
        let mut command = common::famio();
        command.current_dir(self.path()).env("FAMIO_PRELOAD", self.path().join("libempty.so")).env("HOME", self.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.famio().arg("run").args(args).output().unwrap()
    }

    fn compile(&self, name: &str, text: &str, options: &[&str]) -> PathBuf {
        let source = self.path().join(format!("{name}.c"));
        std::fs::write(&source, text).unwrap();
        let program = self.path().join(name);
        assert!(Command::new("cc").args(options).arg("-o").arg(&program).arg(&source).status().unwrap().success());
        program
    }
}

#[track_caller]
fn refused(output: &Output, status: i32, word: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    assert!(message.contains(word), "'{word}' is not in: {message}");
    assert!(output.stdout.is_empty());
}

#[test]
fn the_status_is_the_programs() {
    let place = Place::new();
    for status in [0, 1, 2, 125] {
        let output = place.run(&["--atomic", "a.db", "--", "sh", "-c", &format!("exit {status}")]);
        assert_eq!(output.status.code(), Some(status));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = place.run(&["--atomic", "a.db", "sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.signal(), Some(9));
}

#[test]
fn the_process_is_the_programs() {
    let place = Place::new();
    let mut child = place.famio();
    child.args(["run", "--atomic", "a.db", "--", "sh", "-c", "echo $$"]).stdout(std::process::Stdio::piped());
    let child = child.spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), pid.to_string());
}

#[test]
fn signals_are_inherited_as_they_were() {
    let place = Place::new();
    for ignored in [false, true] {
        let mut command = place.famio();
        command.args(["run", "--atomic", "a", "--", "grep", "SigIgn", "/proc/self/status"]);
        // SAFETY: signal is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                libc::signal(libc::SIGPIPE, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
                Ok(())
            })
        };
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let mask = u64::from_str_radix(text.trim().trim_start_matches("SigIgn:").trim(), 16).unwrap();
        assert_eq!(mask >> (libc::SIGPIPE - 1) & 1, u64::from(ignored), "{text}");
    }
}

#[test]
fn settings_reach_the_program() {
    let place = Place::new();
    let root = place.path();
    std::fs::create_dir_all(root.join("deep/er")).unwrap();
    std::fs::create_dir(root.join("pool")).unwrap();
    std::fs::write(
        root.join("famio.toml"),
        "atomic = ['./c.db']\npool = 'pool'\nshm = '/dev/shm'\npolicy = 'undo'\ndurability = 'process'\n",
    )
    .unwrap();
    let output = place
        .famio()
        .current_dir(root.join("deep/er"))
        .env("FAMIO_ATOMIC", "b.db")
        .env("FAMIO_POLICY", "redo")
        .env("LD_PRELOAD", root.join("other.so"))
        .args(["run", "--atomic", "./a.db", "--journal-limit", "1MiB", "--policy", "alternate", "--", "env"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let here = root.join("deep/er");
    for expected in [
        format!("FAMIO_ATOMIC={}/a.db\nb.db\n{}/c.db\n", here.display(), root.display()),
        format!("FAMIO_POOL={}/pool\n", root.display()),
        "FAMIO_SHM=/dev/shm\n".into(),
        "FAMIO_POLICY=alternate\n".into(),
        "FAMIO_DURABILITY=process\n".into(),
        "FAMIO_JOURNAL_LIMIT=1048576\n".into(),
        format!("LD_PRELOAD={0}/libempty.so:{0}/other.so\n", root.display()),
    ] {
        assert!(text.contains(&expected), "{expected} is not in:\n{text}");
    }
    assert!(!text.contains("FAMIO_DOMAIN"));
}

/// Every program got a variable that has no use without a pool.
#[test]
fn only_a_run_with_a_pool_is_an_application() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("pool")).unwrap();
    let told = |options: &[&str]| {
        let output = place.run(&[&["--atomic", "a"], options, &["--", "env"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find_map(|line| line.strip_prefix("FAMIO_APPLICATION=").map(str::to_owned))
    };
    assert_eq!(told(&[]), None);
    assert!(told(&["--pool", "pool"]).unwrap().starts_with("env-"));
    assert_eq!(told(&["--application", "web"]).as_deref(), Some("web"));
}

#[test]
fn what_becomes_of_killed_writes_is_passed_on() {
    let place = Place::new();
    let root = place.path();
    let told = |options: &[&str]| {
        let output = place.run(&[&["--atomic", "a"], options, &["--", "env"]].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split("FAMIO_ON_KILL=").nth(1).map(|rest| rest.split("\nFAMIO").next().unwrap().trim_end().to_owned())
    };
    assert_eq!(told(&[]), None);
    assert_eq!(told(&["--on-kill", "keep"]).as_deref(), Some("keep"));
    let globs = told(&["--on-kill", "*.ibd", "--on-kill", "./b"]).unwrap();
    assert!(globs.starts_with(&format!("*.ibd\n{}/b", root.display())), "{globs}");
    refused(&place.run(&["--atomic", "a", "--on-kill", "keep", "--on-kill", "b", "true"]), 125, "--on-kill");
    for (option, mistake) in [("--on-kill", "kepe"), ("--on-kill", "KEEP"), ("--atomicity", "wrte")] {
        let done = place.run(&["--atomic", "a", option, mistake, "true"]);
        assert!(String::from_utf8_lossy(&done.stderr).contains(&format!("write ./{mistake}")), "{done:?}");
        assert!(!done.status.success());
        let variable = option.replace("--", "famio-").replace('-', "_").to_uppercase();
        let done = place.famio().env(&variable, mistake).args(["run", "--atomic", "a", "true"]).output().unwrap();
        refused(&done, 125, &variable);
    }
    std::fs::write(root.join("famio.toml"), "on-kill = ['keep', 'b.db']\n").unwrap();
    refused(&place.run(&["--atomic", "a", "true"]), 125, "./keep");
    std::fs::write(root.join("famio.toml"), "on-kill = 'perhaps'\n").unwrap();
    refused(&place.run(&["--atomic", "a", "true"]), 125, "perhaps");
    std::fs::write(root.join("famio.toml"), "on-kill = ['x/*.db']\n").unwrap();
    assert!(told(&[]).unwrap().starts_with(&format!("{}/x/*.db", root.display())));
    let shown = place.run(&["--atomic", "a", "--on-kill", "rollback", "--dry-run"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("on-kill: rollback (--on-kill)"), "{shown:?}");
}

#[test]
fn bad_settings_are_refused() {
    let place = Place::new();
    let root = place.path();
    refused(&place.run(&["true"]), 125, "--atomic");
    refused(&place.run(&["--atomic", "a["]), 125, "required");
    refused(&place.run(&["--atomic", "a[", "true"]), 125, "glob");
    refused(&place.run(&["--atomic", "a", "--policy", "never", "true"]), 125, "never");
    refused(&place.run(&["--atomic", "a", "--journal-limit", "lots", "true"]), 125, "lots");
    refused(&place.run(&["--atomic", "a", "--journal-limit", "12", "true"]), 125, "--journal-limit: 12 B is too small");
    refused(&place.run(&["--atomic", "a", "--pool", "none", "true"]), 125, "none");
    refused(&place.run(&["--atomic", "a", "--shm", "none", "true"]), 125, "made first");
    refused(&place.run(&["--atomic", "a", "--shm", "/proc", "true"]), 125, "not on tmpfs");
    refused(&place.run(&["--atomic", "a", "--config", "none.toml", "true"]), 125, "none.toml");
    std::os::unix::fs::symlink("/dev/zero", root.join("zeros")).unwrap();
    refused(&place.run(&["--atomic", "a", "--config", "zeros", "true"]), 125, "zeros: neither a regular file");
    refused(&place.run(&["--atomic", &"/x".repeat(4000), "true"]), 125, "--atomic: glob '/x/x");
    let output = place.famio().env("FAMIO_DURABILITY", "maybe").args(["run", "--atomic", "a", "true"]).output();
    refused(&output.unwrap(), 125, "FAMIO_DURABILITY");
    std::fs::write(root.join("famio.toml"), "atomik = ['a']\n").unwrap();
    refused(&place.run(&["--atomic", "a", "true"]), 125, "atomik");
}

#[test]
fn settings_may_come_from_a_pipe() {
    let place = Place::new();
    std::fs::write(place.path().join("a"), "").unwrap();
    for (text, status, says) in [("atomic = ['./a']", 0, "dev"), ("atomik = ['a']", 125, "atomik")] {
        let mut command = place.famio();
        command.args(["run", "--dry-run", "--config", "/dev/stdin", "true"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let Output { status: ended, stdout, stderr } = child.wait_with_output().unwrap();
        let said = String::from_utf8([stdout, stderr].concat()).unwrap();
        assert_eq!(ended.code(), Some(status), "{text}: {said}");
        // Paths count from the current folder.
        let here = place.path().canonicalize().unwrap().join("a").display().to_string();
        assert!(said.contains(if status == 0 { &here } else { says }), "{text}: {said}");
    }
}

/// Each parent whose path was too long used to be named, with all its 4 to 6 KB.
#[test]
fn a_path_that_is_too_long_is_no_reason_to_talk() {
    const PROGRAM: &str = "
import os, sys
for _ in range(20):
    os.mkdir('d' * 240)
    os.chdir('d' * 240)
os.execv(sys.argv[1], sys.argv[1:])";
    let place = Place::new();
    let mut command = place.famio();
    let famio = command.get_program().to_owned();
    command = {
        let mut python = Command::new("python3");
        python.current_dir(place.path()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        python
    };
    let done = command.args(["-c", PROGRAM]).arg(famio).args(["run", "--atomic", "x.db", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.lines().count() == 1 && said.len() < 200, "{said}");
    assert!(said.contains("famio.toml") && said.contains("--config"), "{said}");
}

#[test]
fn a_missing_library_is_said() {
    let place = Place::new();
    let output = place.famio().env("FAMIO_PRELOAD", "/no/such.so").args(["run", "--atomic", "a", "true"]).output();
    refused(&output.unwrap(), 125, "/no/such.so");
}

#[test]
fn programs_that_cannot_run() {
    let place = Place::new();
    refused(&place.run(&["--atomic", "a", "no-such-program"]), 127, "no-such-program");
    refused(&place.run(&["--atomic", "a", "./nothing"]), 127, "./nothing");
    std::fs::write(place.path().join("plain"), "text").unwrap();
    refused(&place.run(&["--atomic", "a", "./plain"]), 126, "./plain");
    refused(&place.run(&["--atomic", "a", "./"]), 126, "can't be executed");
}

#[test]
fn programs_that_would_run_unprotected() {
    let place = Place::new();
    let program = place.compile("static", "int main(void) { return 0; }\n", &["-static"]);
    refused(&place.run(&["--atomic", "a", "./static"]), 125, "statically linked");
    std::fs::write(place.path().join("script"), format!("#!{}\n", program.display())).unwrap();
    executable(&place.path().join("script"), 0o755);
    refused(&place.run(&["--atomic", "a", "./script"]), 125, "statically linked");
    // Linked dynamically, it runs, since it may call C libraries.
    let go = "__attribute__((section(\".go.buildinfo\"))) int go = 1;\nint main(void) { return 0; }\n";
    place.compile("go", go, &[]);
    let output = place.run(&["--atomic", "a", "./go"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("Go program") && said.lines().count() == 1, "{said}");
    place.compile("setuid", "int main(void) { return 0; }\n", &[]);
    executable(&place.path().join("setuid"), 0o4755);
    refused(&place.run(&["--atomic", "a", "./setuid"]), 125, "set-user-id");
    let mut bytes = std::fs::read(&program).unwrap();
    bytes[4] = 1;
    std::fs::write(place.path().join("narrow"), bytes).unwrap();
    executable(&place.path().join("narrow"), 0o755);
    refused(&place.run(&["--atomic", "a", "./narrow"]), 125, "another architecture");
}

#[test]
fn a_script_without_a_first_line_runs_as_under_execvp() {
    let place = Place::new();
    std::fs::write(place.path().join("bare"), "echo \"$0 $1\"\n").unwrap();
    executable(&place.path().join("bare"), 0o755);
    let output = place.run(&["--atomic", "a", "./bare", "x"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "./bare x\n");
}

/// Sets up io_uring and kernel AIO by bare system calls: the 64-bit numbers, and on x86-64 those of 32-bit programs.
const RINGS: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static long result(const char *name, long done) {
  printf("%s %s\n", name, done >= 0 ? "works" : strerror((int)-done));
  return done;
}
static long raw(long n, long a, void *b) {
#ifdef __x86_64__
  long done;
  __asm__ volatile("syscall" : "=a"(done) : "a"(n), "D"(a), "S"(b) : "rcx", "r11", "memory");
#else
  register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = (long)b;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
  long done = x0;
#endif
  return done;
}
int main(void) {
  char parameters[1024] = {0};
  unsigned long context = 0;
  long ring = result("ring", raw(SYS_io_uring_setup, 4, parameters));
  long queue = result("queue", raw(SYS_io_setup, 4, &context));
  int number = syscall(SYS_gettid) == getpid();
  printf("others %s\n", number ? "work" : "fail");
  return (ring >= 0) + 2 * (queue >= 0);
}
"#;

#[test]
fn asynchronous_io_is_refused_unless_it_is_allowed() {
    let place = Place::new();
    place.compile("rings", RINGS, &[]);
    let bare = Command::new(place.path().join("rings")).output().unwrap();
    let status = bare.status.code();
    // A container may refuse them in general: then there is nothing to test.
    let possible = String::from_utf8(bare.stdout).unwrap();
    let neither = "ring Function not implemented\nqueue Function not implemented\nothers work\n";
    let check = |output: Output, allowed: bool, what: &str| {
        let said = String::from_utf8_lossy(&output.stdout);
        if status == Some(3) {
            assert_eq!(said, if allowed { possible.as_str() } else { neither }, "{what}: {output:?}");
        } else {
            assert!(said.ends_with("others work\n"), "{what}: {output:?}");
        }
        assert!(output.stderr.is_empty(), "{what}: {output:?}");
    };
    check(place.run(&["--atomic", "a", "./rings"]), false, "the default");
    check(place.run(&["--atomic", "a", "--async-io", "refuse", "./rings"]), false, "the option");
    check(place.run(&["--atomic", "a", "--async-io", "allow", "./rings"]), true, "the opt-out");
    check(place.run(&["--atomic", "a", "sh", "-c", "./rings; exec ./rings >/dev/null"]), false, "a child");
    let me = env!("CARGO_BIN_EXE_famio");
    check(place.run(&["--atomic", "a", "--", me, "run", "--atomic", "b", "--", "./rings"]), false, "one in another");
    let allow = ["run", "--atomic", "a", "./rings"];
    check(place.famio().env("FAMIO_ASYNC_IO", "allow").args(allow).output().unwrap(), true, "the environment");
    std::fs::write(place.path().join("famio.toml"), "async-io = 'allow'\n").unwrap();
    check(place.run(&["--atomic", "a", "./rings"]), true, "famio.toml");
    check(place.run(&["--atomic", "a", "--async-io", "refuse", "./rings"]), false, "the option over famio.toml");
    refused(&place.run(&["--atomic", "a", "--async-io", "perhaps", "true"]), 125, "perhaps");
}

/// Without root, a filter can be installed only with no_new_privs; with root, set-user-id programs go on working.
#[test]
fn privileges_are_given_up_only_where_they_must_be() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let look = ["run", "--atomic", "a", "--", "grep", "-E", "^(NoNewPrivs|Seccomp):", "/proc/self/status"];
    let output = place.famio().args(look).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "NoNewPrivs:\t0\nSeccomp:\t2\n", "{output:?}");
    // Another user: the command is copied to a place that user may access. By a separate process: while a descriptor
    // for writing it, inherited by other tests' children, is open, the copy could not be executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_famio")).arg(place.path().join("famio")).status().unwrap();
    assert!(copied.success());
    let mut command = Command::new(place.path().join("famio"));
    command.args(look).current_dir(place.path()).uid(65534).gid(65534);
    let output = command.env("FAMIO_PRELOAD", place.path().join("libempty.so")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "NoNewPrivs:\t1\nSeccomp:\t2\n", "{output:?}");
}

/// If no filter can be installed, the program does not run unless the user permits that.
#[test]
fn a_container_without_seccomp() {
    let place = Place::new();
    place.compile("rings", RINGS, &[]);
    let shut = |args: &[&str]| {
        let mut command = place.famio();
        command.arg("run").args(args);
        // SAFETY: only system calls between fork and exec.
        unsafe { command.pre_exec(no_more_filters) };
        command.output().unwrap()
    };
    let bare = Command::new(place.path().join("rings")).output().unwrap();
    if bare.status.code() != Some(3) {
        return;
    }
    let output = shut(&["--atomic", "a", "./rings"]);
    refused(&output, 125, "--async-io allow");
    assert_eq!(shut(&["--atomic", "a", "--async-io", "allow", "./rings"]).status.code(), Some(3));
}

/// A filter that refuses seccomp(2), as a container's may.
fn no_more_filters() -> std::io::Result<()> {
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut code = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_seccomp as u32, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: the program outlives the calls.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn executable(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}
