//! `famio stats`, `metrics` and `top` on a running program.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

const SCRIPT: &str = "\
import os, sys
a = os.open('a.db', os.O_RDWR | os.O_CREAT)
for i in range(40):
    for j in range(4):
        os.pwrite(a, bytes([i]) * 4096, j * 4096)
    os.fsync(a)
os.pread(a, 100, 0)
os.pwrite(a, b'open', 0)
b = os.open('b.db', os.O_RDWR | os.O_CREAT)
os.write(b, b'x')
os.dup2(b, 0 if len(sys.argv) > 1 else b)
os.write(1, b'ready\\n')
os.read(int(os.environ['HOLD']), 1)
";

fn famio() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FAMIO_")) {
        command.env_remove(name);
    }
    command
}

/// A program that has written, and waits.
struct Running {
    child: Child,
    folder: tempfile::TempDir,
    _out: BufReader<ChildStdout>,
    _hold: std::io::PipeWriter,
}

impl Running {
    /// `None`: the library is not built.
    fn start(parent: &str) -> Option<Self> {
        use std::os::fd::AsRawFd;
        let library = common::built("libfamio_preload.so")?;
        let folder = tempfile::tempdir_in(parent).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        // SAFETY: the descriptor is open; the program is to inherit it.
        unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFD, 0) };
        let mut child = famio()
            .args([
                "run",
                "--no-config",
                "--journal",
                "always",
                "--atomic",
                "*.db",
                "--",
                "python3",
                "-c",
                SCRIPT,
                "demote",
            ])
            .env("FAMIO_PRELOAD", library)
            .env("HOLD", reader.as_raw_fd().to_string())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Self { child, folder, _out: out, _hold: writer })
    }

    fn path(&self) -> String {
        self.folder.path().join("a.db").canonicalize().unwrap().display().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(args: &[&str]) -> String {
    let output = famio().args(args).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_was_done_is_counted_and_looking_changes_nothing() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let Some(running) = Running::start(parent) else { return };
        let look = || -> serde_json::Value { serde_json::from_str(&answer(&["stats", "--json"])).unwrap() };
        let of = |all: &serde_json::Value| {
            let mut files = all["files"].as_array().unwrap().iter();
            files.find(|file| file["file"] == running.path().as_str()).expect("it is listed").clone()
        };
        let all = look();
        let file = of(&all);
        assert_eq!(
            (&file["syncs"], &file["writes"], &file["written_bytes"]),
            (&40.into(), &160.into(), &655_360.into()),
            "{file}"
        );
        assert_eq!(
            (&file["open_writes"], &file["failed_syncs"], &file["hand_overs"]),
            (&1.into(), &0.into(), &0.into()),
            "{file}"
        );
        assert!(file["journal_bytes"].as_u64() > Some(0), "{file}");
        let measured = |what: &str| file[what]["measured"].as_u64().unwrap();
        let is_in_place = file["kind"] == "in place";
        assert!(
            if is_in_place {
                (2..=3).contains(&measured("sync_nanoseconds"))
            } else {
                measured("sync_nanoseconds") == 40
            },
            "{file}"
        );
        assert!((1..=10).contains(&measured("write_nanoseconds")), "{file}");
        let run = all["runs"].as_array().unwrap().iter().find(|run| run["pid"] == running.child.id()).expect("its run");
        assert_eq!((&run["demotions"], &run["conflicts"]), (&1.into(), &0.into()), "{run}");
        // The background may have written blocks back meanwhile.
        let without = |mut file: serde_json::Value| {
            for name in ["write_backs", "file_bytes", "journal_size"] {
                file.as_object_mut().unwrap().remove(name);
            }
            file
        };
        assert_eq!(without(of(&look())), without(file.clone()), "a second look shows the same");
        let documented = include_str!("../../../docs/json.md");
        let section = documented.split("## `famio stats").nth(1).unwrap().split("\n## ").next().unwrap();
        for name in file.as_object().unwrap().keys().chain(run.as_object().unwrap().keys()) {
            assert!(section.contains(&format!("`{name}`")), "{name} is not in docs/json.md");
        }
        let table = answer(&["stats"]);
        assert!(table.contains(&running.path()) && table.contains("1 demoted to ordinary files"), "{table}");
    }
}

/// Ends with the test, even if that fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prometheus_is_answered_and_a_file_is_written_in_one_step() {
    let Some(running) = Running::start("/dev/shm") else { return };
    let expected = format!("famio_syncs_total{{file=\"{}\"", running.path());
    let server = famio().args(["metrics", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut server = Server(server);
    let mut said = String::new();
    BufReader::new(server.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address =
        said.trim().strip_prefix("famio: http://").and_then(|rest| rest.strip_suffix("/metrics")).expect("address");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let page = get("/metrics");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("application/openmetrics-text"), "{page}");
    assert!(page.contains(&expected) && page.trim_end().ends_with("# EOF"), "{page}");
    assert!(get("/").starts_with("HTTP/1.1 404"));
    drop(server);

    let file = running.folder.path().join("famio.prom");
    std::fs::write(&file, "old").unwrap();
    answer(&["metrics", "--file", file.to_str().unwrap()]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(&expected), "{text}");
    let names: Vec<_> =
        std::fs::read_dir(running.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{names:?}");
    let parser = "import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as om; \
                  from prometheus_client.parser import text_string_to_metric_families as old; text = open(sys.argv[1]).read(); \
                  assert len(list(om(text))) > 20 and len(list(old(text))) > 20";
    let has_it = Command::new("python3").args(["-c", "import prometheus_client"]).stderr(Stdio::null()).status();
    if has_it.is_ok_and(|status| status.success()) {
        assert!(Command::new("python3").args(["-c", parser]).arg(&file).status().unwrap().success());
    } else {
        eprintln!("SKIPPED in part: no prometheus_client for python3");
    }
}

#[test]
fn top_needs_a_terminal() {
    let output = famio().arg("top").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("famio stats --json"), "{said}");
}
