//! Adds to `famio.toml`; existing content, including comments, is kept.

use super::judged::Judged;
use crate::settings::{self, file};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use toml_edit::{Array, DocumentMut, Item, Value};

/// If a folder has this many files, one glob is written for all of them.
const MANY: usize = 8;

/// An existing `famio.toml`, or one to be created.
pub struct Config {
    path: PathBuf,
    text: DocumentMut,
    globs: Vec<OsString>,
}

impl Config {
    /// This file, or the one that `famio run` would read here, or a new one here.
    pub fn open(path: Option<&Path>) -> Result<Self, String> {
        let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
        let home = std::env::var_os("HOME");
        let path = match path {
            Some(path) => here.join(path),
            None => file::search(&here, home.as_deref().map(Path::new)).unwrap_or_else(|| here.join(file::NAME)),
        };
        let shown = path.display();
        let text = match file::text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.is_symlink() {
                    return Err(format!("{shown}: a symbolic link to a file that is not there; make that file first"));
                }
                return Ok(Self { path, text: DocumentMut::new(), globs: Vec::new() });
            }
            Err(error) => return Err(format!("{shown}: {error}")),
        };
        // Finds all mistakes, with the messages of `famio run`.
        let globs = file::read(&path)?.atomic;
        let text = text.parse().map_err(|error| format!("{shown}: {error}"))?;
        Ok(Self { path, text, globs })
    }

    /// Whether one of its globs already selects this file.
    pub fn names(&self, path: &Path) -> bool {
        let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        let name = path.file_name().unwrap_or_default();
        let patterns = self.globs.iter().flat_map(|glob| settings::alternatives(glob));
        patterns.filter_map(|pattern| glob::Pattern::new(&pattern).ok()).any(|glob| {
            let subject = if glob.as_str().contains('/') { path.as_os_str() } else { name };
            subject.to_str().is_some_and(|subject| glob.matches_with(subject, options))
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds these files. Returns what was done, for the user.
    pub fn add(mut self, files: &[&Judged]) -> Result<String, String> {
        let shown = self.path.display().to_string();
        let new = files.iter().map(|judged| judged.file.path.as_path()).filter(|path| !self.names(path));
        let globs = globs_of(new, self.folder())?;
        for glob in &globs {
            // Rejects what `famio run` would refuse.
            settings::absolute(glob.as_ref(), self.folder())?;
        }
        if globs.is_empty() {
            return Ok(format!("{shown} names them already"));
        }
        let array = self.text.entry("atomic").or_insert(Item::Value(Value::Array(Array::new())));
        let array = array.as_array_mut().ok_or_else(|| format!("{shown}: 'atomic' is not a list"))?;
        extend(array, &globs);
        write(&self.path, &self.text.to_string()).map_err(|error| format!("{shown}: {error}"))?;
        Ok(format!("{shown}: atomic now has {}", globs.join(", ")))
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

/// One entry per line if there are two or more.
fn extend(array: &mut Array, globs: &[String]) {
    let lines = array.len() + globs.len() > 1;
    // A comment after the last entry stays there.
    let mut before = array.trailing().as_str().unwrap_or_default().trim_end().to_string();
    for glob in globs {
        let mut value = Value::from(glob.as_str());
        if lines {
            value.decor_mut().set_prefix(format!("{}\n  ", std::mem::take(&mut before)));
        }
        array.push_formatted(value);
    }
    if lines {
        array.set_trailing_comma(true);
        array.set_trailing("\n");
    }
}

/// Folder and suffix.
type Alike<'a> = (Option<&'a Path>, Option<&'a OsStr>);

/// One glob per file; but if a folder has many files with the same suffix (or without one), one glob for all of them,
/// including later ones: a database in many files creates new ones.
fn globs_of<'a>(paths: impl Iterator<Item = &'a Path>, folder: &Path) -> Result<Vec<String>, String> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let mut groups: Vec<(Alike, Vec<&Path>)> = Vec::new();
    for path in paths {
        let key = (path.parent(), path.extension());
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(path),
            None => groups.push((key, vec![path])),
        }
    }
    let mut globs = Vec::new();
    for ((parent, ending), group) in groups {
        match parent {
            Some(parent) if group.len() >= MANY => {
                let ending = match ending {
                    Some(ending) => format!(".{}", text(Path::new(ending))?),
                    None => String::new(),
                };
                // For the folder itself, only `./` is left.
                let start = from(parent, &folder)?;
                globs.push(format!("{}/*{ending}", start.trim_end_matches('/')));
            }
            _ => globs.extend(group.into_iter().map(|path| from(path, &folder)).collect::<Result<Vec<_>, _>>()?),
        }
    }
    Ok(globs)
}

/// The path relative to the folder, if it is below it, with wildcards escaped.
fn from(path: &Path, folder: &Path) -> Result<String, String> {
    match path.strip_prefix(folder) {
        Ok(below) => Ok(format!("./{}", text(below)?)),
        Err(_) => text(path),
    }
}

fn text(path: &Path) -> Result<String, String> {
    let text = path.to_str();
    let text = text.ok_or_else(|| format!("{}: a name that is not UTF-8 can't be in famio.toml", path.display()))?;
    Ok(famio::posix::patterns::escape(text))
}

/// Replaces the file atomically, through links, keeping its owner and mode.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let old = match std::fs::symlink_metadata(&path) {
        Ok(old) if old.is_file() => Some(old),
        // Since it was read, the program that was traced may have put something else there.
        Ok(_) => return Err(io::Error::other("no regular file any more, and not replaced; --write names another")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let new = path.with_file_name(format!(".{}.{}", file::NAME, std::process::id()));
    let write = || {
        // Nobody who may not read the old file may open the new one.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let mut to = File::options().write(true).create_new(true).mode(mode).open(&new)?;
        if let Some(old) = &old {
            keep_rights(&to, old)?;
        }
        to.write_all(text.as_bytes())?;
        to.sync_all()?;
        std::fs::rename(&new, &path)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })
}

