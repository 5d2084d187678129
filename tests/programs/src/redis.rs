//! Redis with an append-only file that is synced at each write, with all files atomic; rewrites of it fork.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_test_support::session;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A connection that sends one command at a time.
struct Client {
    input: BufReader<UnixStream>,
    output: UnixStream,
}

impl Client {
    fn new(socket: &Path) -> Option<Self> {
        let output = UnixStream::connect(socket).ok()?;
        output.set_read_timeout(Some(Duration::from_secs(120))).ok()?;
        Some(Self { input: BufReader::new(output.try_clone().ok()?), output })
    }

    /// The first line of the answer, and for a string, its content.
    fn ask(&mut self, command: &str) -> Option<String> {
        self.output.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut line = String::new();
        self.input.read_line(&mut line).ok().filter(|&n| n > 0)?;
        if line.starts_with('$') && !line.starts_with("$-1") {
            line.clear();
            self.input.read_line(&mut line).ok().filter(|&n| n > 0)?;
        }
        line.ends_with("\r\n").then(|| line.trim_end().to_string())
    }
}

fn server(job: &Job) -> Command {
    let mut command = job.under.famio(&["data/**"], "redis-server");
    let folder = job.under.folder;
    let path = |name: &str| folder.join(name).display().to_string();
    command.args(["--dir", &path("data"), "--unixsocket", &path("socket"), "--logfile", &path("log"), "--port", "0"]);
    command.args([
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--auto-aof-rewrite-percentage",
        "0",
        "--save",
        "",
    ]);
    command
}

/// Keys k1, k2, … in order; after each kill, the last acknowledged one and all before it must be there.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let data = job.under.folder.join("data");
    let socket = job.under.folder.join("socket");
    std::fs::create_dir(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    let mut last = 0u64;
    for round in 0..=job.kills {
        let _ = std::fs::remove_file(&socket);
        let (rewrite, time) = (job.random.below(40), job.random.time_up_to(Duration::from_millis(500)));
        let mut command = server(job);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| format!("redis-server: {error}"))?;
        let started = Instant::now();
        // Until it has loaded its data.
        let mut client = loop {
            if let Some(mut client) = Client::new(&socket)
                && client.ask("PING").as_deref() == Some("+PONG")
            {
                break Some(client);
            }
            if started.elapsed() > Duration::from_secs(120) || child.try_wait().is_ok_and(|ended| ended.is_some()) {
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if let Some(client) = &mut client {
            let size = client.ask("DBSIZE").and_then(|text| text.strip_prefix(':')?.parse::<u64>().ok());
            let value = if last > 0 { client.ask(&format!("GET k{last}")) } else { Some("v0".into()) };
            let good = size.is_some_and(|size| size == last || size == last + 1) && value == Some(format!("v{last}"));
            report.check(good, || {
                format!("round {round}: {last} keys were acknowledged; there are {size:?}, and k{last} is {value:?}")
            });
            last = size.unwrap_or(last);
            let until = Instant::now() + time;
            let mut number = 0;
            while Instant::now() < until && round < job.kills {
                let answer = client.ask(&format!("SET k{} v{}", last + 1, last + 1));
                if !report.check(answer.as_deref() == Some("+OK"), || format!("round {round}: SET: {answer:?}")) {
                    break;
                }
                last += 1;
                report.acknowledged += 1;
                number += 1;
                if number == rewrite {
                    let answer = client.ask("BGREWRITEAOF").unwrap_or_default();
                    report.check(answer.starts_with('+'), || format!("BGREWRITEAOF: {answer}"));
                }
            }
            if round == job.kills {
                // The last one ends by itself.
                let _ = client.ask("SHUTDOWN NOSAVE");
            } else {
                report.kills += u64::from(session::kill_group(&mut child));
            }
        } else {
            report.finding(format!("round {round}: redis-server did not come up"));
            session::kill_group(&mut child);
        }
        let output = child.wait_with_output().map_err(|error| format!("redis-server: {error}"))?;
        let rest = report.said(&String::from_utf8_lossy(&output.stderr), &[]);
        report.check(rest.is_empty(), || rest);
        // Sometimes checked; otherwise the next server finds the files as they are.
        if round == job.kills || job.random.below(2) == 0 {
            job.under.recover()?;
            let manifest = data.join("appendonlydir/appendonly.aof.manifest");
            if manifest.exists() {
                let mut check = job.under.plain("redis-check-aof");
                check.arg(&manifest);
                let checked = under::run(check)?;
                let valid = checked.is_ok()
                    && checked.text().iter().any(|line| line.contains("All AOF files and manifest are valid"));
                report.check(valid, || {
                    format!("round {round}: redis-check-aof: {}\n{}", checked.text().join("\n"), checked.messages)
                });
            }
        }
        if !report.is_clean() {
            let text = std::fs::read_to_string(job.under.folder.join("log")).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(6).collect();
            report.finding(tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            return Ok(());
        }
    }
    Ok(())
}
