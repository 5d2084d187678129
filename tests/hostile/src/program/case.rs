//! A case: everything that its seed decides.

use super::compare;
use super::kill;
use super::side::{self, Run};
use crate::Options;
use crate::classes::{CLASSES, Classes};
use crate::findings::Found;
use crate::space::Space;
use famio_test_support::random::Random;
use std::path::PathBuf;

/// The user of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Root.
    Root,
    /// An ordinary user, in that user's folder.
    User,
    /// An ordinary user, in a folder without write permission, with writable files.
    Guest,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Decides everything else, and the steps.
    pub seed: u64,
    /// Number of steps.
    pub steps: u32,
    /// `tmpfs` or `disk`.
    pub on: &'static str,
    /// For famio run.
    pub options: Vec<&'static str>,
    /// The user.
    pub start: Start,
    /// Files exist in the beginning.
    pub made: bool,
    /// Mode of its folder.
    pub folder_mode: u32,
    /// Killed before this step.
    pub kill: Option<u32>,
    /// The classes of steps: each class in one of three cases, so that each can occur without the others.
    pub classes: Classes,
    /// Whether nothing may be left.
    pub left: bool,
}

impl Case {
    /// The case of a seed.
    pub fn new(seed: u64, options: &Options, chosen: Classes) -> Self {
        let mut random = Random::new(seed ^ 0x0066_616d_696f);
        let mut classes = chosen;
        for class in &CLASSES[1..] {
            if options.only.is_empty() && random.below(3) > 0 && class.name != "numbers" && class.name != "left" {
                classes = classes.without(class.name);
            }
        }
        let on = match (random.below(2), options.on.as_str()) {
            (_, "tmpfs") | (0, "both") => "tmpfs",
            _ => "disk",
        };
        let options_of = match (random.below(3), on) {
            (0, "disk") => vec!["--durability", "process"],
            (0, _) => vec!["--domain", "emulated"],
            _ => vec![],
        };
        let start = match random.below(4) {
            0 if chosen.has("user") => Start::User,
            1 if chosen.has("guest") => Start::Guest,
            _ => Start::Root,
        };
        let kill = random.below(3) == 0 && chosen.has("kill");
        let at = 5 + random.below(u64::from(options.steps.max(10)) - 5) as u32;
        Self {
            seed,
            steps: options.steps,
            on,
            options: options_of,
            start,
            made: random.below(2) == 0,
            folder_mode: if random.below(3) == 0 { 0o777 } else { 0o755 },
            kill: kill.then_some(at),
            classes,
            left: chosen.has("left"),
        }
    }

    /// All steps.
    pub fn all(&self) -> Vec<u32> {
        (0..self.kill.unwrap_or(self.steps)).collect()
    }

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
            compare::end(space, self, &famio, &plain)
        }
    }

    /// As text.
    pub fn name(&self) -> String {
        let Self { on, start, made, kill, .. } = self;
        let classes: Vec<_> = CLASSES.iter().map(|class| class.name).filter(|name| self.classes.has(name)).collect();
        let ending = kill.map_or(String::new(), |step| format!(", killed before step {step}"));
        let options = self.options.join(" ");
        format!(
            "on {on} {options}, as {start:?}, files {}{ending}; classes {}",
            if *made { "made before" } else { "new" },
            classes.join(",")
        )
    }

    /// The command's options that reproduce the case.
    pub fn same(&self, options: &Options) -> String {
        let list = |name: &str, words: &[String]| {
            if words.is_empty() { String::new() } else { format!(" --{name} {}", words.join(",")) }
        };
        let steps = if options.steps == 120 { String::new() } else { format!(" --steps {}", options.steps) };
        list("without", &options.without) + &list("with", &options.with) + &list("only", &options.only) + &steps
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
