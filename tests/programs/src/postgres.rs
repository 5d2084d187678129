//! PostgreSQL, whose processes share their files: initdb, then pgbench and a concurrent inserting client; the whole
//! server is killed at random and restarted.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_test_support::session;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The folder of Debian's server programs, or that of initdb in `PATH`.
fn programs() -> Option<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> =
        debian.map(|entry| entry.path().join("bin")).filter(|path| path.join("postgres").exists()).collect();
    all.sort();
    all.pop().or_else(|| under::find("initdb")?.canonicalize().ok()?.parent().map(PathBuf::from))
}

/// After each kill, pgbench's sums must be right, and what was acknowledged must be there; finally, the cluster works
/// without Famio.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let Some(programs) = programs() else {
        report.skipped = Some("no PostgreSQL server is installed".into());
        return Ok(());
    };
    // The server refuses to run as root.
    report.skipped = job.under.as_ordinary_user()?;
    if report.skipped.is_some() {
        return Ok(());
    }
    let famio = |program: &str, words: &[&str]| {
        let mut command = job.under.famio(&["data/base/**"], programs.join(program));
        command.args(words);
        command
    };
    let plain = |program: &str, words: &[&str]| {
        let mut command = job.under.plain(programs.join(program));
        command.args(words);
        command
    };
    let ended = under::run(famio("initdb", &["-D", "data", "-A", "trust", "--no-instructions", "--no-locale"]))?;
    report.said(&ended.messages, &[]);
    if !report.check(ended.is_ok(), || format!("initdb: {}\n{}", ended.status, ended.messages)) {
        return Ok(());
    }
    let folder = job.under.folder.display().to_string();
    let socket = job.under.folder.join(".s.PGSQL.5432");
    let lock = job.under.folder.join("data/postmaster.pid");
    let said = job.under.folder.join("said");
    let query = |text: &str| {
        let mut psql = plain("psql", &["-h", &folder, "-Atqc", text]);
        psql.arg("postgres");
        under::run(psql)
    };
    let mut last = 0u64;
    for round in 0..=job.kills + 1 {
        // The last round is without Famio and ends by itself, as does the one before.
        let (under_famio, killed) = (round <= job.kills, round < job.kills);
        let words = ["-D", "data", "-k", &folder, "-h", ""];
        let mut server = if under_famio { famio("postgres", &words) } else { plain("postgres", &words) };
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut server = server.spawn().map_err(|error| format!("postgres: {error}"))?;
        let started = Instant::now();
        let is_up = loop {
            if under::run(plain("pg_isready", &["-q", "-h", &folder]))?.is_ok() {
                break true;
            }
            if started.elapsed() > Duration::from_secs(60) || server.try_wait().is_ok_and(|ended| ended.is_some()) {
                break false;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if !is_up {
            let _ = session::kill_group(&mut server);
            let output = server.wait_with_output().map_err(|error| format!("postgres: {error}"))?;
            report.finding(format!("round {round}: it did not come up\n{}", String::from_utf8_lossy(&output.stderr)));
            return Ok(());
        }
        if round == 0 {
            let mut prepare = plain("pgbench", &["-h", &folder, "-i", "-q", "-s", "1"]);
            prepare.arg("postgres");
            let ended = under::run(prepare)?;
            report.check(ended.is_ok(), || format!("pgbench -i: {}", ended.messages));
            let made = query("create table said(n bigint)")?;
            report.check(made.is_ok(), || made.messages.clone());
        } else {
            let sums = query(
                "select (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history) \
                 and (select sum(bbalance) from pgbench_branches) = (select coalesce(sum(delta), 0) from pgbench_history) \
                 and (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history), \
                 (select coalesce(max(n), 0) from said), (select count(*) from said)",
            )?;
            let text = sums.text().join(" ");
            let fields: Vec<&str> = text.split('|').collect();
            let number = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            let good = fields.first() == Some(&"t") && number(1) >= last && number(1) == number(2);
            report.check(good, || {
                format!(
                    "round {round}: {last} were acknowledged; sums are equal, last, count: {text} {}",
                    sums.messages
                )
            });
            last = number(1);
        }
        if killed {
            let mut bench = plain("pgbench", &["-h", &folder, "-n", "-c", "4", "-T", "60"]);
            bench.arg("postgres").stdout(Stdio::null()).stderr(Stdio::null());
            let mut bench = bench.spawn().map_err(|error| format!("pgbench: {error}"))?;
            let script: String =
                (last + 1..last + 4000).map(|n| format!("insert into said values ({n});\n\\echo {n}\n")).collect();
            let script_path = job.under.folder.join("script");
            let file = |path: &std::path::Path| std::fs::File::create(path).map_err(|error| error.to_string());
            std::fs::write(&script_path, script).map_err(|error| error.to_string())?;
            let mut client = plain("psql", &["-h", &folder, "-q", "-v", "ON_ERROR_STOP=1", "-f"]);
            client.arg(&script_path).arg("postgres").stdin(Stdio::null()).stdout(file(&said)?).stderr(Stdio::null());
            let mut client = client.spawn().map_err(|error| format!("psql: {error}"))?;
            std::thread::sleep(job.random.time_up_to(Duration::from_millis(900)));
            report.kills += u64::from(session::kill_group(&mut server));
            for child in [&mut bench, &mut client] {
                let _ = child.kill();
                let _ = child.wait();
            }
            let text = std::fs::read_to_string(&said).unwrap_or_default();
            let acknowledged = text.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(last);
            report.acknowledged += acknowledged - last;
            last = acknowledged;
        } else {
            // A fast shutdown.
            // SAFETY: sends a signal to a child that is not waited for.
            unsafe { libc::kill(server.id() as i32, libc::SIGINT) };
        }
        let output = server.wait_with_output().map_err(|error| format!("postgres: {error}"))?;
        let messages = report.said(&String::from_utf8_lossy(&output.stderr), &[]);
        report.check(!messages.contains("PANIC"), || messages.clone());
        if round == job.kills || job.random.below(2) == 0 {
            job.under.recover()?;
        }
        // The server's own file, which does not survive it.
        let _ = std::fs::remove_file(&socket);
        let _ = std::fs::remove_file(&lock);
        if !report.is_clean() {
            report.finding(messages);
            return Ok(());
        }
    }
    Ok(())
}
