//! The figures of a run, and what is wrong.

use super::board::Commit;
use super::lives::Record;
use super::machine::Machine;
use super::options::Args;
use super::shares::Shares;
use std::fmt;
use std::time::Duration;

/// What was found.
pub struct Outcome {
    pub seconds: f64,
    pub records: Vec<(String, Record)>,
    pub shares: Shares,
    pub machine: Machine,
    /// What is wrong with the pool after the end.
    pub left: Vec<String>,
}

/// How full the pool must be half of the time, in percent of its size, in a run of a minute. Applications can borrow
/// seven eighths.
const NEARLY_FULL: u64 = 75;

/// A time in nanoseconds, for people.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 as f64 / 1e3 {
            us if us < 1e3 => write!(f, "{us:.0} us"),
            us if us < 1e6 => write!(f, "{:.1} ms", us / 1e3),
            us => write!(f, "{:.2} s", us / 1e6),
        }
    }
}

/// Below which so many thousandths of the numbers lie.
fn part(sorted: &[u64], thousandths: usize) -> u64 {
    let at = (sorted.len() * thousandths).div_ceil(1000).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

fn times(of: impl Iterator<Item = u64>) -> String {
    let mut all: Vec<u64> = of.collect();
    all.sort_unstable();
    let [half, p99, p999, longest] = [500, 990, 999, 1000].map(|thousandths| Time(part(&all, thousandths)));
    format!("p50 {half}, p99 {p99}, p99.9 {p999}, longest {longest}")
}

/// Prints all of it. Returns whether that is as it should be: without Famio, epochs are torn.
pub fn print(args: &Args, outcome: &Outcome) -> bool {
    let mut findings = outcome.left.clone();
    for (name, record) in &outcome.records {
        print_record(name, record, outcome);
        findings.extend(record.findings.iter().cloned());
        findings.extend(late(args, name, record, outcome));
    }
    let of_all = |count: fn(&Record) -> u64| outcome.records.iter().map(|(_, record)| count(record)).sum::<u64>();
    let shares = &outcome.shares;
    if !args.without_famio {
        findings.extend(shares.findings(args.limit));
        let filled = [1, 100, 500, 1000].map(|thousandths| part(&shares.filled, thousandths));
        if filled[2] < NEARLY_FULL && args.time >= Duration::from_secs(60) {
            findings.push("the pool was not nearly full, so that this proves little".into());
        }
        println!(
            "pool of {} MiB: {} looks; filled {}, {} (p10), {} (p50) to {} %; left behind up to {} %; waited for at {} looks",
            args.size, shares.looks, filled[0], filled[1], filled[2], filled[3], shares.left, shares.waited
        );
        for (name, one) in &shares.applications {
            let owed = Time(one.owed.as_nanos() as u64);
            println!(
                "application {name}: up to {} % of its share, borrowed at {} looks, owed another one its share for {owed}",
                one.most, one.borrowed
            );
        }
    }
    let (processor, disk) = (Time(outcome.machine.processor.longest()), Time(outcome.machine.disk.longest()));
    println!(
        "machine: a thread waited for a processor for up to {processor}, a plain fdatasync for the disk for {disk}"
    );
    let is_right = if args.without_famio { of_all(|record| record.torn) > 0 } else { findings.is_empty() };
    findings.iter().for_each(|finding| println!("  {finding}"));
    println!(
        "total: {} kills ({} early) in {:.1} s, {} commits: {} lost, {} torn, {} failed, {} findings: {}",
        of_all(|record| record.kills),
        of_all(|record| record.early),
        outcome.seconds,
        of_all(|record| record.commits.len() as u64),
        of_all(|record| record.lost),
        of_all(|record| record.torn),
        of_all(|record| record.failed),
        findings.len(),
        match (args.without_famio, is_right) {
            (false, true) => "ok",
            (false, false) => "NOT OK",
            (true, true) => "torn epochs, as expected without Famio",
            (true, false) => "NOT OK: nothing torn without Famio, so that this proves nothing",
        }
    );
    is_right
}

fn print_record(name: &str, record: &Record, outcome: &Outcome) {
    let (all, killed) = record.recoveries;
    let (kills, commits) = (record.kills, record.commits.len());
    println!("process {name}: {kills} kills, {commits} commits, famio recover {all} times ({killed} killed)");
    println!("  SYNC                        {}", times(record.commits.iter().map(|commit| commit.sync)));
    println!("  all of an epoch             {}", times(record.commits.iter().map(|commit| commit.total())));
    if let Some(longest) = record.commits.iter().max_by_key(|commit| commit.total()) {
        println!("    the longest: {}", describe(longest, outcome));
        let long = record.commits.iter().filter(|commit| commit.total() >= longest.total().min(20_000_000));
        let less = Time(long.map(|commit| outcome.machine.less(commit)).max().unwrap_or(0));
        println!("    the most of any without what the machine took: {less}");
    }
    println!("  epoch that a kill ended     {}", times(record.unfinished.iter().map(|commit| commit.total())));
    println!("  open after a kill           {}", times(record.openings.iter().copied()));
}

fn describe(commit: &Commit, outcome: &Outcome) -> String {
    let [all, writing, sync, not_run, less] =
        [commit.total(), commit.writing, commit.sync, commit.not_run, outcome.machine.less(commit)].map(Time);
    let epoch = commit.epoch;
    format!(
        "epoch {epoch}: {all}, writes {writing}, SYNC {sync}; not run for {not_run}; without what the machine took {less}"
    )
}

/// The commits that took too long, without what the machine took.
fn late(args: &Args, name: &str, record: &Record, outcome: &Outcome) -> Vec<String> {
    let limit = args.limit.as_nanos() as u64;
    let all = record.commits.iter().chain(&record.unfinished);
    let late: Vec<_> = all.filter(|commit| commit.total() > limit).collect();
    let is_ours = |commit: &&&Commit| outcome.machine.less(commit) > limit;
    let ours = late.iter().filter(is_ours).map(|commit| format!("{name}: {}", describe(commit, outcome)));
    let ours: Vec<_> = ours.collect();
    if !late.is_empty() {
        let (late, ours) = (late.len(), ours.len());
        println!("  {late} epochs took longer than {:?}, {ours} of them not because of the machine", args.limit);
    }
    ours
}
