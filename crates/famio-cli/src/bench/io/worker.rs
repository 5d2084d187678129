//! One process of a measurement: opens, warms up, waits for the start, works, and reports.

use super::bare::Bare;
use super::lane::{Lane, Phase, Until};
use crate::bench::clock::now;
use crate::bench::document::effort::Length;
use crate::bench::document::workload::Workload;
use crate::bench::times::{Counts, Times};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// The number of this process's first thread among all threads.
    pub first_lane: u32,
    /// One for each thread, or one for all threads.
    pub files: Vec<PathBuf>,
    /// Must be loaded: the loader runs a program even without a library that it cannot load.
    pub library: Option<PathBuf>,
    /// The work is done without calls.
    #[serde(default)]
    pub bare: Option<Bare>,
}

/// The phases measured. Both in one process, unless the first calls of a process are what matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phases {
    /// All calls together, without reading the clock for each.
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
    /// Calls of its stream, including the warm-up.
    pub ops: u64,
    pub writes: u64,
    pub together: Option<Phase>,
    pub each: Option<Phase>,
    pub reads: Counts,
    pub written: Counts,
    pub syncs: Counts,
    /// Without calls: bytes that were written back.
    #[serde(default)]
    pub to_medium: Option<u64>,
}

/// Printed by a worker that is warm.
pub const READY: &str = "ready";
/// A process that hangs must not make the bench hang.
const PATIENCE: u32 = 1800;

/// Works, and prints the report.
pub fn main(args: &Args) -> Result<(), String> {
    let job: Job = serde_json::from_str(&args.job).map_err(|error| format!("the job: {error}"))?;
    // SAFETY: touches no memory.
    unsafe { libc::alarm(PATIENCE) };
    if let Some(library) = &job.library {
        check_loaded(library)?;
    }
    let (report, lanes) = run(&job)?;
    say(&serde_json::to_string(&report).map_err(|error| error.to_string())?)?;
    // The files stay open until all have reported: a close would disturb the others, and end what the library counts.
    hear()?;
    drop(lanes);
    Ok(())
}

fn check_loaded(library: &Path) -> Result<(), String> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
    let name = library.display().to_string();
    let loaded = maps.lines().any(|line| line.ends_with(&name));
    if loaded {
        Ok(())
    } else {
        Err(format!("{name}: was not loaded by LD_PRELOAD; is it a library for this machine?"))
    }
}

fn say(line: &str) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|error| format!("stdout: {error}"))
}

/// The report, and the threads' files, still open.
fn run(job: &Job) -> Result<(Report, Vec<Lane>), String> {
    let threads = job.workload.threads;
    let (warm, begin) = (Barrier::new(threads as usize + 1), Barrier::new(threads as usize + 1));
    // The time when the work begins; 0: it does not begin.
    let start = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..threads)
            .map(|number| {
                let path = &job.files[number as usize % job.files.len()];
                let (warm, begin, start) = (&warm, &begin, &start);
                scope.spawn(move || {
                    let named = |error: std::io::Error| format!("{}: {error}", path.display());
                    // An error is reported after the barriers, where the other threads wait.
                    let lane = open(job, path, job.first_lane + number).map_err(named);
                    warm.wait();
                    begin.wait();
                    match start.load(Ordering::Relaxed) {
                        0 => Ok(None),
                        start => lane.and_then(|lane| work(job, lane, start).map_err(named)).map(Some),
                    }
                })
            })
            .collect();
        warm.wait();
        let told = say(READY).and_then(|()| hear());
        if *told.as_ref().unwrap_or(&false) {
            start.store(now(), Ordering::Relaxed);
        }
        begin.wait();
        told?;
        let (mut reports, mut open) = (Vec::new(), Vec::new());
        for lane in lanes {
            let done = lane.join().map_err(|_| "a thread has panicked".to_string())??;
            if let Some((report, lane)) = done {
                reports.push(report);
                open.push(lane);
            }
        }
        Ok((Report { lanes: reports }, open))
    })
}

/// Waits for the start; false if the bench cancels it because another process has failed.
fn hear() -> Result<bool, String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map(|length| length > 0).map_err(|error| format!("stdin: {error}"))
}

fn open(job: &Job, path: &Path, number: u32) -> std::io::Result<Lane> {
    let mut lane = Lane::open(path, &job.workload, job.measurement, number)?;
    if !job.workload.cold {
        lane.warm()?;
    }
    if let Some(bare) = job.bare {
        lane.become_bare(bare, path)?;
    }
    Ok(lane)
}

/// A fifth of a phase to warm up, and the phases that are measured.
fn work(job: &Job, mut lane: Lane, start: u64) -> std::io::Result<(LaneReport, Lane)> {
    let mut end = start;
    let mut next = |share: f64| match job.length {
        Length::Calls(calls) => Until::Calls((calls as f64 * share).ceil() as u64),
        Length::Seconds(seconds) => {
            end += (seconds * share * 1e9) as u64;
            Until::Time(end)
        }
    };
    if !job.workload.cold {
        lane.run::<false>(next(0.2))?;
    }
    let together = match job.phases {
        Phases::Each => None,
        _ => Some(lane.run::<false>(next(1.0))?),
    };
    let each = match job.phases {
        Phases::Together => None,
        _ => Some(lane.run::<true>(next(1.0))?),
    };
    if job.workload.writes() {
        // Dirty data must not disturb the next measurement; and its bytes count.
        lane.fsync()?;
    }
    let to_medium = lane.to_medium();
    lane.finish();
    let counts = |times: &Times| times.counts();
    let report = LaneReport {
        ops: lane.ops,
        writes: lane.writes,
        together,
        each,
        reads: counts(&lane.times.reads),
        written: counts(&lane.times.writes),
        syncs: counts(&lane.times.syncs),
        to_medium,
    };
    Ok((report, lane))
}
