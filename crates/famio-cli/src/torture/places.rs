//! Where a kill can leave journals.

use crate::settings::Layer;
use std::path::{Path, PathBuf};

/// Paths to recover, none within another.
pub struct Places(Vec<PathBuf>);

impl Places {
    /// What the user named; else the pool; else the folders that the globs begin with, and the current one if a glob is a
    /// mere name.
    pub fn new(named: &[PathBuf], layer: &Layer) -> Result<Self, String> {
        let paths = match (named, &layer.pool) {
            ([], Some(pool)) => vec![pool.clone()],
            ([], None) => layer.atomic.iter().map(|glob| folder_of(Path::new(glob))).collect(),
            _ => named.to_vec(),
        };
        let mut whole = Vec::new();
        for path in paths {
            match path.canonicalize() {
                Ok(path) => whole.push(path),
                // The folder of a glob of famio.toml, say, that is not there.
                Err(_) if named.is_empty() => {}
                Err(error) => return Err(format!("--recover {}: {error}", path.display())),
            }
        }
        whole.sort();
        whole.dedup_by(|path, before| path.starts_with(before));
        if whole.is_empty() {
            return Err("none of the folders that --atomic names is there".into());
        }
        Ok(Self(whole))
    }

    /// All of them.
    pub fn all(&self) -> &[PathBuf] {
        &self.0
    }
}

/// The folder below which all that a glob matches lies: its part before the first wildcard.
fn folder_of(glob: &Path) -> PathBuf {
    let text = glob.to_string_lossy();
    if !text.contains('/') {
        return ".".into();
    }
    let mut folder = PathBuf::new();
    let parts: Vec<_> = glob.parent().unwrap_or(Path::new("/")).components().collect();
    for part in parts {
        let part = part.as_os_str().to_string_lossy().into_owned();
        match literal(&part) {
            Some(name) => folder.push(name),
            None => break,
        }
    }
    folder
}

/// A part of a glob that stands for one name: `[x]` is how a wildcard is written literally.
fn literal(part: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = part.chars();
    while let Some(c) = rest.next() {
        match c {
            '*' | '?' => return None,
            '[' => {
                name.push(rest.next()?);
                if rest.next()? != ']' {
                    return None;
                }
            }
            c => name.push(c),
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_globs() {
        for (glob, folder) in [
            ("app.db", "."),
            ("/a/b/app.db", "/a/b"),
            ("/a/**/x.db", "/a"),
            ("/a/b?/c/x.db", "/a"),
            ("/a/[[]1[]]/x*", "/a/[1]"),
            ("/a/[xy]/z", "/a"),
            ("/x", "/"),
        ] {
            assert_eq!(folder_of(Path::new(glob)), Path::new(folder), "{glob}");
        }
    }

    #[test]
    fn none_lies_within_another() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join("c")).unwrap();
        let all = [root.join("a/b"), root.join("c"), root.join("a")];
        let places = Places::new(&all, &Layer::default()).unwrap();
        assert_eq!(places.all(), [root.join("a"), root.join("c")]);
        assert!(Places::new(&[root.join("d")], &Layer::default()).is_err());
    }
}
