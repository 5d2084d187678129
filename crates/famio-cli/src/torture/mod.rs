//! `famio torture`: kills a program repeatedly, recovers its files, and runs the user's checker.

mod check;
mod evidence;
mod moment;
mod places;
mod program;
mod tally;

use crate::failure::{FAILED, Failure};
use crate::interrupt::Interrupts;
use crate::progress::{self, Bar};
use crate::recover;
use crate::run::{self, Protect};
use evidence::Evidence;
use famio::Settings;
use famio::recovery::{self, Outcome};
use moment::Moments;
use places::Places;
use program::{Ended, Program};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tally::{Tally, seconds};

/// Bad usage, or a run that tested nothing.
const NOTHING: i32 = 2;

/// Kill a program again and again, recover its files, and check them
///
/// Runs the program as 'famio run' does, sends SIGKILL to it and all that it started at a random moment, recovers as
/// 'famio recover' does, and runs the checker. Then repeats this with the files as they are. Before one kill in four
/// the program is stopped (SIGSTOP) for a while. The command ends at the first failure, and keeps the evidence.
#[derive(clap::Args)]
#[command(after_help = HELP, override_usage = "famio torture [OPTIONS] --check <CHECK> -- <CMD>...")]
pub struct Args {
    /// A shell command that checks the recovered files, without Famio; exit status 0 means that they are right
    #[arg(long, value_name = "CHECK")]
    check: OsString,
    /// Number of kills that must hit the running program
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,
    /// Go on until something fails, or Ctrl-C
    #[arg(long, conflicts_with = "kills")]
    until_failure: bool,
    /// Longest time from the start to the kill [default: as long as the program runs, at most 2 s]
    #[arg(long, value_name = "SECONDS", value_parser = moment::parse)]
    within: Option<Duration>,
    /// Repeat the decisions of a run that printed this seed [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// A program that ends by itself may do so with any exit status
    #[arg(long)]
    may_fail: bool,
    /// Files, folders (with everything below) or pools to recover after a kill; may be repeated [default: the pool;
    /// else the folders that --atomic names, and the current folder]
    #[arg(long, value_name = "PATH")]
    recover: Vec<PathBuf>,
    /// Print a JSON object (docs/json.md) instead of the text on stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    protect: Protect,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const HELP: &str = "\
The program must be able to continue from what the last kill left. It is started again when it ends by itself. If its \
input is a file, every start reads it from the beginning; otherwise it has none. Its output goes to a file, which \
FAMIO_TORTURE_OUTPUT names for the checker: lines in that file were printed before the kill. \
FAMIO_TORTURE_KILLS tells the checker how many kills there were so far.

The seed repeats the decisions, not the scheduler's. During the run, and after a failure, the evidence is in \
famio-torture-SEED/ in the current folder: the files and journals as the kill left them, what the program and the \
checker printed, and report.txt.

Exit status: 0 if every check passed; 1 if one failed, or a recovery, or the program itself; 2 bad usage, or no kill \
found an atomic file in use, so that nothing was tested; 125, 126, 127 as famio run; 130 or 143 if interrupted.

Examples:
  famio torture --atomic app.db --check './check app.db' -- ./server
  famio torture --atomic app.db --kills 1000 \\
    --check 'sqlite3 app.db \"PRAGMA integrity_check\" | grep -qx ok' \\
    -- sqlite3 app.db < work.sql";

/// The result, as JSON shows it.
#[derive(serde::Serialize)]
struct Conclusion {
    seed: u64,
    kills: u64,
    stopped: u64,
    ended: u64,
    found: u64,
    recovered: u64,
    checks: u64,
    passed: bool,
    failure: Option<String>,
    said: Option<String>,
    kept: Option<String>,
}

/// What went wrong in a round.
struct Wrong {
    what: String,
    /// The text printed about it.
    said: String,
}

/// Everything that a round needs.
struct Torture<'a> {
    args: &'a Args,
    settings: Settings,
    places: Places,
    program: Program<'a>,
    interrupts: Interrupts,
    evidence: Evidence,
    moments: Moments,
    tally: Tally,
}

/// Runs rounds until there are enough kills, or a failure.
pub fn main(args: Args) -> Result<i32, Failure> {
    let checked = run::check(&args.protect, &args.command)?;
    let usage = |error: String| Failure::new(NOTHING, error);
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    let evidence = Evidence::new(seed).map_err(usage)?;
    let interrupts = Interrupts::catch().map_err(usage)?;
    let mut torture = Torture {
        settings: checked.layer.settings(),
        places: Places::new(&args.recover, &checked.layer).map_err(usage)?,
        program: Program::new(&args.command, &args.protect, &checked.layer, evidence.folder()).map_err(usage)?,
        interrupts,
        evidence,
        moments: Moments::new(seed, args.within),
        tally: Tally::default(),
        args: &args,
    };
    if !args.json {
        println!("seed {seed}");
    }
    let result = torture.all();
    torture.conclude(result, seed)
}

