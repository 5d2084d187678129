//! Settings that apply to all files, or to files that globs select: what happens to a killed process's writes since
//! its last SYNC, and what is atomic by itself.

use super::globs::absolute;
use famio::posix::keywords::check_glob;
use famio::{Atomicity, OnKill};
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::path::Path;
use std::str::FromStr;

/// The values of such a setting.
pub trait Value: Copy + Debug + PartialEq + Send + Sync + 'static {
    /// The setting's option.
    const OPTION: &'static str;
    /// The words for the default, and for files that globs select.
    const WORDS: [&'static str; 2];

    /// The default value, or the other one.
    fn of(is_other: bool) -> Self;
}

impl Value for OnKill {
    const OPTION: &'static str = "--on-kill";
    const WORDS: [&'static str; 2] = ["rollback", "keep"];

    fn of(is_other: bool) -> Self {
        if is_other { OnKill::Keep } else { OnKill::Rollback }
    }
}

impl Value for Atomicity {
    const OPTION: &'static str = "--atomicity";
    const WORDS: [&'static str; 2] = ["epoch", "write"];

    fn of(is_other: bool) -> Self {
        if is_other { Atomicity::Write } else { Atomicity::Epoch }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub enum ByGlob<V> {
    /// The value of all files.
    All(V),
    /// Files that these globs select have the value that is not the default. Names, or absolute paths.
    Globs(Vec<OsString>),
}

/// As on the command line: a word, or a glob.
impl<V: Value> FromStr for ByGlob<V> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
        Self::read(std::iter::once(OsStr::new(text)), &here)
    }
}

impl<V: Value> ByGlob<V> {
    fn of_word(text: &str) -> Option<Self> {
        V::WORDS.iter().position(|word| *word == text).map(|at| Self::All(V::of(at == 1)))
    }

    /// One of the words.
    pub fn word(text: &str) -> Result<Self, String> {
        let [usual, other] = V::WORDS;
        Self::of_word(text).ok_or_else(|| format!("'{text}' is not one of: {usual}, {other}, or a list of globs"))
    }

    /// Globs, relative to a folder.
    pub fn globs<'a>(globs: impl Iterator<Item = &'a OsStr>, folder: &Path) -> Result<Self, String> {
        let glob = |glob: &OsStr| {
            check_glob(&glob.to_string_lossy(), V::WORDS)?;
            absolute(glob, folder)
        };
        let all = globs.map(glob).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() { Err("no glob in it".into()) } else { Ok(Self::Globs(all)) }
    }

    /// One of the words, or globs.
    pub fn read<'a>(mut lines: impl Iterator<Item = &'a OsStr> + Clone, folder: &Path) -> Result<Self, String> {
        let (first, more) = (lines.clone().next(), lines.clone().nth(1));
        match first.and_then(OsStr::to_str).and_then(Self::of_word) {
            Some(all) if more.is_none() => Ok(all),
            _ => Self::globs(lines.by_ref(), folder),
        }
    }

    /// Combines several occurrences.
    pub fn all(rules: &[Self]) -> Result<Option<Self>, String> {
        let globs = |rule: &Self| match rule {
            Self::Globs(globs) => Some(globs.clone()),
            Self::All(_) => None,
        };
        match rules {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            many => match many.iter().map(globs).collect::<Option<Vec<_>>>() {
                Some(globs) => Ok(Some(Self::Globs(globs.concat()))),
                None => {
                    let [usual, other] = V::WORDS;
                    Err(format!("{}: {usual} and {other} apply to all files; give them once", V::OPTION))
                }
            },
        }
    }

    /// The value for files that no glob selects.
    pub fn of_all(&self) -> V {
        match self {
            Self::All(value) => *value,
            Self::Globs(_) => V::of(false),
        }
    }

    /// The environment variable's value, for the preload library.
    pub fn variable(&self) -> OsString {
        match self {
            Self::All(value) => V::WORDS[usize::from(*value == V::of(true))].into(),
            Self::Globs(globs) => globs.join("\n".as_ref()),
        }
    }

    /// For the user.
    pub fn shown(&self) -> String {
        match self {
            Self::Globs(globs) => {
                let globs: Vec<_> = globs.iter().map(|glob| glob.to_string_lossy()).collect();
                let [usual, other] = V::WORDS;
                format!("{other} for {}, else {usual}", globs.join(" "))
            }
            word => word.variable().to_string_lossy().into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type OnKillRule = ByGlob<OnKill>;

    #[test]
    fn words_and_globs_are_told_apart() {
        let read = |text: &str| {
            OnKillRule::read(text.lines().map(OsStr::new).collect::<Vec<_>>().into_iter(), Path::new("/x"))
        };
        assert_eq!(read("keep").unwrap().of_all(), OnKill::Keep);
        assert_eq!(read("rollback").unwrap(), OnKillRule::All(OnKill::Rollback));
        let globs = read("*.ibd\n./keep").unwrap();
        assert_eq!(globs, OnKillRule::Globs(vec!["*.ibd".into(), "/x/keep".into()]));
        assert_eq!((globs.of_all(), globs.shown()), (OnKill::Rollback, "keep for *.ibd /x/keep, else rollback".into()));
        assert!(read("").is_err() && OnKillRule::word("kept").is_err());
        for mistake in ["kepe", "KEEP", "keep\nb.db", "b.db\nrolback"] {
            assert!(read(mistake).is_err_and(|error| error.contains("./")), "{mistake}");
        }
        assert_eq!("write".parse(), Ok(ByGlob::All(Atomicity::Write)));
        let log = ByGlob::<Atomicity>::globs([OsStr::new("*.log")].into_iter(), Path::new("/x")).unwrap();
        assert_eq!((log.of_all(), log.shown()), (Atomicity::Epoch, "write for *.log, else epoch".into()));
    }

    #[test]
    fn globs_add_up_and_words_do_not() {
        let glob = |text: &str| OnKillRule::Globs(vec![text.into()]);
        let both = OnKillRule::all(&[glob("a"), glob("b")]).unwrap();
        assert_eq!(both, Some(OnKillRule::Globs(vec!["a".into(), "b".into()])));
        assert_eq!(OnKillRule::all(&[OnKillRule::All(OnKill::Keep)]).unwrap(), Some(OnKillRule::All(OnKill::Keep)));
        assert!(OnKillRule::all(&[OnKillRule::All(OnKill::Keep), glob("a")]).is_err());
    }
}
