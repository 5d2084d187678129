//! SQLite's own tests of its I/O: each file of them runs without Famio, and with all files of its folder atomic, and
//! the same cases must fail. `scripts/sqlite-suite` builds the program, testfixture.

use crate::job::Job;
use crate::report::Report;
use crate::under::{self, Under};
use famio_test_support::place;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The files, by their names without `.test`; a line for tmpfs only begins with `tmpfs`.
const FILES: &str = include_str!("scripts/sqlite-suite.txt");

/// Cases with different results under Famio, with the reason. A pattern may end with `*`.
const DIFFERENT: &[(&str, &str)] = &[];

/// Famio's expected messages.
const EXPECTED: &[&str] = &[];

/// The result of a file of tests.
#[derive(Default)]
struct Outcome {
    /// The number of cases; `None` if it did not finish.
    cases: Option<u64>,
    failed: BTreeSet<String>,
}

impl Outcome {
    fn new(lines: &[&str]) -> Self {
        let mut outcome = Self::default();
        for line in lines {
            if let Some(names) = line.strip_prefix("!Failures on these tests:") {
                outcome.failed.extend(names.split_whitespace().map(String::from));
            } else if let Some((_, rest)) = line.split_once(" errors out of ") {
                outcome.cases = rest.split(' ').next().and_then(|count| count.parse().ok());
            }
        }
        outcome
    }
}

/// The path of testfixture, if it was built.
fn built() -> Option<PathBuf> {
    let done = under::target()?.join("sqlite-suite/done");
    let folder = PathBuf::from(std::fs::read_to_string(done).ok()?.trim_end());
    folder.join("testfixture").exists().then_some(folder)
}

/// The names of the files that are run here.
fn files(in_memory: bool) -> impl Iterator<Item = &'static str> {
    let lines = FILES.lines().filter(|line| !line.starts_with('#'));
    let here = lines.map(move |line| line.strip_prefix("tmpfs ").map_or((line, true), |line| (line, in_memory)));
    here.filter(|(_, is_here)| *is_here).flat_map(|(line, _)| line.split_whitespace())
}

/// All files.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let Some(suite) = built() else {
        report.skipped = Some("testfixture is not built (scripts/sqlite-suite)".into());
        return Ok(());
    };
    // Some cases expect refusals that do not apply to root.
    report.skipped = job.under.as_ordinary_user()?;
    if report.skipped.is_some() {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    for name in files(place::file_system(job.under.folder) == "tmpfs") {
        let run = |under_famio: bool| -> Result<_, String> {
            let folder = job.under.folder.join("suite");
            std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            under::clear(&folder)?;
            let under: Under = job.under.within(&folder)?;
            let testfixture = suite.join("testfixture");
            let mut command =
                if under_famio { under.famio(&["testdir/**"], testfixture) } else { under.plain(testfixture) };
            command.arg(suite.join(format!("test/{name}.test")));
            let ended = under::run(command)?;
            let left = if under_famio { under::leftovers(&folder)? } else { Vec::new() };
            Ok((Outcome::new(&ended.text()), ended, left))
        };
        let (expected, plain, _) = run(false)?;
        let (found, ended, left) = run(true)?;
        report.said(&ended.messages, EXPECTED);
        report.check(left.is_empty(), || format!("{name}: left behind: {}", left.join(", ")));
        let Some(cases) = expected.cases else {
            report.finding(format!("{name}: does not come to its end without Famio: {}", plain.status));
            continue;
        };
        report.acknowledged += cases;
        let different: Vec<&String> = expected.failed.symmetric_difference(&found.failed).collect();
        for case in &different {
            let reason = reason(case);
            seen.extend(reason);
            report.check(reason.is_some(), || {
                let how = if found.failed.contains(*case) { "fails" } else { "does not fail" };
                format!("{case} {how} under Famio: {}", text_of(case, &ended.text()))
            });
        }
        // Cases that depend on a failed one may be left out.
        let is_whole = found.cases == expected.cases || found.cases.is_some() && !different.is_empty();
        report.check(is_whole, || {
            let last = ended.text().last().map(|line| line.to_string()).unwrap_or_default();
            format!(
                "{name}: {:?} cases, {cases} without Famio: {}, hung: {}: {last}",
                found.cases, ended.status, ended.hung
            )
        });
    }
    for (case, why) in DIFFERENT {
        let how = if seen.contains(why) { "differs" } else { "no longer differs" };
        println!("          {case} {how}: {why}");
    }
    Ok(())
}

fn reason(case: &str) -> Option<&'static str> {
    let is_selected =
        |pattern: &str| pattern.strip_suffix('*').map_or(case == pattern, |start| case.starts_with(start));
    DIFFERENT.iter().find(|(pattern, _)| is_selected(pattern)).map(|(_, why)| *why)
}

/// testfixture's output for a failed case.
fn text_of(case: &str, lines: &[&str]) -> String {
    let start = format!("! {case} ");
    lines.iter().filter(|line| line.starts_with(&start)).copied().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_for_memory_only() {
        let (memory, disk): (Vec<_>, Vec<_>) = (files(true).collect(), files(false).collect());
        assert!(memory.contains(&"pager1") && !disk.contains(&"pager1") && disk.contains(&"io"));
        assert!(memory.len() > 70 && disk.len() > 40 && !memory.contains(&"tmpfs"));
    }

    #[test]
    fn failures_and_counts_are_read() {
        let outcome = Outcome::new(&[
            "io-1.1... Ok",
            "! io-5.5 expected: [1]",
            "! io-5.5 got: [2]",
            "1 errors out of 29 tests on vm Linux 64-bit little-endian",
            "!Failures on these tests: io-5.5 io-5.6",
        ]);
        assert_eq!(outcome.cases, Some(29));
        assert_eq!(outcome.failed, BTreeSet::from(["io-5.5".to_string(), "io-5.6".to_string()]));
        assert_eq!(Outcome::new(&["io-1.1... Ok"]).cases, None);
    }
}
