//! What was counted.

use super::moment::Moment;
use crate::text::count;
use std::fmt;
use std::time::Duration;

/// What was counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// Kills that hit a living program.
    pub kills: u64,
    /// Of them, those that hit a stopped one.
    pub stopped: u64,
    /// How often the program ended by itself.
    pub ended: u64,
    /// Files brought to their last SYNC.
    pub recovered: u64,
    /// Journals found, whatever was in them.
    pub found: u64,
    /// Checks.
    pub checks: u64,
    /// The last kill.
    pub last: Option<Moment>,
}

impl Tally {
    /// One kill more.
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
