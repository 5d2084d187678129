//! What was found, and what it means.

use serde::Serialize;

/// How to judge a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    #[serde(rename = "ok")]
    Fine,
    /// Works, but needs attention.
    Note,
    /// Prevents protection.
    Problem,
}

/// One line of the report.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// Its subject.
    pub topic: &'static str,
    /// The judgement.
    pub verdict: Verdict,
    /// What was found.
    pub text: String,
}

impl Finding {
    /// As it should be.
    pub fn fine(topic: &'static str, text: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Fine, text: text.into() }
    }

    /// Works, but needs attention.
    pub fn note(topic: &'static str, text: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Note, text: text.into() }
    }

    /// Prevents protection.
    pub fn problem(topic: &'static str, text: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Problem, text: text.into() }
    }
}
