//! RocksDB's ldb, with all files atomic: one batch of keys per run.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_test_support::session::{self, Kill};
use std::time::Duration;

/// Keys of one batch.
const KEYS: usize = 200;

/// Batches, each by a new process; some are killed. Batches that ended normally must be there, the others completely
/// or not at all.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let mut done: Vec<u64> = Vec::new();
    for number in 0..job.kills * 2 {
        let mut command = job.under.famio(&["db/**"], "ldb");
        command.args(["--db=db", "--create_if_missing", "batchput"]);
        for key in 0..KEYS {
            command.args([format!("b{number:05}.{key:05}"), format!("value of {number} and {key}")]);
        }
        let how = if number % 2 == 0 {
            Kill::AfterStart(job.random.time_up_to(Duration::from_millis(90)))
        } else {
            Kill::Never
        };
        let ended = session::drive(command, std::iter::empty(), how)?;
        let rest = report.said(&ended.messages, &[]);
        report.kills += u64::from(ended.killed);
        if ended.is_ok() {
            done.push(number);
            report.acknowledged += 1;
        }
        report.check(ended.killed || ended.is_ok(), || {
            format!("batch {number}: {} {rest} {}", ended.status, ended.text().join("\n"))
        });
        if number % 2 == 0 {
            job.under.recover()?;
        }
        if done.is_empty() {
            continue;
        }
        for words in [&["checkconsistency"] as &[&str], &["scan"]] {
            let mut command = job.under.plain("ldb");
            command.arg("--db=db").args(words);
            let ended = under::run(command)?;
            report.check(ended.is_ok(), || {
                format!("after batch {number}: ldb {words:?}: {} {}", ended.messages, ended.text().join("\n"))
            });
            if words == ["scan"] {
                for batch in 0..=number {
                    let prefix = format!("b{batch:05}.");
                    let keys = ended.text().iter().filter(|line| line.starts_with(&prefix)).count();
                    let whole = keys == KEYS || (keys == 0 && !done.contains(&batch));
                    report.check(whole, || format!("after batch {number}: {keys} keys of batch {batch}"));
                }
            }
        }
        if number % 16 == 15 {
            let mut compact = job.under.famio(&["db/**"], "ldb");
            compact.args(["--db=db", "compact"]);
            let ended = under::run(compact)?;
            let rest = report.said(&ended.messages, &[]);
            report.check(ended.is_ok(), || format!("ldb compact: {rest}"));
        }
        if !report.is_clean() {
            return Ok(());
        }
    }
    Ok(())
}
