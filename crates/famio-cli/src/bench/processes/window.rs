//! When the processes of a measurement work, and what each reports to the bench.

use crate::bench::clock::{now, sleep_until};
use crate::bench::times::{Counts, Times};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::time::Duration;

/// Printed by a worker that has opened its file.
pub const READY: &str = "ready";
/// Seconds after the end until the process is killed: one that waits for another one forever must not make the bench
/// hang.
const PATIENCE: u64 = 120;

/// The measured time, in nanoseconds of the monotonic clock, which is the same in all processes. Calls before it are
/// a warm-up.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Window {
    pub start: u64,
    pub end: u64,
}

/// One call.
pub struct Call {
    pub took: Duration,
    /// The data read came from one write.
    pub is_whole: bool,
}

impl Call {
    pub fn of(took: Duration) -> Self {
        Self { took, is_whole: true }
    }
}

/// What a worker has done.
#[derive(Serialize, Deserialize)]
pub struct Report {
    /// Calls per second, of those that ended in the window.
    pub rate: f64,
    /// All calls, including those before the window.
    pub all: u64,
    /// Calls that read parts of two writes.
    pub torn: u64,
    /// Of all calls that overlapped the window.
    pub times: Counts,
}

/// Waits for the bench, makes calls until the window ends, reports, and waits until all other processes have ended: a
/// process that exited earlier would make the others' work easier. `rate`: the most calls per second. A call that
/// returns `None` is the last.
pub fn work(rate: Option<f64>, mut call: impl FnMut(&Window) -> Result<Option<Call>, String>) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    say(READY)?;
    if input.read_line(&mut line).map_err(failed)? == 0 {
        return Ok(()); // another worker could not start
    }
    let window: Window = serde_json::from_str(&line).map_err(|error| error.to_string())?;
    // SAFETY: touches no memory.
    unsafe { libc::alarm((window.end.saturating_sub(now()) / 1_000_000_000 + PATIENCE) as u32) };
    let report = measure(&window, rate, &mut call)?;
    say(&serde_json::to_string(&report).map_err(|error| error.to_string())?)?;
    line.clear();
    input.read_line(&mut line).map_err(failed)?;
    Ok(())
}

fn say(line: &str) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|error| error.to_string())
}

fn measure(
    window: &Window,
    rate: Option<f64>,
    call: &mut dyn FnMut(&Window) -> Result<Option<Call>, String>,
) -> Result<Report, String> {
    let mut times = Times::new()?;
    let (mut measured, mut all, mut torn) = (0u64, 0, 0);
    let pause = rate.map(|rate| (1e9 / rate) as u64);
    let mut next = now();
    loop {
        if let Some(pause) = pause {
            sleep_until(next.min(window.end));
            // If it is late, calls are left out, not made up for by a burst.
            next = (next + pause).max(now());
        }
        if now() >= window.end {
            break;
        }
        let Some(done) = call(window)? else { break };
        let ended = now();
        all += 1;
        torn += u64::from(!done.is_whole);
        if ended >= window.start {
            // Includes a call that began before, or ends after, the window: the long waits are the ones that matter.
            times.add(done.took);
            measured += u64::from(ended < window.end);
        }
    }
    let seconds = (window.end - window.start) as f64 / 1e9;
    Ok(Report { rate: measured as f64 / seconds, all, torn, times: times.counts() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(milliseconds: u64) -> Window {
        let start = now() + 2_000_000;
        Window { start, end: start + milliseconds * 1_000_000 }
    }

    #[test]
    fn only_calls_in_the_window_are_measured() {
        let mut calls = 0;
        let report = measure(&window(10), None, &mut |_| {
            calls += 1;
            std::thread::sleep(Duration::from_micros(100));
            Ok(Some(Call { took: Duration::from_micros(calls), is_whole: calls != 1 }))
        });
        let report = report.unwrap();
        let mut times = Times::new().unwrap();
        times.add_all(&report.times);
        assert_eq!((report.all, report.torn), (calls, 1));
        assert!(times.at(0.0) > 1000.0 && report.rate > 0.0 && report.rate < 10_000.0);
    }

    #[test]
    fn a_rate_is_kept_to_and_a_call_can_be_the_last() {
        let report = measure(&window(100), Some(100.0), &mut |_| Ok(Some(Call::of(Duration::ZERO)))).unwrap();
        assert!((1.0..=110.0).contains(&report.rate), "{}", report.rate);
        assert_eq!(measure(&window(10), None, &mut |_| Ok(None)).unwrap().all, 0);
    }

    #[test]
    fn a_call_as_long_as_the_window_is_seen() {
        let report = measure(&window(5), None, &mut |_| {
            std::thread::sleep(Duration::from_millis(20));
            Ok(Some(Call::of(Duration::from_millis(20))))
        });
        let report = report.unwrap();
        let mut times = Times::new().unwrap();
        times.add_all(&report.times);
        assert!(report.rate == 0.0 && times.longest() > 19e6);
    }
}
