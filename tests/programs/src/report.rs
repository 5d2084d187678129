//! The result of a run.

use std::collections::BTreeMap;
use std::fmt;

/// Counts, Famio's messages, and what is wrong.
#[derive(Default)]
pub struct Report {
    /// Comparisons and checks that held.
    pub checks: u64,
    /// SIGKILLs that hit a living program.
    pub kills: u64,
    /// Units of work acknowledged before the kills.
    pub acknowledged: u64,
    /// Why nothing was run.
    pub skipped: Option<String>,
    notices: BTreeMap<String, u64>,
    findings: Vec<String>,
}

impl Report {
    /// Notes that something is wrong.
    pub fn finding(&mut self, text: impl Into<String>) {
        self.findings.push(text.into());
    }

    /// Counts a check, or notes what is wrong.
    pub fn check(&mut self, holds: bool, wrong: impl FnOnce() -> String) -> bool {
        if holds {
            self.checks += 1;
        } else {
            self.finding(wrong());
        }
        holds
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Processes a program's stderr: counts Famio's lines, each of which must contain one of `expected`, and returns
    /// the others.
    pub fn said(&mut self, messages: &str, expected: &[&str]) -> String {
        let mut rest = String::new();
        for line in messages.lines() {
            let Some(notice) = line.strip_prefix("famio: ") else {
                rest.push_str(line);
                rest.push('\n');
                continue;
            };
            // Without the name of the file.
            let what = notice.split_once(": ").map_or(notice, |(_, what)| what).to_string();
            let count = self.notices.entry(what).or_default();
            *count += 1;
            if *count == 1 && !expected.iter().any(|part| notice.contains(part)) {
                self.finding(format!("not expected: {line}"));
            }
        }
        rest
    }

    /// The notices and findings, a line each.
    pub fn details(&self) {
        for (notice, count) in &self.notices {
            println!("          said {count} times: {notice}");
        }
        const SHOWN: usize = 8;
        for finding in self.findings.iter().take(SHOWN) {
            println!("          FOUND: {}", finding.trim_end().replace('\n', "\n            "));
        }
        if self.findings.len() > SHOWN {
            println!("          and {} more", self.findings.len() - SHOWN);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.skipped {
            return write!(f, "SKIPPED: {why}");
        }
        let verdict = if self.is_clean() { "ok" } else { "NOT OK" };
        let Self { checks, kills, acknowledged, .. } = self;
        write!(f, "{checks} checks, {kills} kills, {acknowledged} acknowledged: {verdict}")
    }
}
