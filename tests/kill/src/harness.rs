//! One configuration: kill, check, go on, and count.

use crate::workload;
use famio_test_support::launch::Launcher;
use famio_test_support::random::Random;
use famio_test_support::session::{self, Ended, Kill};
use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What to do, and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// SQLite's journal mode: `OFF`, `MEMORY`.
    pub journal_mode: String,
    /// The number of SIGKILLs that must hit.
    pub kills: u64,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Longest time from the first acknowledged transaction to the kill.
    pub longest: Duration,
    /// Stop at the first corruption.
    pub stop_early: bool,
}

/// The results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// SIGKILLs that hit a living process.
    pub kills: u64,
    /// Kills that hit before the first acknowledgement: during open, recovery, or the first transaction.
    pub early: u64,
    /// Acknowledged transactions.
    pub acknowledged: u64,
    /// Databases that `integrity_check` or SQLite itself reported as corrupt.
    pub corrupt: u64,
    /// Databases with part of a transaction.
    pub torn: u64,
    /// Acknowledged transactions that were lost.
    pub lost: u64,
    /// Sessions that failed otherwise, or hung.
    pub failed: u64,
    /// The first few findings, as text.
    pub findings: Vec<String>,
}

impl Tally {
    /// Whether nothing bad was found.
    pub fn is_clean(&self) -> bool {
        self.corrupt + self.torn + self.lost + self.failed == 0
    }

    /// Adds another configuration's counts.
    pub fn add(&mut self, other: &Tally) {
        self.kills += other.kills;
        self.early += other.early;
        self.acknowledged += other.acknowledged;
        self.corrupt += other.corrupt;
        self.torn += other.torn;
        self.lost += other.lost;
        self.failed += other.failed;
        self.findings.extend(other.findings.iter().cloned());
    }

    fn note(&mut self, text: String) {
        if self.findings.len() < 5 {
            self.findings.push(text);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills ({} early), {} transactions acknowledged: {} corrupt, {} torn, {} lost, {} failed",
            self.kills, self.early, self.acknowledged, self.corrupt, self.torn, self.lost, self.failed
        )
    }
}

/// Runs a plan on the database `folder/kill.db`.
pub fn run(launcher: &Launcher, folder: &Path, plan: &Plan) -> Result<Tally, String> {
    let database = folder.join("kill.db");
    let mut random = Random::new(plan.seed);
    let mut tally = Tally::default();
    let mut last = 0;
    // Sessions that end before their kill do not count; a harness that cannot hit anything stops.
    for _ in 0..plan.kills * 10 {
        if tally.kills >= plan.kills || (plan.stop_early && !tally.is_clean()) {
            break;
        }
        // Mostly during work; sometimes so early that open and recovery are hit.
        let kill = match random.below(4) {
            0 => Kill::AfterStart(random.time_up_to(Duration::from_millis(12))),
            _ => Kill::AfterFirstLine(random.time_up_to(plan.longest)),
        };
        let ended = session::run(launcher, &database, work(plan, random.next_u64()), kill)?;
        let mut sound = judge_work(&ended, &mut last, &mut tally);
        if sound && random.below(4) == 0 {
            sound = recover(launcher, &database, &mut random, &mut tally)?;
        }
        // Sometimes the next session finds what this one left, without a check and a clean close in between.
        if sound && random.below(3) != 0 {
            let text = workload::pragmas(&plan.journal_mode) + &workload::check();
            let ended = session::run(launcher, &database, std::iter::once(text), Kill::Never)?;
            sound = judge_check(&ended, last, &mut tally);
        }
        if !sound {
            remove(&database)?;
            last = 0;
        }
    }
    let text = workload::pragmas(&plan.journal_mode) + &workload::check();
    if database.exists() && last > 0 {
        let ended = session::run(launcher, &database, std::iter::once(text), Kill::Never)?;
        if judge_check(&ended, last, &mut tally) && launcher.famio.is_some() {
            judge_leftovers(&database, &mut tally)?;
        }
    }
    if tally.kills < plan.kills && tally.is_clean() {
        tally.failed += 1;
        tally.note(format!("only {} of {} kills hit", tally.kills, plan.kills));
    }
    Ok(tally)
}

