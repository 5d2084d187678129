//! `famio run` as a shell sees it: what is refused, with which exit status, and what the program gets.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A library that does nothing: these tests are about the command.
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
        command.current_dir(self.path()).env("FAMIO_PRELOAD", self.path().join("libempty.so")).env("HOME", self.path());
        for name in ["ATOMIC", "POOL", "DURABILITY", "DOMAIN", "POLICY", "JOURNAL_LIMIT"] {
            command.env_remove(format!("FAMIO_{name}"));
        }
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
        "atomic = ['./c.db']\npool = 'pool'\npolicy = 'undo'\ndurability = 'process'\n",
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
        "FAMIO_POLICY=alternate\n".into(),
        "FAMIO_DURABILITY=process\n".into(),
        "FAMIO_JOURNAL_LIMIT=1048576\n".into(),
        format!("LD_PRELOAD={0}/libempty.so:{0}/other.so\n", root.display()),
    ] {
        assert!(text.contains(&expected), "{expected} is not in:\n{text}");
    }
    assert!(!text.contains("FAMIO_DOMAIN"));
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
    refused(&place.run(&["--atomic", "a", "--pool", "none", "true"]), 125, "none");
    refused(&place.run(&["--atomic", "a", "--config", "none.toml", "true"]), 125, "none.toml");
    let output = place.famio().env("FAMIO_DURABILITY", "maybe").args(["run", "--atomic", "a", "true"]).output();
    refused(&output.unwrap(), 125, "FAMIO_DURABILITY");
    std::fs::write(root.join("famio.toml"), "atomik = ['a']\n").unwrap();
    refused(&place.run(&["--atomic", "a", "true"]), 125, "atomik");
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

fn executable(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}
