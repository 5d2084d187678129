//! Measures the ways of one task in turn, each in a process of its own.

use super::files::Files;
use super::work::{Task, Way};
use crate::bench::launch::{me, name};
use std::process::Command;

/// The result of one measurement, per record: nanoseconds, CPU nanoseconds of the reading thread and of all threads,
/// page faults of 1000 records.
pub type Figures = [f64; 4];

/// Measures all ways in turn; returns the results of all rounds for each way. Stops early when `go_on` returns false.
pub fn measure(
    rounds: u32,
    files: &Files,
    task: Task,
    ways: &[Way],
    limit: Option<u64>,
    go_on: impl Fn() -> bool,
) -> Result<Vec<Vec<Figures>>, String> {
    let mut figures = vec![Vec::new(); ways.len()];
    'rounds: for _ in 0..rounds {
        for (&way, figures) in ways.iter().zip(&mut figures) {
            let measured = one(files, task, way, limit);
            if !go_on() {
                break 'rounds; // a signal may have ended the measurement, too
            }
            figures.extend(measured?);
        }
    }
    Ok(figures)
}

/// One measurement. `None`: this file system does not support it.
fn one(files: &Files, task: Task, way: Way, limit: Option<u64>) -> Result<Option<Figures>, String> {
    let me = me()?;
    let mut command = Command::new(&me);
    command.args(["bench", "map-work", "--task", &name(task), "--way", &name(way)]);
    command.args(["--files", &files.count().to_string()]);
    if let Some(limit) = limit {
        command.args(["--limit", &limit.to_string()]);
    }
    let output = command.arg(files.folder()).output().map_err(|error| format!("{}: {error}", me.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [time, reader, cpu, faults] if output.status.success() => Ok(Some([time, reader, cpu, faults])),
        [] if output.status.success() => Ok(None),
        _ => Err(format!("{} {}: {}", name(task), name(way), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
