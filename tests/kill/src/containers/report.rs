//! The figures of a run, and what is wrong.

use super::lives::Record;
use super::{Args, Outcome};
use std::fmt;
use std::time::Duration;

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

/// Prints all of it. Returns the number of findings.
pub fn print(args: &Args, outcome: &Outcome) -> usize {
    let mut findings = outcome.left.clone();
    for (name, record) in &outcome.records {
        print_record(name, record);
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
        match (args.without_famio, findings.is_empty()) {
            (false, true) => "ok",
            (false, false) => "NOT OK",
            (true, false) => "torn epochs, as expected without Famio",
            (true, true) => "NOT OK: nothing torn without Famio, so that this proves nothing",
        }
    );
    findings.len()
}

fn print_record(name: &str, record: &Record) {
    let (all, killed) = record.recoveries;
    println!("process {name}: {} kills, {} commits, famio recover {all} times ({killed} killed)", record.kills, {
        record.commits.len()
    });
    println!("  SYNC                        {}", times(record.commits.iter().map(|commit| commit.sync)));
    println!("  all of an epoch             {}", times(record.commits.iter().map(|commit| commit.total())));
    println!("  epoch that a kill ended     {}", times(record.unfinished.iter().map(|commit| commit.total())));
    println!("  opening and check, killed   {}", times(record.openings.iter().copied()));
}

/// The commits that took too long, without what the machine took.
fn late<'a>(args: &Args, name: &'a str, record: &'a Record, outcome: &'a Outcome) -> impl Iterator<Item = String> {
    let limit = args.limit.as_nanos() as u64;
    let all = record.commits.iter().chain(&record.unfinished);
    let late: Vec<_> = all.filter(|commit| commit.total() > limit).collect();
    let is_ours = |commit: &&&super::board::Commit| outcome.machine.less(commit) > limit;
    let ours = late.iter().filter(is_ours).map(|commit| {
        format!(
            "{name}: epoch {} took {} (writes {}, SYNC {}; {} without what the machine took)",
            commit.epoch,
            Time(commit.total()),
            Time(commit.writing),
            Time(commit.sync),
            Time(outcome.machine.less(commit)),
        )
    });
    if !late.is_empty() {
        println!("  {} epochs took longer than {:?}, {} of them not because of the machine", late.len(), args.limit, {
            late.iter().filter(is_ours).count()
        });
    }
    ours.collect::<Vec<_>>().into_iter()
}
