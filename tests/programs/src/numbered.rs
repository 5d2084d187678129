//! Programs whose transactions are numbered: `work` prints `ack N` when transaction N is durable; `check LAST`
//! succeeds if at least all transactions up to LAST are there, and none in part.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_test_support::session::{self, Kill};
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

/// Such a program.
pub struct Numbered<'a> {
    /// Its files that are atomic.
    pub globs: &'a [&'a str],
    /// The program, and its arguments before `work` or `check LAST`.
    pub words: Vec<OsString>,
    /// Additions to its environment.
    pub environment: &'a [(&'a str, &'a str)],
    /// Famio's expected messages.
    pub expected: &'a [&'a str],
    /// Longest time from its first acknowledgement to the kill.
    pub longest: Duration,
    /// Not killed before this: it creates its files with fewer SYNCs than surviving a power cut requires.
    pub makes_files_unsynced: bool,
}

impl Numbered<'_> {
    fn command(&self, job: &Job, under_famio: bool) -> Command {
        let mut command =
            if under_famio { job.under.famio(self.globs, &self.words[0]) } else { job.under.plain(&self.words[0]) };
        command.args(&self.words[1..]).envs(self.environment.iter().copied());
        command
    }

    /// Transactions, killed; then all acknowledged ones must be there, and none in part.
    pub fn run(&self, job: &mut Job, report: &mut Report, kills: u64) -> Result<(), String> {
        let mut last = 0;
        for kill in 1..=kills {
            let delay = job.random.time_up_to(self.longest);
            let how = if job.random.below(5) == 0 && (last > 0 || !self.makes_files_unsynced) {
                Kill::AfterStart(delay / 3)
            } else {
                Kill::AfterFirstLine(delay)
            };
            let mut work = self.command(job, true);
            work.arg("work");
            let ended = session::drive(work, std::iter::empty(), how)?;
            report.kills += u64::from(ended.killed);
            let rest = report.said(&ended.messages, self.expected);
            report.check(ended.killed && rest.is_empty(), || format!("kill {kill}: {}: {rest}", ended.status));
            for number in ended.acknowledged() {
                report.check(number > last, || format!("kill {kill}: {number} was acknowledged after {last}"));
                last = number;
                report.acknowledged += 1;
            }
            // Half of the checks run without Famio, after `famio recover`; the others find what the kill left.
            let plain = job.random.below(2) == 0;
            if plain {
                job.under.recover()?;
            }
            let mut check = self.command(job, !plain);
            check.args(["check", &last.to_string()]);
            let checked = under::run(check)?;
            // Killed before it had created a file: there is nothing to check.
            let nothing_made = (last == 0).then_some("selected no file that the program wrote");
            let expected: Vec<_> = self.expected.iter().copied().chain(nothing_made).collect();
            let rest = report.said(&checked.messages, &expected);
            report.check(checked.is_ok(), || format!("after kill {kill}: {}: {rest}", checked.status));
            if !report.is_clean() {
                return Ok(());
            }
        }
        let left = under::leftovers(job.under.folder)?;
        report.check(left.is_empty(), || format!("left behind: {}", left.join(", ")));
        Ok(())
    }
}
