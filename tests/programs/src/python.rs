//! Python's ways to read and write a file, compared with a model in the script: `scripts/calls.py`.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_test_support::session::{self, Ended, Kill};
use std::process::Command;
use std::time::Duration;

const SCRIPT: &str = include_str!("scripts/calls.py");
const PASSES: &str = "demoted to an ordinary file because of its use as a standard stream";

/// Runs the script to its end, and with kills.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let folder = job.under.folder;
    let command = |seed: u64, steps: u64| {
        let mut command = job.under.famio(&["atomic*"], "python3");
        command.args(["-c", SCRIPT, "atomic", &seed.to_string(), &steps.to_string()]);
        command
    };
    for _ in 0..if job.short { 1 } else { 4 } {
        let ended = under::run(command(job.random.below(1 << 30), 400))?;
        let last = ended.text().last().map(|line| line.to_string()).unwrap_or_default();
        report.check(ended.is_ok() && last == "end", || format!("{}: {last}\n{}", ended.status, ended.messages));
        let rest = report.said(&ended.messages, &[PASSES]);
        report.check(rest.is_empty(), || rest);
        let left = under::leftovers(folder)?;
        report.check(left.is_empty(), || format!("left behind: {}", left.join(", ")));
        if !report.is_clean() {
            return Ok(());
        }
    }
    for _ in 0..job.kills {
        let delay = job.random.time_up_to(Duration::from_millis(300));
        let ended = session::drive(
            command(job.random.below(1 << 30), 1_000_000),
            std::iter::empty(),
            Kill::AfterFirstLine(delay),
        )?;
        report.kills += u64::from(ended.killed);
        let rest = report.said(&ended.messages, &[PASSES]);
        report.check(ended.killed && rest.is_empty(), || format!("{}: {rest}", ended.status));
        // The next run finds the file as it is, or recovered.
        if job.random.below(2) == 0 {
            job.under.recover()?;
        }
        judge(job, &ended, report)?;
        if !report.is_clean() {
            return Ok(());
        }
    }
    Ok(())
}

/// The content must be the last SYNC's, or that of one that had begun.
fn judge(job: &Job, ended: &Ended, report: &mut Report) -> Result<(), String> {
    let mut allowed: Vec<&str> = Vec::new();
    for line in ended.text() {
        match line.split_once(' ') {
            Some(("begun", content)) => allowed.push(content),
            Some(("done", content)) => {
                report.acknowledged += 1;
                allowed = vec![content];
            }
            _ => {}
        }
    }
    let mut command: Command = job.under.famio(&["atomic*"], "python3");
    command.args(["-c", "import hashlib; b = open('atomic','rb').read(); print(len(b), hashlib.sha1(b).hexdigest())"]);
    let found = under::succeed(command)?;
    report.check(allowed.contains(&found.as_str()), || format!("the file is {found:?}, may be {allowed:?}"));
    Ok(())
}
