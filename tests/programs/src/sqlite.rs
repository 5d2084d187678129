//! sqlite3 in all journal modes, with the database atomic, with or without its journal: the transactions of
//! `famio-kill`.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_kill::harness::{self, Plan};
use famio_kill::workload;
use famio_test_support::launch::{Famio, Launcher};
use famio_test_support::session::{self, Kill};
use std::time::Duration;

const MODES: [&str; 6] = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF", "WAL"];

/// Kills are spread over the modes and the choice of atomic files.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let all: Vec<_> = MODES.iter().flat_map(|mode| [(*mode, false), (*mode, true)]).collect();
    for (index, (mode, with_journal)) in all.iter().enumerate() {
        let count = all.len() as u64;
        let kills = job.kills / count + u64::from((index as u64) < job.kills % count);
        let folder = job.under.folder;
        under::clear(folder)?;
        let beside = format!("{}/kill.db-*", folder.display());
        let options: &[&str] = if *with_journal { &["--atomic", &beside] } else { &[] };
        let launcher = Launcher::new(Some(Famio::beside_me(options)?))?;
        let plan = Plan {
            journal_mode: mode.to_string(),
            kills,
            seed: job.random.next_u64(),
            longest: Duration::from_millis(120),
            stop_early: true,
        };
        if kills > 0 {
            let tally = harness::run(&launcher, folder, &plan)?;
            report.kills += tally.kills;
            report.acknowledged += tally.acknowledged;
            report.check(tally.is_clean(), || {
                format!("{mode}, journal atomic: {with_journal}: {tally}: {}", tally.findings.join("; "))
            });
            if !report.is_clean() {
                return Ok(());
            }
        }
        // Run to the end: its output, and what it leaves.
        let text = workload::pragmas(mode)
            + "PRAGMA journal_mode;\n"
            + &workload::schema()
            + &workload::transaction(&mut job.random)
            + &workload::check();
        let ended = session::run(&launcher, &folder.join("kill.db"), std::iter::once(text), Kill::Never)?;
        let lines = ended.text();
        let good = ended.is_ok()
            && lines.first().is_some_and(|line| line.eq_ignore_ascii_case(mode))
            && lines.last() == Some(&"checked")
            && lines.len() == 5;
        report.check(good, || format!("{mode}, journal atomic: {with_journal}: {lines:?} {}", ended.messages));
        let rest = report.said(&ended.messages, if *with_journal { &["selected no file"] } else { &[] });
        report.check(rest.is_empty(), || rest);
        let left = under::leftovers(folder)?;
        report.check(left.is_empty(), || format!("{mode}: left behind: {}", left.join(", ")));
    }
    Ok(())
}