/// Gives the new file the owner, group and mode of the old one.
fn keep_rights(new: &File, old: &Metadata) -> io::Result<()> {
    let own = new.metadata()?;
    if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
        fchown(new, Some(old.uid()), Some(old.gid())).map_err(|error| {
            let owner = format!("user {}, group {}", old.uid(), old.gid());
            io::Error::new(error.kind(), format!("its owner ({owner}) can't be kept: {error}; run famio as that user"))
        })?;
    }
    new.set_permissions(old.permissions())
}

#[cfg(test)]
mod tests {
    use super::super::judged::Kind;
    use super::super::shared::File;
    use super::*;

    fn added(text: &str, names: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let path = root.join("famio.toml");
        if !text.is_empty() {
            std::fs::write(&path, text).unwrap();
        }
        let files: Vec<File> = names.iter().map(|name| File::with(root.join(name).to_str().unwrap(), &[])).collect();
        let judged: Vec<Judged> = files
            .iter()
            .map(|file| Judged { file, kind: Kind::Database, why: String::new(), size: Some(1), suggested: true })
            .collect();
        let config = Config::open(Some(&path)).unwrap();
        config.add(&judged.iter().collect::<Vec<_>>()).unwrap();
        // As `famio run` reads it.
        file::read(&path).unwrap();
        std::fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn a_new_file() {
        assert_eq!(added("", &["app.db"]), "atomic = [\"./app.db\"]\n");
        assert_eq!(added("", &["a[1].db", "/x/*"]), "atomic = [\n  \"./a[[]1[]].db\",\n  \"/x/[*]\",\n]\n");
    }

    #[test]
    fn what_is_there_stays() {
        let text = "# mine\npolicy = 'undo' # why\natomic = ['one.db', # the first\n]\n";
        let wanted = "# mine\npolicy = 'undo' # why\natomic = ['one.db', # the first\n  \"./data/two.db\",\n]\n";
        assert_eq!(added(text, &["data/two.db"]), wanted);
        let text = "atomic = [\n  # all\n  'one.db' # the first\n  # end\n]\n# after\n";
        let after = added(text, &["two.db"]);
        for part in ["# all\n", "'one.db' # the first\n", "# end\n", "\"./two.db\",\n", "]\n# after\n"] {
            assert!(after.contains(part), "{part} is not in {after}");
        }
        assert_eq!(added("pool = '/p'\n", &["a.db"]), "pool = '/p'\natomic = [\"./a.db\"]\n");
        // Already selected, by its name or by a glob.
        for text in ["atomic = ['./a.db']\n", "atomic = ['*.db']\n", "atomic = ['./**/a.*']\n"] {
            assert_eq!(added(text, &["a.db"]), text);
        }
        assert_ne!(added("atomic = ['./x/a.db']\n", &["a.db"]), "atomic = ['./x/a.db']\n");
    }

    #[test]
    fn many_files_of_a_folder_get_one_glob() {
        let many: Vec<String> = (0..MANY).map(|n| format!("data[1]/{n}.ibd")).collect();
        let mut names: Vec<&str> = many.iter().map(String::as_str).collect();
        names.push("data[1]/control");
        assert_eq!(added("", &names), "atomic = [\n  \"./data[[]1[]]/*.ibd\",\n  \"./data[[]1[]]/control\",\n]\n");
        let many: Vec<String> = (0..MANY).map(|n| format!("{n}")).collect();
        let names: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(added("", &names), "atomic = [\"./*\"]\n");
        assert!(!added("", &names[1..]).contains('*'));
    }

    #[test]
    fn what_is_no_regular_file_is_not_replaced() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), rustix::fs::Mode::RUSR).unwrap();
        std::os::unix::fs::symlink("fifo", path("link")).unwrap();
        std::os::unix::fs::symlink("none", path("dangling")).unwrap();
        for name in ["fifo", "link", "dangling"] {
            assert!(Config::open(Some(&path(name))).is_err(), "{name}");
        }
        // It became one while the program ran.
        assert!(write(&path("link"), "").is_err() && write(&path("fifo"), "").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
        assert!(!path("fifo").is_file() && path("link").is_symlink());
    }

    #[test]
    fn the_owner_and_the_link_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("real"), "old").unwrap();
        std::fs::set_permissions(path("real"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("real", path("link")).unwrap();
        let is_root = std::os::unix::fs::chown(path("real"), Some(1234), Some(1235)).is_ok();
        write(&path("link"), "new").unwrap();
        let found = std::fs::metadata(path("real")).unwrap();
        assert!(path("link").is_symlink() && found.mode() & 0o777 == 0o600);
        assert_eq!(std::fs::read_to_string(path("real")).unwrap(), "new");
        match is_root {
            true => assert_eq!((found.uid(), found.gid()), (1234, 1235)),
            false => eprintln!("SKIPPED: another owner, not root"),
        }
    }

    #[test]
    fn mistakes_are_found_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("famio.toml");
        for text in ["atomic = 'a'", "atomik = []", "= 1"] {
            std::fs::write(&path, text).unwrap();
            assert!(Config::open(Some(&path)).is_err(), "{text}");
        }
    }
}
