//! A case: everything that its seed decides.

use crate::classes::{CLASSES, Classes};
use crate::options::Options;
use famio_test_support::random::Random;

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

    /// The file's initial contents; `None`: it does not exist.
    pub fn begins(&self, file: i8) -> Option<Vec<u8>> {
        let made = self.made || self.start == Start::Guest;
        (made && (0..3).contains(&file)).then(|| vec![b'0' + file as u8; 30_000 * (file as usize + 1)])
    }
}
