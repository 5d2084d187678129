//! The file with the checked-in counts, and the comparison with it.

use crate::machine::Machine;
use crate::paths;
use std::path::Path;

/// The share by which counts may change.
const ALLOWED: f64 = 0.05;

const HEAD: &str = "\
# Instructions of one operation of each hot path, counted by callgrind. `make counts` fails where one grows by more than 5 %;
# `make counts-bless` writes this file. The paths are described in tests/counts/src/paths.
";

/// The counts, and the machine where they were made.
#[derive(Debug, Default, PartialEq)]
pub struct Checked {
    pub machine: Machine,
    /// By name, in the order of the paths.
    pub counts: Vec<(String, f64)>,
}

/// The result for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// More than 5 % more.
    Grown,
    /// Within 5 %.
    Same,
    /// More than 5 % fewer.
    Shrunk,
    /// It has no checked-in count yet.
    New,
}

impl Verdict {
    pub fn of(before: Option<f64>, now: f64) -> Self {
        match before {
            None => Self::New,
            Some(before) if now > before * (1.0 + ALLOWED) => Self::Grown,
            Some(before) if now < before * (1.0 - ALLOWED) => Self::Shrunk,
            Some(_) => Self::Same,
        }
    }
}

impl Checked {
    pub fn read(file: &Path) -> Result<Self, String> {
        let named = |error: String| format!("{}: {error}", file.display());
        Self::parse(&std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?).map_err(named)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut checked = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if checked.machine.take(line) {
                continue;
            }
            let mut words = line.split_whitespace();
            let count = words.next().zip(words.next()).and_then(|(name, count)| Some((name, count.parse().ok()?)));
            let (name, count) = count.ok_or_else(|| format!("not understood: {line}"))?;
            checked.counts.push((name.to_string(), count));
        }
        Ok(checked)
    }

    pub fn write(&self, file: &Path) -> Result<(), String> {
        std::fs::write(file, self.text()).map_err(|error| format!("{}: {error}", file.display()))
    }

    fn text(&self) -> String {
        let counts: String = self.counts.iter().map(|(name, count)| format!("{name:<20} {count:>8.1}\n")).collect();
        format!("{HEAD}{}\n{counts}", self.machine.text())
    }

    /// The count of a path.
    pub fn count(&self, path: &str) -> Option<f64> {
        self.counts.iter().find(|(name, _)| name == path).map(|&(_, count)| count)
    }

    /// Names in the file that no path has.
    pub fn unknown(&self) -> Vec<&str> {
        let names = self.counts.iter().map(|(name, _)| name.as_str());
        names.filter(|name| paths::find(name).is_err()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_percent_are_allowed() {
        let of = |now| Verdict::of(Some(1000.0), now);
        assert_eq!([1000.0, 1049.0, 951.0].map(of), [Verdict::Same; 3]);
        assert_eq!([1051.0, 5000.0].map(of), [Verdict::Grown; 2]);
        assert_eq!([949.0, 1.0].map(of), [Verdict::Shrunk; 2]);
        assert_eq!(Verdict::of(None, 1.0), Verdict::New);
    }

    #[test]
    fn what_is_written_is_read() {
        let counts = vec![(paths::ALL[0].name.to_string(), 1234.5), ("no-such-path".to_string(), 7.0)];
        let checked = Checked { machine: Machine::here(), counts };
        assert_eq!(Checked::parse(&checked.text()), Ok(checked));
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        for line in ["pwrite-4k", "pwrite-4k many"] {
            assert_eq!(Checked::parse(line).unwrap_err(), format!("not understood: {line}"));
        }
    }

    #[test]
    fn names_that_no_path_has() {
        let checked = Checked::parse(&format!("{} 1\nno-such-path 1\n", paths::ALL[0].name)).unwrap();
        assert_eq!(checked.unknown(), ["no-such-path"]);
    }
}
