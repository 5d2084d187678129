//! Where the library's messages go.

use clap::ValueEnum;
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Which messages there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevelName {
    /// None except reports of reduced durability
    Off,
    /// Only calls that failed, and data that may be lost
    Error,
    /// Also files that are not protected as requested
    Warning,
    /// Also files that were recovered
    Info,
}

/// The target: a word of [`WORDS`], or an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTarget(OsString);

const WORDS: [&str; 3] = ["stderr", "syslog", "journald"];

impl LogTarget {
    /// A word, or a path relative to `folder`.
    ///
    /// # Errors
    /// The text is empty.
    pub fn of(text: &OsStr, folder: &Path) -> Result<Self, String> {
        if text.is_empty() {
            return Err(format!("'' is neither a path nor one of: {}", WORDS.join(", ")));
        }
        if WORDS.iter().any(|word| text == *word) {
            return Ok(Self(text.into()));
        }
        let path = std::path::absolute(folder.join(text)).map_err(|error| error.to_string())?;
        Ok(Self(path.into()))
    }

    /// The text, for the environment and for people.
    pub fn text(&self) -> OsString {
        self.0.clone()
    }

    /// Whether a message could be written there now; the error says why not.
    pub fn check(&self) -> Result<(), String> {
        let path = Path::new(&self.0);
        if !path.is_absolute() {
            return Ok(());
        }
        let opened = std::fs::OpenOptions::new().append(true).open(path);
        let missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        match opened {
            // The first message creates it.
            Err(error) if missing(&error) && path.parent().is_some_and(Path::is_dir) => Ok(()),
            opened => opened.map(drop).map_err(|error| format!("--log: {}: {error}", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_and_paths_become_absolute() {
        let of = |text: &str| LogTarget::of(OsStr::new(text), Path::new("/x")).map(|target| target.text());
        assert_eq!(of("syslog").unwrap(), "syslog");
        assert_eq!(of("a.log").unwrap(), "/x/a.log");
        assert_eq!(of("/y/a.log").unwrap(), "/y/a.log");
        assert!(of("").is_err());
    }

    #[test]
    fn a_log_that_could_not_be_written_is_refused_before_the_program_runs() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str| LogTarget::of(OsStr::new(name), folder.path()).unwrap().check();
        assert_eq!(check("new.log"), Ok(()));
        assert!(check("no/such.log").unwrap_err().starts_with("--log: "));
        assert!(check(".").is_err());
        assert_eq!(check("journald"), Ok(()));
    }
}
