//! LMDB's own tools on an environment that is an atomic file: `mdb_load`, killed, and `mdb_dump`, `mdb_stat` and
//! `mdb_copy`.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_test_support::session::{self, Ended, Kill};
use std::fmt::Write as _;
use std::time::Duration;

/// Entries of one batch, which `mdb_load` loads in order.
const ENTRIES: usize = 2500;
/// The number that `mdb_load` puts into one transaction.
const IN_ONE: usize = 100;
/// The environment, which is one file; its lock beside it is not atomic.
const DATA: &str = "data.mdb";
const COPY: &str = "copy.mdb";
/// Famio's message for a tool that only reads, and for one killed early.
const NOT_WRITTEN: &str = "selected no file that the program wrote";

fn batch(number: u64) -> String {
    let mut text = "VERSION=3\nformat=print\ntype=btree\nmapsize=268435456\nHEADER=END\n".to_string();
    for entry in 0..ENTRIES {
        // Some do not fit into a page.
        let length = if entry % 50 == 7 { 9000 } else { 40 };
        writeln!(text, " b{number:05}.{entry:05}\n {number}:{entry}:{}", "v".repeat(length)).expect("memory");
    }
    text + "DATA=END\n"
}

/// Runs a tool, with or without Famio; it must succeed.
fn ask(job: &mut Job, report: &mut Report, after: u64, name: &str, arguments: &[&str]) -> Result<Ended, String> {
    let plain = job.random.below(2) == 0;
    let mut command = if plain { job.under.plain(name) } else { job.under.famio(&[DATA, COPY], name) };
    command.args(arguments);
    let ended = under::run(command)?;
    let rest = report.said(&ended.messages, &[NOT_WRITTEN]);
    report.check(ended.is_ok(), || format!("after batch {after}: {name} {arguments:?}: {} {rest}", ended.status));
    Ok(ended)
}

/// Batches, each loaded by a new process; some are killed. Batches that ended normally must be there, of the others,
/// complete transactions from the first on.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let mut loaded = Vec::new();
    for number in 0..job.kills * 2 {
        let input = job.under.folder.join("batch");
        std::fs::write(&input, batch(number)).map_err(|error| format!("{}: {error}", input.display()))?;
        let is_to_die = number % 2 == 1;
        let how =
            if is_to_die { Kill::AfterStart(job.random.time_up_to(Duration::from_millis(30))) } else { Kill::Never };
        let mut load = job.under.famio(&[DATA], "mdb_load");
        load.args(["-n", "-f", "batch", DATA]);
        let ended = session::drive(load, std::iter::empty(), how)?;
        let rest = report.said(&ended.messages, &[NOT_WRITTEN]);
        report.kills += u64::from(ended.killed);
        report.acknowledged += u64::from(ended.is_ok());
        report.check(ended.killed || ended.is_ok(), || format!("batch {number}: {} {rest}", ended.status));
        if is_to_die {
            job.under.recover()?;
        }
        let dump = ask(job, report, number, "mdb_dump", &["-n", "-p", DATA])?.text().join("\n");
        loaded.push(ended.is_ok());
        for (batch, is_whole) in loaded.iter().enumerate() {
            let keys: Vec<&str> =
                dump.lines().filter_map(|line| line.strip_prefix(&format!(" b{batch:05}."))).collect();
            let in_order = keys.iter().enumerate().all(|(entry, key)| *key == format!("{entry:05}"));
            let count = if *is_whole { keys.len() == ENTRIES } else { keys.len().is_multiple_of(IN_ONE) };
            report
                .check(in_order && count, || format!("after batch {number}: {} entries of batch {batch}", keys.len()));
        }
        ask(job, report, number, "mdb_stat", &["-n", "-e", "-f", DATA])?;
        for compact in [&[] as &[&str], &["-c"]] {
            ask(job, report, number, "mdb_copy", &[compact, &["-n", DATA, COPY]].concat())?;
            let copied = ask(job, report, number, "mdb_dump", &["-n", "-p", COPY])?.text().join("\n");
            report.check(copied == dump, || {
                format!("after batch {number}: mdb_copy {compact:?} gave another environment")
            });
            // Otherwise the next copy is refused, and the old one found.
            let _ = std::fs::remove_file(job.under.folder.join(COPY));
        }
        if !report.is_clean() {
            return Ok(());
        }
        if number % 12 == 11 {
            // From the first commit on again, before it grows too large to check.
            under::clear(job.under.folder)?;
            loaded.iter_mut().for_each(|is_whole| *is_whole = false);
        }
    }
    let left = under::leftovers(job.under.folder)?;
    report.check(left.is_empty(), || format!("left behind: {}", left.join(", ")));
    Ok(())
}