/// Runs `famio recover`, which is sometimes killed and repeated. Returns whether everything is well.
fn recover(launcher: &Launcher, database: &Path, random: &mut Random, tally: &mut Tally) -> Result<bool, String> {
    // Killed before the file was created: nothing to recover.
    let Some(famio) = launcher.famio.as_ref().filter(|_| database.exists()) else { return Ok(true) };
    let mut command = Command::new(&famio.binary);
    command.arg("recover").arg(database).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error| format!("{}: {error}", famio.binary.display());
    let killed_before = random.below(2) == 0;
    if killed_before {
        let mut child = command.spawn().map_err(failed)?;
        std::thread::sleep(random.time_up_to(Duration::from_millis(6)));
        child.kill().and_then(|()| child.wait()).map_err(failed)?;
    }
    let output = command.output().map_err(failed)?;
    if !output.status.success() {
        tally.failed += 1;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().replace('\n', "; ");
        let before = if killed_before { ", after one that was killed" } else { "" };
        tally.note(format!("famio recover{before} ({}): {text}", output.status));
    }
    Ok(output.status.success())
}

/// After a normal exit nothing of Famio's is left: no journal, no mark.
fn judge_leftovers(database: &Path, tally: &mut Tally) -> Result<(), String> {
    let folder = database.parent().unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // SQLite itself may leave files beside the database, such as a truncated journal.
    let own = format!("{}-", database.display());
    let mut left = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path != database && !path.to_string_lossy().starts_with(&own) {
            left.push(path.display().to_string());
        } else if has_mark(&path) {
            left.push(format!("the attribute user.famio of {}", path.display()));
        }
    }
    if !left.is_empty() {
        tally.failed += 1;
        tally.note(format!("left behind after a clean end: {}", left.join(", ")));
    }
    Ok(())
}

/// Whether a journal belongs to the file.
pub fn has_mark(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: both are C strings, and nothing is written without room for it.
    unsafe { libc::getxattr(path.as_ptr(), c"user.famio".as_ptr(), std::ptr::null_mut(), 0) >= 0 }
}

/// An endless script.
fn work(plan: &Plan, seed: u64) -> impl Iterator<Item = String> + Send {
    let mut random = Random::new(seed);
    let start = workload::pragmas(&plan.journal_mode) + &workload::schema();
    std::iter::once(start).chain(std::iter::repeat_with(move || workload::transaction(&mut random)))
}

/// Acknowledgements must continue where the last ones ended: a number that comes twice was lost in between.
fn judge_work(ended: &Ended, last: &mut u64, tally: &mut Tally) -> bool {
    let mut sound = true;
    let mut any = false;
    for number in ended.acknowledged() {
        if number <= *last {
            tally.lost += *last + 1 - number;
            tally.note(format!("transaction {number} was acknowledged again, {} had been before", *last));
            sound = false;
        }
        *last = number;
        tally.acknowledged += 1;
        any = true;
    }
    if ended.killed {
        tally.kills += 1;
        tally.early += u64::from(!any);
    } else {
        // The script does not end, so sqlite3 must not end either.
        sound = false;
        judge_error(ended, tally);
    }
    sound
}

/// The state must have every acknowledged transaction, and may have the one that was under way.
pub fn judge_check(ended: &Ended, last: u64, tally: &mut Tally) -> bool {
    let lines = ended.text();
    if !ended.is_ok() || lines.last() != Some(&"checked") {
        // Killed before the tables were created: nothing was acknowledged.
        if last == 0 && ended.messages.contains("no such table") {
            return true;
        }
        judge_error(ended, tally);
        return false;
    }
    let mut sound = true;
    let integrity: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("integrity ")).collect();
    if integrity != ["ok"] {
        tally.corrupt += 1;
        tally.note(format!("integrity_check: {}", integrity.join("; ")));
        sound = false;
    }
    let torn: Vec<_> = lines.iter().filter(|line| line.starts_with("torn ")).copied().collect();
    if !torn.is_empty() {
        tally.torn += 1;
        tally.note(torn.join("; "));
        sound = false;
    }
    let found = lines.iter().find_map(|line| line.strip_prefix("last ")?.parse::<u64>().ok()).unwrap_or(0);
    if found < last {
        tally.lost += last - found;
        tally.note(format!("{last} transactions were acknowledged, {found} are there"));
        sound = false;
    }
    sound
}

