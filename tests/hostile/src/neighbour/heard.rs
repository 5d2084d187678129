//! What is heard of the victim, of Famio and of the neighbour, by several threads.

use super::oracle::Oracle;
use crate::findings::Found;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// What has been heard.
#[derive(Default)]
pub struct Heard {
    /// What the victim has said of its files.
    pub oracle: Oracle,
    /// What was found.
    pub found: Vec<Found>,
    /// What the neighbour did last.
    pub deeds: VecDeque<String>,
    /// What Famio said last.
    pub messages: VecDeque<String>,
}

/// Shared by those who listen.
pub type Ears = Arc<Mutex<Heard>>;

/// What was heard so far.
pub fn hear(ears: &Ears) -> std::sync::MutexGuard<'_, Heard> {
    ears.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    /// Takes a finding, once of its kind, with what was done and said before it.
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
