//! The program under test: it knows nothing of Famio. It executes the commands on stdin, one per line, and answers
//! each with one line.
//!
//! `steps N …`: those steps; `arm MICROSECONDS`: SIGKILL to itself after that time, from the next `steps` on;
//! `compare`; `take PATH`: copies all bytes of the atomic file to that file; `touch`: a write to it that changes
//! nothing; `lock`: locks all of it, for a moment; `base`: see [`super::past`]. It exits when the input ends.

use super::pair::Pair;
use super::past::Writer;
use super::step::{Kinds, step};
use clap::Args;
use std::io::{BufRead, Write};
use std::path::PathBuf;

/// The worker's options.
#[derive(Args, Clone, Debug)]
pub struct Worker {
    /// Where the files are
    pub folder: PathBuf,
    /// For the steps
    #[arg(long)]
    pub seed: u64,
    /// Where to write down what a kill may leave
    #[arg(long)]
    pub log: Option<PathBuf>,
    /// Map the file
    #[arg(long)]
    pub maps: bool,
    /// Fork
    #[arg(long)]
    pub forks: bool,
    /// Stay at the file
    #[arg(long)]
    pub stays: bool,
    /// Take no locks: releasing one changes what a kill rolls back
    #[arg(long)]
    pub no_locks: bool,
    /// No other process has the file open
    #[arg(long)]
    pub alone: bool,
}

/// Separates the lines within one answer.
pub const LINE: char = '\u{1f}';

/// Executes commands until the input ends.
pub fn run(worker: &Worker) -> Result<bool, String> {
    let kinds = Kinds { maps: worker.maps, forks: worker.forks, stays: worker.stays, locks: !worker.no_locks };
    let log = worker.log.as_deref().map(Writer::new).transpose()?;
    let mut pair = Pair::new(&worker.folder, log, kinds, worker.alone);
    if kinds.stays {
        pair.stay()?;
    }
    let mut timer = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("stdin: {error}"))?;
        let (what, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let done = match what {
            "arm" => rest.parse::<u64>().map(|micros| timer = Some(micros)).map_err(|error| format!("{rest}: {error}")),
            "steps" => {
                if let Some(micros) = timer.take() {
                    kill_me_in(micros)?;
                }
                rest.split(' ').filter(|word| !word.is_empty()).try_for_each(|word| {
                    let number: u64 = word.parse().map_err(|error| format!("{word}: {error}"))?;
                    let (step, look) = step(worker.seed, number, kinds);
                    pair.step(number, &step, look)
                })
            }
            "compare" => pair.compare(),
            "base" => pair.base(),
            "touch" => pair.touch(),
            "lock" => pair.lock(),
            "take" => {
                pair.bytes().and_then(|bytes| std::fs::write(rest, bytes).map_err(|error| format!("{rest}: {error}")))
            }
            _ => Err(format!("{line}: not known")),
        };
        let answer = done.map_or_else(|why| why.replace('\n', &LINE.to_string()), |()| "ok".into());
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(|error| format!("stdout: {error}"))?;
    }
    pair.end()?;
    Ok(true)
}

/// SIGKILL, by the kernel, at a moment unrelated to calls.
fn kill_me_in(micros: u64) -> Result<(), String> {
    // SAFETY: both structures are plain words; the timer is never deleted: it ends the process.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, libc::SIGKILL);
        let mut timer = std::mem::zeroed();
        let mut when: libc::itimerspec = std::mem::zeroed();
        (when.it_value.tv_sec, when.it_value.tv_nsec) =
            ((micros / 1_000_000) as i64, (micros % 1_000_000 * 1000 + 1) as i64);
        let made = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0
            && libc::timer_settime(timer, 0, &when, std::ptr::null_mut()) == 0;
        if made { Ok(()) } else { Err(format!("timer: {}", std::io::Error::last_os_error())) }
    }
}
