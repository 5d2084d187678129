//! LevelDB, by Python's plyvel, all of whose files are atomic.

use crate::Job;
use crate::report::Report;
use crate::under;
use famio_kill::session::{self, Kill};
use std::time::Duration;

const SCRIPT: &str = include_str!("scripts/leveldb.py");
/// LevelDB maps its tables to read them.
const MAPS: &[&str] = &["handed back to the kernel because of mmap(2)"];

/// Batches, killed; then all that were acknowledged are there, and none in part.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let Some(python) = under::python_with("plyvel") else {
        report.skipped = Some("python3-plyvel is not installed".into());
        return Ok(());
    };
    let mut last = 0;
    for _ in 0..job.kills {
        let delay = job.random.time_up_to(Duration::from_millis(500));
        let how = if job.random.below(5) == 0 { Kill::AfterStart(delay / 3) } else { Kill::AfterFirstLine(delay) };
        let mut work = job.under.famio(&["**"], &python);
        work.args(["-c", SCRIPT, "work"]);
        let ended = session::drive(work, std::iter::empty(), how)?;
        report.kills += u64::from(ended.killed);
        let rest = report.said(&ended.messages, MAPS);
        report.check(ended.killed && rest.is_empty(), || format!("{}: {rest}", ended.status));
        for number in ended.acknowledged() {
            last = number;
            report.acknowledged += 1;
        }
        let plain = job.random.below(2) == 0;
        if plain {
            job.under.recover()?;
        }
        let mut check = if plain { job.under.plain(&python) } else { job.under.famio(&["**"], &python) };
        check.args(["-c", SCRIPT, "check", &last.to_string()]);
        let checked = under::run(check)?;
        let rest = report.said(&checked.messages, MAPS);
        report.check(checked.is_ok(), || format!("after a kill: {rest}"));
        if !report.is_clean() {
            return Ok(());
        }
    }
    let left = under::leftovers(job.under.folder)?;
    report.check(left.is_empty(), || format!("left behind: {}", left.join(", ")));
    Ok(())
}
