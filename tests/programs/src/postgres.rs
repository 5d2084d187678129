//! PostgreSQL, whose processes share their files: initdb works, pgbench meets the clear error, and the cluster stays sound.

use crate::Job;
use crate::report::Report;
use crate::under;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const IN_USE: &[&str] = &["in use as an atomic file by process"];

/// The folder of Debian's server programs, or that of initdb in `PATH`.
fn programs() -> Option<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> =
        debian.map(|entry| entry.path().join("bin")).filter(|path| path.join("postgres").exists()).collect();
    all.sort();
    all.pop().or_else(|| under::find("initdb")?.canonicalize().ok()?.parent().map(PathBuf::from))
}

/// The server refuses to run as root: then it is nobody.
fn as_nobody(command: &mut Command) {
    const NOBODY: u32 = 65534;
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
}

/// Records what happens.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let Some(programs) = programs() else {
        report.skipped = Some("no PostgreSQL server is installed".into());
        return Ok(());
    };
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(job.under.folder, mode)
        .map_err(|error| format!("{}: {error}", job.under.folder.display()))?;
    let famio = |program: &str, words: &[&str]| {
        let mut command = job.under.famio(&["data/base/**"], programs.join(program));
        command.args(words);
        as_nobody(&mut command);
        command
    };
    let plain = |program: &str, words: &[&str]| {
        let mut command = job.under.plain(programs.join(program));
        command.args(words);
        as_nobody(&mut command);
        command
    };
    let mut look = job.under.plain(job.under.binary());
    as_nobody(look.arg("--version"));
    if !under::run(look).is_ok_and(|ended| ended.is_ok()) {
        report.skipped = Some("the server does not run as root, and nobody may not read the build folder".into());
        return Ok(());
    }
    let ended = under::run(famio("initdb", &["-D", "data", "-A", "trust", "--no-instructions", "--no-locale"]))?;
    report.said(&ended.messages, &[]);
    if !report.check(ended.is_ok(), || format!("initdb: {}\n{}", ended.status, ended.messages)) {
        return Ok(());
    }
    let folder = job.under.folder.display().to_string();
    let socket = job.under.folder.join(".s.PGSQL.5432");
    for under_famio in [true, false] {
        let words = ["-D", "data", "-k", &folder, "-h", ""];
        let mut server = if under_famio { famio("postgres", &words) } else { plain("postgres", &words) };
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut server = server.spawn().map_err(|error| format!("postgres: {error}"))?;
        let started = Instant::now();
        while !under::run(plain("pg_isready", &["-q", "-h", &folder]))?.is_ok() {
            if started.elapsed() > Duration::from_secs(30) || server.try_wait().is_ok_and(|ended| ended.is_some()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let host = ["-h", folder.as_str()];
        let mut work = Vec::new();
        for words in [&["-i", "-q", "-s", "1"] as &[&str], &["-c", "4", "-T", "2"]] {
            let mut bench = plain("pgbench", &host);
            bench.args(words).arg("postgres");
            work.push(under::run(bench)?);
        }
        let dumped = under::run(plain("pg_dumpall", &host))?;
        // A fast shutdown. A group that is gone is no matter.
        // SAFETY: sends a signal to a child that is not waited for.
        unsafe { libc::kill(server.id() as i32, libc::SIGINT) };
        let output = server.wait_with_output().map_err(|error| format!("postgres: {error}"))?;
        let messages = report.said(&String::from_utf8_lossy(&output.stderr), IN_USE);
        if under_famio {
            // Either it works, or it is told why not.
            let busy = messages.contains("Device or resource busy");
            let worked = work.iter().all(|ended| ended.is_ok());
            report.check(worked || busy, || {
                format!("pgbench: {}\n{messages}", work.iter().map(|ended| ended.messages.as_str()).collect::<String>())
            });
            report.check(!messages.contains("PANIC"), || messages.clone());
            job.under.recover()?;
        } else {
            let failed = work.iter().chain([&dumped]).find(|ended| !ended.is_ok());
            report.check(failed.is_none(), || {
                format!("without Famio afterwards: {}", failed.map_or("", |ended| &ended.messages))
            });
        }
        let _ = std::fs::remove_file(&socket);
    }
    Ok(())
}
