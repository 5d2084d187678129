//! Runs a case: under Famio, and as its plain twin.

use super::case::Case;
use super::side::{self, Run};
use super::{compare, end, kill};
use crate::findings::Found;
use crate::space::Space;
use std::path::PathBuf;

impl Case {
    /// Runs it with some of its steps; returns what was found.
    pub fn run(&self, space: &Space, only: &[u32]) -> Result<Option<Found>, String> {
        space.empty_shm();
        let only = if only.len() == self.all().len() { &[] } else { only };
        let run = Run { only, kill: self.kill, limit: None };
        let famio = side::run(space, self, true, run)?;
        let plain = side::run(space, self, false, run)?;
        if let Some(found) = compare::answers(&famio, &plain) {
            return Ok(Some(found));
        }
        if self.kill.is_some() {
            kill::judge(space, self, only, &famio, &plain)
        } else {
            end::judge(space, self, &famio, &plain)
        }
    }

    /// What these steps did, according to the board of the last run under Famio.
    pub fn describe(&self, space: &Space, steps: &[u32]) -> Result<String, String> {
        let run = Run { only: steps, kill: self.kill, limit: None };
        let all = steps.len() == self.all().len();
        let side = side::run(space, self, true, if all { Run { only: &[], ..run } } else { run })?;
        let mut text: Vec<String> = Vec::new();
        for entry in &side.board.entries {
            text.push(format!("{}: {} = {}", entry.step, entry.what, entry.answer()));
        }
        let more = text.len().saturating_sub(40);
        let cut = if more > 0 { format!("({more} more) ") } else { String::new() };
        let messages: String = side.messages.lines().take(6).map(|line| format!("\n    stderr: {line}")).collect();
        Ok(format!("{} steps\n    {cut}{}{messages}", steps.len(), text[more..].join("\n    ")))
    }

    /// Keeps both folders.
    pub fn keep(&self, space: &Space, name: &str) -> Result<PathBuf, String> {
        let part = space.base.join(if self.on == "tmpfs" { "memory" } else { "disk" });
        space.keep(name, &part.join("famio"));
        Ok(space.keep(name, &part.join("plain")))
    }
}