/// SQLite stopped by itself: corruption if it says so, otherwise a failure.
fn judge_error(ended: &Ended, tally: &mut Tally) {
    let message = ended.messages.trim().replace('\n', "; ");
    if ["malformed", "not a database", "constraint failed", "no such table"].iter().any(|word| message.contains(word)) {
        tally.corrupt += 1;
    } else {
        tally.failed += 1;
    }
    let how = if ended.hung { "hung" } else { "ended" };
    tally.note(format!("sqlite3 {how} ({}): {message}", ended.status));
}

fn remove(database: &Path) -> Result<(), String> {
    match std::fs::remove_file(database) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", database.display()));
        }
        _ => {}
    }
    // Its journal now has no file.
    let journals = database.with_file_name(".famio");
    if journals.exists() {
        std::fs::remove_dir_all(&journals).map_err(|error| format!("{}: {error}", journals.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Instant;

    fn ended(lines: &[&str], messages: &str, killed: bool) -> Ended {
        let status = match (killed, messages) {
            (true, _) => ExitStatus::from_raw(9),
            (false, "") => ExitStatus::from_raw(0),
            (false, _) => ExitStatus::from_raw(1 << 8),
        };
        let lines = lines.iter().map(|line| (Instant::now(), line.to_string())).collect();
        Ended { lines, messages: messages.into(), status, killed, hung: false }
    }

    fn check(lines: &[&str], messages: &str, last: u64) -> (bool, Tally) {
        let mut tally = Tally::default();
        let sound = judge_check(&ended(lines, messages, false), last, &mut tally);
        (sound, tally)
    }

    #[test]
    fn a_sound_database() {
        for last in [6, 7] {
            assert_eq!(check(&["integrity ok", "last 7", "checked"], "", last), (true, Tally::default()));
        }
        assert!(check(&[], "Parse error: no such table: ledger", 0).0);
    }

    #[test]
    fn everything_bad_is_counted() {
        let (sound, tally) = check(&["integrity ok", "last 7", "checked"], "", 9);
        assert!(!sound && tally.lost == 2, "{tally}");
        let (sound, tally) = check(&["integrity ok", "last 7", "torn slots: x", "torn item y", "checked"], "", 7);
        assert!(!sound && tally.torn == 1, "{tally}");
        let (sound, tally) = check(&["integrity wrong # of entries", "last 7", "checked"], "", 7);
        assert!(!sound && tally.corrupt == 1, "{tally}");
        let (sound, tally) = check(&["integrity ok"], "Runtime error: database disk image is malformed", 7);
        assert!(!sound && tally.corrupt == 1, "{tally}");
        let (sound, tally) = check(&[], "Parse error: no such table: ledger", 3);
        assert!(!sound && tally.corrupt == 1, "{tally}");
        let (sound, tally) = check(&["integrity ok", "last 7"], "", 7);
        assert!(!sound && tally.failed == 1, "{tally}");
    }

    #[test]
    fn a_number_that_comes_twice_was_lost() {
        let mut tally = Tally::default();
        let mut last = 0;
        assert!(judge_work(&ended(&["ack 1", "ack 2"], "", true), &mut last, &mut tally));
        assert!(judge_work(&ended(&["ack 3"], "", true), &mut last, &mut tally));
        assert!(tally.is_clean() && tally.kills == 2 && tally.acknowledged == 3, "{tally}");
        assert!(!judge_work(&ended(&["ack 3"], "", true), &mut last, &mut tally));
        assert_eq!((tally.lost, last), (1, 3));
        assert!(!judge_work(&ended(&["ack 4"], "", false), &mut last, &mut tally));
        assert_eq!(tally.failed, 1);
    }
}
