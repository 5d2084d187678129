//! The output of the victim, of Famio and of the neighbour, collected by several threads.

use super::oracle::Oracle;
use crate::findings::Found;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The output so far.
#[derive(Default)]
pub struct Output {
    /// What the victim has reported about its files.
    pub oracle: Oracle,
    /// What was found.
    pub found: Vec<Found>,
    /// The neighbour's latest actions.
    pub deeds: VecDeque<String>,
    /// Famio's latest messages.
    pub messages: VecDeque<String>,
}

/// Shared by the collecting threads.
pub type SharedOutput = Arc<Mutex<Output>>;

/// Locks the collected output.
pub fn lock(output: &SharedOutput) -> std::sync::MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Output {
    /// Adds a finding, once per kind, with the preceding actions and messages.
    pub fn note(&mut self, found: Found) {
        if !self.found.iter().any(|other| other.kind == found.kind) {
            let deeds: Vec<&String> = self.deeds.iter().rev().take(8).collect();
            let said: Vec<&String> = self.messages.iter().rev().take(5).collect();
            let lines = |words: &str, of: &[&String]| {
                of.iter().rev().map(|line| format!("\n{words}: {line}")).collect::<String>()
            };
            let detail = found.detail + &lines("the neighbour", &deeds) + &lines("stderr", &said);
            self.found.push(Found { detail, ..found });
        }
    }
}
