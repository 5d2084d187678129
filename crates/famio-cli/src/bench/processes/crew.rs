//! The processes of one measurement: all begin at once, and none exits before all have finished.

use super::window::{READY, Report, Window};
use crate::bench::clock::{now, sleep_until};
use crate::bench::member::Member;
use crate::bench::times::Times;
use std::process::Command;
use std::time::Duration;

/// Time to tell all processes when to begin.
const LEAD: Duration = Duration::from_millis(10);

/// What all readers, or all writers, did together.
pub struct Side {
    /// Calls per second, of all of them.
    pub rate: f64,
    pub times: Times,
    /// All calls, including those before the window.
    pub all: u64,
    pub torn: u64,
}

/// The result of one measurement.
pub struct Outcome {
    pub reads: Side,
    pub writes: Side,
    /// How much the count grew in the window.
    pub counted: u64,
}

/// Runs the jobs, each with whether it reads, for this time after a warm-up. `count` is called at the beginning and
/// at the end of the window.
pub fn run(
    commands: Vec<(Command, bool)>,
    time: Duration,
    count: impl Fn() -> Result<u64, String>,
) -> Result<Outcome, String> {
    let mut members = Vec::new();
    for (command, reads) in commands {
        members.push((Member::start(command)?, reads));
    }
    for (member, _) in &mut members {
        match member.line()? {
            line if line == READY => {}
            other => return Err(format!("not ready: {other}")),
        }
    }
    let start = now() + (LEAD + time / 5).as_nanos() as u64;
    let window = Window { start, end: start + time.as_nanos() as u64 };
    let text = serde_json::to_string(&window).map_err(|error| error.to_string())?;
    members.iter_mut().for_each(|(member, _)| member.tell(&text));
    sleep_until(window.start);
    let before = count()?;
    sleep_until(window.end);
    let counted = count()?.saturating_sub(before);

    let side = || Ok::<_, String>(Side { rate: 0.0, times: Times::new()?, all: 0, torn: 0 });
    let (mut reads, mut writes) = (side()?, side()?);
    for (member, is_reader) in &mut members {
        let line = member.line()?;
        let report: Report = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
        let side = if *is_reader { &mut reads } else { &mut writes };
        side.rate += report.rate;
        side.all += report.all;
        side.torn += report.torn;
        side.times.add_all(&report.times);
    }
    members.iter_mut().try_for_each(|(member, _)| member.end())?;
    Ok(Outcome { reads, writes, counted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (Command, bool) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        (command, false)
    }

    #[test]
    fn one_that_fails_is_named_and_the_others_go() {
        let run = |scripts: &[&str]| {
            let commands = scripts.iter().map(|script| shell(script)).collect();
            run(commands, Duration::from_millis(1), || Ok(0)).err().unwrap()
        };
        assert!(run(&["echo ready; exec sleep 100", "echo why >&2; exit 3"]).contains("why"));
        assert!(run(&["echo ready; read x; echo no >&2; exit 1", "echo ready; exec sleep 100"]).contains("no"));
        assert!(run(&["kill -9 $$"]).contains("signal: 9"));
        assert!(run(&["echo what"]).contains("not ready: what"));
        assert!(run(&["echo ready; read x; echo {}"]).contains("missing field"));
    }
}
