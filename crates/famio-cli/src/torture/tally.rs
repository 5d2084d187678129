//! The counts of a run.

use super::moment::Moment;
use crate::text::count;
use std::fmt;
use std::time::Duration;

/// The counts of a run.
#[derive(Debug, Default)]
pub struct Tally {
    /// Kills that hit a living program.
    pub kills: u64,
    /// Kills that hit a stopped program.
    pub stopped: u64,
    /// How often the program ended by itself.
    pub ended: u64,
    /// Files brought to their last SYNC.
    pub recovered: u64,
    /// Journals found, whatever they contained.
    pub found: u64,
    /// Checks.
    pub checks: u64,
    /// The last kill.
    pub last: Option<Moment>,
}

impl Tally {
    /// Counts one kill.
    pub fn kill(&mut self, moment: Moment) {
        self.kills += 1;
        self.stopped += u64::from(moment.stopped.is_some());
        self.last = Some(moment);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, stopped, ended, recovered, found, checks, .. } = self;
        write!(
            f,
            "{} ({stopped} while stopped), {} by itself, {} found, {} recovered, {}",
            count(*kills, "kill"),
            count(*ended, "end"),
            count(*found, "journal"),
            count(*recovered, "file"),
            count(*checks, "check")
        )
    }
}

/// A time for people.
pub fn seconds(time: Duration) -> String {
    format!("{:.4} s", time.as_secs_f64())
}
