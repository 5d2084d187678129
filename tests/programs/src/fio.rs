//! fio with verification, by engine, threads and processes; then a pass over a written file is killed, and fio
//! verifies it.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_test_support::session::{self, Kill};
use std::process::Command;
use std::time::Duration;

const ENGINES: [&str; 4] = ["sync", "psync", "vsync", "pvsync2"];
/// For each thread or process.
const SIZE: &str = "4m";

/// How many jobs use one file, and whether they are threads.
const BY: [(&str, u32, bool); 3] = [("one thread", 1, true), ("4 threads", 4, true), ("4 processes", 4, false)];

/// All engines with all of these.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let all: Vec<_> = ENGINES.iter().flat_map(|engine| BY.map(|by| (*engine, by))).collect();
    for (index, (engine, (by, jobs, are_threads))) in all.iter().enumerate() {
        let count = all.len() as u64;
        let kills = job.kills / count + u64::from((index as u64) < job.kills % count);
        under::clear(job.under.folder)?;
        let fio = |what: &str, seed: u64, more: &[&str]| {
            let mut command: Command = job.under.famio(&["data"], "fio");
            command.args([
                "--name=job",
                "--filename=data",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--verify_state_save=0",
            ]);
            command.args([
                format!("--ioengine={engine}"),
                format!("--numjobs={jobs}"),
                format!("--rw={what}"),
                format!("--randseed={seed}"),
            ]);
            command.args([
                format!("--size={SIZE}"),
                format!("--offset_increment={SIZE}"),
                "--output-format=terse".into(),
            ]);
            command.args(are_threads.then_some("--thread"));
            command.args(more);
            command
        };
        let seed = job.random.next_u64() >> 33;
        // First blocks of all sizes, then of one, so that a later reader knows where they are.
        for (what, more) in [
            ("randwrite", &["--bs=512-64k", "--do_verify=1", "--fsync=16", "--end_fsync=1"]),
            ("randrw", &["--bs=4k", "--do_verify=1", "--fdatasync=7", "--end_fsync=1"]),
            ("write", &["--bs=16k", "--do_verify=1", "--fsync=16", "--end_fsync=1"]),
        ] {
            let ended = under::run(fio(what, seed, more))?;
            let rest = report.said(&ended.messages, &[]);
            report.check(ended.is_ok() && !rest.contains("verify:"), || {
                format!("{engine}, {by}, {what}: {} {rest}", ended.status)
            });
        }
        for _ in 0..kills {
            let delay = job.random.time_up_to(Duration::from_millis(400));
            let writing = fio("randwrite", seed + 1, &["--bs=16k", "--do_verify=0", "--fsync=16", "--loops=1000"]);
            let ended =
                session::drive(writing, std::iter::empty(), Kill::AfterStart(Duration::from_millis(60) + delay))?;
            report.kills += u64::from(ended.killed);
            report.check(ended.killed, || format!("{engine}: ended by itself: {}\n{}", ended.status, ended.messages));
            if job.random.below(2) == 0 {
                job.under.recover()?;
            }
            let ended = under::run(fio("read", seed, &["--bs=16k"]))?;
            let rest = report.said(&ended.messages, &[]);
            report.check(ended.is_ok() && !rest.contains("verify:"), || {
                format!("{engine}, {by}, after a kill: {} {rest}", ended.status)
            });
        }
        let left = under::leftovers(job.under.folder)?;
        report.check(left.is_empty(), || format!("left behind: {}", left.join(", ")));
        if !report.is_clean() {
            return Ok(());
        }
    }
    Ok(())
}
