//! Measures patterns in all their setups.

use super::args::Args;
use super::group::Group;
use super::patterns::{Pattern, Setup};
use super::token::Token;
use super::{blocks, database};
use crate::bench::crew::{self, Outcome};
use crate::bench::launch::{Under, me, name};
use famio::Settings;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// For each pattern and setup, the result of each round.
pub type Outcomes = Vec<Vec<Vec<Outcome>>>;

/// A run of the command, with its own folder.
pub struct Bench<'a> {
    args: &'a Args,
    settings: Settings,
    folder: PathBuf,
    rounds: u32,
    time: Duration,
}

impl<'a> Bench<'a> {
    pub fn new(args: &'a Args) -> Result<Self, String> {
        let (rounds, seconds) = args.extent();
        let time = Duration::try_from_secs_f64(seconds).map_err(|error| format!("--seconds: {error}"))?;
        let settings = args.options.gather()?;
        let folder = args.folder.join(format!("famio-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { args, settings, folder, rounds, time })
    }

    pub fn measure(&self, group: Group, patterns: &[Pattern]) -> Result<Outcomes, String> {
        let setups = group.setups();
        let mut outcomes: Outcomes = patterns.iter().map(|_| setups.iter().map(|_| Vec::new()).collect()).collect();
        if !group.is_sqlite() {
            setups.iter().try_for_each(|setup| {
                let file = self.file(setup);
                blocks::prepare(&file, self.args.size << 20).map_err(|error| format!("{}: {error}", file.display()))
            })?;
        }
        for _ in 0..self.rounds {
            for (pattern, outcomes) in patterns.iter().zip(&mut outcomes) {
                for (setup, outcomes) in setups.iter().zip(outcomes) {
                    let one = self.one(group, pattern, setup);
                    outcomes.push(one.map_err(|error| format!("{}, {}: {error}", pattern.title, setup.title))?);
                }
            }
        }
        Ok(outcomes)
    }

    /// The file of a setup. Each has its own, since Famio may leave a file in huge pages.
    fn file(&self, setup: &Setup) -> PathBuf {
        self.folder.join(format!("{}.db", if setup.under_famio { "famio" } else { "plain" }))
    }

    /// One measurement, of a new database or of the existing file.
    pub fn one(&self, group: Group, pattern: &Pattern, setup: &Setup) -> Result<Outcome, String> {
        let file = self.file(setup);
        if group.is_sqlite() {
            for suffix in ["", "-wal", "-shm", "-journal"] {
                let _ = std::fs::remove_file(file.with_extension(format!("db{suffix}")));
            }
            let journal = if setup.under_famio { "DELETE" } else { setup.journal };
            database::prepare(&file, self.args.rows, journal)?;
        }
        let token = self.folder.join("token");
        Token::prepare(&token).map_err(|error| format!("{}: {error}", token.display()))?;
        let mut commands = Vec::new();
        for (number, job) in pattern.jobs.iter().enumerate() {
            let mut command = self.command(setup, &file)?;
            command.args(["bench", "process-work", "--task", &name(job.task), "--me", &number.to_string()]);
            command.args(["--rows", &self.args.rows.to_string(), "--uncommitted", &pattern.uncommitted.to_string()]);
            command.arg("--token").arg(&token);
            if let Some(rate) = job.rate {
                command.args(["--rate", &rate.to_string()]);
            }
            if group.is_sqlite() {
                command.args(["--journal", setup.journal]);
            }
            if pattern.exclusive {
                command.arg("--exclusive");
            }
            command.arg(&file);
            commands.push((command, job.task.is_read()));
        }
        let count = || if setup.under_famio { self.hand_overs(&file) } else { Ok(0) };
        let outcome = crew::run(commands, self.time, count)?;
        if setup.under_famio && outcome.reads.torn > 0 {
            return Err(format!("{} of {} reads gave parts of two writes", outcome.reads.torn, outcome.reads.all));
        }
        if group.is_sqlite() {
            let changes = outcome.writes.all;
            let change = pattern.jobs.iter().find_map(|job| job.task.change());
            let rows = change.map_or(self.args.rows, |change| database::rows_after(change, self.args.rows, changes));
            let updates = match (group, change) {
                (Group::Requests, _) => outcome.writes.of_each.iter().map(|&each| database::updates_of(each)).sum(),
                (_, Some(database::Change::Update)) => changes,
                _ => 0,
            };
            database::check(&file, rows, updates)?;
        }
        Ok(outcome)
    }

    /// This command, plain or under Famio.
    fn command(&self, setup: &Setup, file: &Path) -> Result<Command, String> {
        let me = me()?;
        if setup.under_famio {
            Under { options: &self.args.options, policy: self.args.policy, more: setup.options }
                .famio(&[file], me.as_os_str())
        } else {
            Ok(Command::new(me))
        }
    }

    /// How often the file was handed over so far.
    fn hand_overs(&self, file: &Path) -> Result<u64, String> {
        let counted = famio::recovery::hand_overs(file, &self.settings).map_err(|error| error.to_string())?;
        Ok(counted.unwrap_or(0).into())
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
