//! What becomes of what a process wrote since its last SYNC, if it is killed: of all files, or with globs of those that keep it.

use super::absolute;
use famio::OnKill;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::str::FromStr;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub enum OnKillRule {
    /// All files go back to their last SYNC.
    Rollback,
    /// All files stay as their last complete calls left them.
    Keep,
    /// The files that these globs select stay so, the others go back. Names, or absolute paths.
    Globs(Vec<OsString>),
}

/// As on the command line: a word, or a glob.
impl FromStr for OnKillRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
        Self::read(std::iter::once(OsStr::new(text)), &here)
    }
}

impl OnKillRule {
    /// `rollback` or `keep`.
    pub fn word(text: &str) -> Result<Self, String> {
        match text {
            "rollback" => Ok(Self::Rollback),
            "keep" => Ok(Self::Keep),
            other => Err(format!("'{other}' is not one of: rollback, keep, or a list of globs")),
        }
    }

    /// Globs, from a folder on.
    pub fn globs<'a>(globs: impl Iterator<Item = &'a OsStr>, folder: &Path) -> Result<Self, String> {
        let all = globs.map(|glob| absolute(glob, folder)).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() { Err("no glob in it".into()) } else { Ok(Self::Globs(all)) }
    }

    /// One of the words, or globs.
    pub fn read<'a>(mut lines: impl Iterator<Item = &'a OsStr> + Clone, folder: &Path) -> Result<Self, String> {
        let (first, more) = (lines.clone().next(), lines.clone().nth(1));
        match first.and_then(OsStr::to_str) {
            Some(word @ ("rollback" | "keep")) if more.is_none() => Self::word(word),
            _ => Self::globs(lines.by_ref(), folder),
        }
    }

    /// What was said more than once.
    pub fn all(rules: &[Self]) -> Result<Option<Self>, String> {
        let globs = |rule: &Self| match rule {
            Self::Globs(globs) => Some(globs.clone()),
            _ => None,
        };
        match rules {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            many => match many.iter().map(globs).collect::<Option<Vec<_>>>() {
                Some(globs) => Ok(Some(Self::Globs(globs.concat()))),
                None => Err("--on-kill: rollback and keep apply to all files; give them once".into()),
            },
        }
    }

    /// Of files that no glob tells apart.
    pub fn of_all(&self) -> OnKill {
        if *self == Self::Keep { OnKill::Keep } else { OnKill::Rollback }
    }

    /// For the preload library.
    pub fn variable(&self) -> OsString {
        match self {
            Self::Rollback => "rollback".into(),
            Self::Keep => "keep".into(),
            Self::Globs(globs) => globs.join("\n".as_ref()),
        }
    }

    /// For the user.
    pub fn shown(&self) -> String {
        match self {
            Self::Globs(globs) => {
                let globs: Vec<_> = globs.iter().map(|glob| glob.to_string_lossy()).collect();
                format!("keep for {}, else rollback", globs.join(" "))
            }
            word => word.variable().to_string_lossy().into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_globs_are_told_apart() {
        let read = |text: &str| {
            OnKillRule::read(text.lines().map(OsStr::new).collect::<Vec<_>>().into_iter(), Path::new("/x"))
        };
        assert_eq!(read("keep").unwrap().of_all(), OnKill::Keep);
        assert_eq!(read("rollback").unwrap(), OnKillRule::Rollback);
        let globs = read("*.ibd\n./keep").unwrap();
        assert_eq!(globs, OnKillRule::Globs(vec!["*.ibd".into(), "/x/keep".into()]));
        assert_eq!((globs.of_all(), globs.shown()), (OnKill::Rollback, "keep for *.ibd /x/keep, else rollback".into()));
        assert!(read("").is_err() && OnKillRule::word("kept").is_err());
    }

    #[test]
    fn globs_add_up_and_words_do_not() {
        let glob = |text: &str| OnKillRule::Globs(vec![text.into()]);
        let both = OnKillRule::all(&[glob("a"), glob("b")]).unwrap();
        assert_eq!(both, Some(OnKillRule::Globs(vec!["a".into(), "b".into()])));
        assert_eq!(OnKillRule::all(&[OnKillRule::Keep]).unwrap(), Some(OnKillRule::Keep));
        assert!(OnKillRule::all(&[OnKillRule::Keep, glob("a")]).is_err());
    }
}