impl Torture<'_> {
    /// `Ok(None)`: everything went well. `Err`: it could not continue, or was interrupted.
    fn all(&mut self) -> Result<Option<Wrong>, Failure> {
        let most = (!self.args.until_failure).then_some(self.args.kills);
        let bar = progress::kills(most);
        // A program that always ends before it can be killed must not keep this going forever.
        let mut misses = 0;
        while most.is_none_or(|most| self.tally.kills < most) {
            let before = self.tally.kills;
            if let Some(wrong) = self.round()? {
                bar.finish_and_clear();
                return Ok(Some(wrong));
            }
            bar.set_position(self.tally.kills);
            misses = if self.tally.kills > before { 0 } else { misses + 1 };
            if misses > 100 {
                bar.finish_and_clear();
                let text = "the program ended by itself 100 times in a row, before it could be killed; choose a shorter \
                            --within, or give it more to do";
                return Err(Failure::new(NOTHING, text));
            }
        }
        bar.finish_and_clear();
        Ok(None)
    }

    /// One life of the program, recovery, and check.
    fn round(&mut self) -> Result<Option<Wrong>, Failure> {
        let failed = |error: String| Failure::new(FAILED, error);
        let moment = self.moments.next();
        let ended = self.program.run(moment, &self.interrupts)?;
        match ended {
            Ended::Killed => self.tally.kill(moment),
            Ended::Itself(status, after) => {
                self.moments.ended_after(after);
                self.tally.ended += 1;
                if !status.success() && !self.args.may_fail {
                    let what = format!("the program ended by itself ({status}); --may-fail permits that");
                    return Ok(Some(Wrong { what, said: self.program.messages() }));
                }
            }
        }
        // Before anything touches them.
        self.evidence.take(&self.places, &self.settings).map_err(failed)?;
        if let Some(wrong) = self.recover()? {
            return Ok(Some(wrong));
        }
        let output = self.program.output();
        let verdict =
            check::run(&self.args.check, &output, self.evidence.folder(), self.tally.kills, &self.interrupts)?;
        self.tally.checks += 1;
        Ok(verdict.map(|(status, said)| Wrong { what: format!("the check failed ({status})"), said }))
    }

    fn recover(&mut self) -> Result<Option<Wrong>, Failure> {
        let mut lines = Vec::new();
        let mut sound = true;
        for place in self.places.all() {
            let reports =
                match recovery::recover_path(place, &self.settings, &recovery::Options::default(), &Bar::new()) {
                    Ok(reports) => reports,
                    Err(error) => return Err(Failure::new(FAILED, format!("recover {}: {error}", place.display()))),
                };
            // An unreadable folder beside the program's files is not the program's.
            for report in reports.into_iter().filter(|report| !matches!(report.outcome, Outcome::Unexamined(_))) {
                sound &= recover::status(&report.outcome) == 0;
                self.tally.recovered += u64::from(matches!(report.outcome, Outcome::Recovered | Outcome::Kept));
                self.tally.found += u64::from(!matches!(report.outcome, Outcome::NothingToDo));
                lines.push(recover::line(&report, place, false));
            }
        }
        Ok((!sound).then(|| Wrong { what: "the recovery failed".into(), said: lines.join("\n") }))
    }

    /// As [`conclude`](Self::conclude), for programs.
    fn conclude_in_json(mut self, result: Result<Option<Wrong>, Failure>, seed: u64) -> Result<i32, Failure> {
        let (wrong, failed) = match result {
            Ok(wrong) => (wrong, None),
            Err(failure) => (None, Some(failure)),
        };
        let has_tested = self.tally.found > 0;
        let passed = wrong.is_none() && failed.is_none() && has_tested;
        let kept = match &wrong {
            Some(wrong) => {
                let report = format!("{}\n{}\n{}\nseed {seed}\n", wrong.what, wrong.said.trim_end(), self.tally);
                let kept = self.evidence.keep(&self.places, &report);
                kept.map_err(|error| Failure::new(FAILED, error))?;
                Some(self.evidence.folder().display().to_string())
            }
            None => {
                self.evidence.discard();
                None
            }
        };
        let Tally { kills, stopped, ended, recovered, found, checks, .. } = self.tally;
        let outcome = Conclusion {
            seed,
            kills,
            stopped,
            ended,
            found,
            recovered,
            checks,
            passed,
            failure: wrong.as_ref().map(|wrong| wrong.what.clone()),
            said: wrong.as_ref().map(|wrong| wrong.said.clone()),
            kept,
        };
        crate::out::json(&outcome)?;
        match (failed, passed) {
            (Some(failure), _) => Err(failure),
            (None, true) => Ok(0),
            (None, false) => Ok(if wrong.is_some() { FAILED } else { NOTHING }),
        }
    }

    /// Prints the result.
    fn conclude(mut self, result: Result<Option<Wrong>, Failure>, seed: u64) -> Result<i32, Failure> {
        if self.args.json {
            return self.conclude_in_json(result, seed);
        }
        let tally = &self.tally;
        match result {
            Err(failure) => {
                println!("{tally}");
                self.evidence.discard();
                Err(failure)
            }
            Ok(None) if tally.found == 0 => {
                println!("{tally}");
                self.evidence.discard();
                let text = "no kill found an atomic file in use, so nothing was tested: do the globs of --atomic match, does \
                            the program write the files, and are they below the folders that were recovered (--recover)?";
                Err(Failure::new(NOTHING, text))
            }
            Ok(None) => {
                println!("{tally}: all passed");
                self.evidence.discard();
                Ok(0)
            }
            Ok(Some(wrong)) => {
                let after =
                    tally.last.map_or(String::new(), |moment| format!(", {} after the start", seconds(moment.after)));
                let head = format!("kill {}{after}: {}", tally.kills, wrong.what);
                let said: String = wrong.said.trim_end().lines().map(|line| format!("    {line}\n")).collect();
                println!("{head}\n{said}{tally}: FAILED");
                let kept = self.evidence.keep(&self.places, &format!("{head}\n{said}{tally}\nseed {seed}\n"));
                println!("kept in {}; the decisions repeat with --seed {seed}", self.evidence.folder().display());
                kept.map(|()| FAILED).map_err(|error| Failure::new(FAILED, error))
            }
        }
    }
}
