//! Findings, each kind once.

use crate::space::Space;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its kind: two findings of the same kind are the same defect, as far as can be told.
    pub kind: String,
    /// Details.
    pub detail: String,
}

impl Found {
    /// A new one.
    pub fn new(kind: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: kind.into(), detail: detail.into() }
    }
}

/// All findings of a run.
pub struct Findings {
    keep: PathBuf,
    kinds: BTreeMap<String, u64>,
    most: usize,
    passed: u64,
    failed: u64,
}

impl Findings {
    /// None so far.
    pub fn new(space: &Space, most: usize) -> Self {
        Self { keep: space.keep.clone(), kinds: BTreeMap::new(), most, passed: 0, failed: 0 }
    }

    /// Counts a case without a finding.
    pub fn pass(&mut self) {
        self.passed += 1;
    }

    /// Counts a case with a finding; returns whether it is the first of its kind.
    pub fn fail(&mut self, found: &Found) -> bool {
        self.failed += 1;
        let times = self.kinds.entry(found.kind.clone()).or_default();
        *times += 1;
        *times == 1
    }

    /// Whether it is the first of its kind.
    pub fn is_new(&self, found: &Found) -> bool {
        !self.kinds.contains_key(&found.kind)
    }

    /// A name for a folder with evidence.
    pub fn number(&self) -> usize {
        self.kinds.len()
    }

    /// How many cases there were.
    pub fn cases(&self) -> u64 {
        self.passed + self.failed
    }

    /// Whether to stop.
    pub fn enough(&self) -> bool {
        self.kinds.len() >= self.most
    }

    /// Prints the summary; returns whether nothing was found.
    pub fn close(&self, time: Duration) -> bool {
        for (kind, times) in &self.kinds {
            println!("found {times} times: {kind}");
        }
        if !self.kinds.is_empty() {
            println!("evidence: {}", self.keep.display());
        }
        println!("total: {} passed, {} failed in {:.0} s", self.passed, self.failed, time.as_secs_f64());
        self.failed == 0
    }
}
