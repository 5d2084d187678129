//! One process of a measurement: opens, warms up, waits for the word to begin, works, and reports.

use super::lane::{Lane, Length, Phase};
use super::workload::Workload;
use crate::bench::times::{Counts, Times};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to do.
#[derive(clap::Args)]
pub struct Args {
    /// A job, as JSON
    job: String,
}

/// A process's part of a measurement.
#[derive(Serialize, Deserialize)]
pub struct Job {
    pub workload: Workload,
    pub length: Length,
    pub phases: Phases,
    /// Counts the measurements of these files.
    pub measurement: u32,
    /// The number of the first thread of this process, among those of all.
    pub first_lane: u32,
    /// One for each thread, or one for all.
    pub files: Vec<PathBuf>,
}

/// What is measured. Both in one process, except where the first calls of a process are what matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phases {
    /// All calls together, without a look at the clock for each.
    Together,
    /// Each call by itself.
    Each,
    Both,
}

/// What a process has done.
#[derive(Serialize, Deserialize)]
pub struct Report {
    pub lanes: Vec<LaneReport>,
}

/// What a thread has done.
#[derive(Serialize, Deserialize)]
pub struct LaneReport {
    /// Calls from its stream, with those to warm up.
    pub ops: u64,
    pub writes: u64,
    pub together: Option<Phase>,
    pub each: Option<Phase>,
    pub reads: Counts,
    pub written: Counts,
    pub syncs: Counts,
}

/// What a worker says when it is warm.
pub const READY: &str = "ready";
/// A process that hangs must not hang the bench.
const PATIENCE: u32 = 1800;

/// Works, and prints the report.
pub fn main(args: &Args) -> Result<(), String> {
    let job: Job = serde_json::from_str(&args.job).map_err(|error| format!("the job: {error}"))?;
    // SAFETY: touches no memory.
    unsafe { libc::alarm(PATIENCE) };
    let report = run(&job)?;
    say(&serde_json::to_string(&report).map_err(|error| error.to_string())?)
}

fn say(line: &str) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|error| format!("stdout: {error}"))
}

fn run(job: &Job) -> Result<Report, String> {
    let threads = job.workload.threads;
    let (warm, begin) = (Barrier::new(threads as usize + 1), Barrier::new(threads as usize + 1));
    let go = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..threads)
            .map(|number| {
                let path = &job.files[number as usize % job.files.len()];
                let (warm, begin, go) = (&warm, &begin, &go);
                scope.spawn(move || {
                    let named = |error: std::io::Error| format!("{}: {error}", path.display());
                    // An error is told after the barriers, at which the others wait.
                    let lane = open(job, path, job.first_lane + number).map_err(named);
                    warm.wait();
                    begin.wait();
                    if go.load(Ordering::Relaxed) {
                        lane.and_then(|lane| work(job, lane).map_err(named)).map(Some)
                    } else {
                        Ok(None)
                    }
                })
            })
            .collect();
        warm.wait();
        let told = say(READY).and_then(|()| hear());
        go.store(told.as_ref().is_ok_and(|told| *told), Ordering::Relaxed);
        begin.wait();
        told?;
        let mut reports = Vec::new();
        for lane in lanes {
            reports.extend(lane.join().map_err(|_| "a thread has panicked".to_string())??);
        }
        Ok(Report { lanes: reports })
    })
}

/// Whether the bench says that it begins; another process may have failed.
fn hear() -> Result<bool, String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map(|length| length > 0).map_err(|error| format!("stdin: {error}"))
}

fn open(job: &Job, path: &std::path::Path, number: u32) -> std::io::Result<Lane> {
    let mut lane = Lane::open(path, &job.workload, job.measurement, number)?;
    if !job.workload.cold {
        lane.warm()?;
    }
    Ok(lane)
}

fn work(job: &Job, mut lane: Lane) -> std::io::Result<LaneReport> {
    if !job.workload.cold {
        lane.run::<false>(job.length.to_warm_up())?;
    }
    let together = match job.phases {
        Phases::Each => None,
        _ => Some(lane.run::<false>(job.length)?),
    };
    let each = match job.phases {
        Phases::Together => None,
        _ => Some(lane.run::<true>(job.length)?),
    };
    if job.workload.writes() {
        // What is still dirty is not to disturb the measurement that comes next; and its bytes count.
        lane.fsync()?;
    }
    let counts = |times: &Times| times.counts();
    Ok(LaneReport {
        ops: lane.ops,
        writes: lane.writes,
        together,
        each,
        reads: counts(&lane.times.reads),
        written: counts(&lane.times.writes),
        syncs: counts(&lane.times.syncs),
    })
}
