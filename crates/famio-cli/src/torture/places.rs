//! Where a kill may leave journals.

use crate::settings::{self, Layer};
use std::ffi::OsStr;
use std::path::PathBuf;

/// The paths to recover, none inside another.
pub struct Places(Vec<PathBuf>);

impl Places {
    /// The paths that the user named; or else the pool; or else the folders in which the globs begin, and the current
    /// folder if a glob is a mere name.
    pub fn new(named: &[PathBuf], layer: &Layer) -> Result<Self, String> {
        let paths = match (named, &layer.pool) {
            ([], Some(pool)) => vec![pool.clone()],
            ([], None) => layer.atomic.iter().flat_map(|glob| folders_of(glob)).collect(),
            _ => named.to_vec(),
        };
        let mut whole = Vec::new();
        for path in paths {
            match path.canonicalize() {
                Ok(path) => whole.push(path),
                // For example, the folder of a glob in famio.toml does not exist.
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

/// The folders below which all matches of a glob lie.
fn folders_of(glob: &OsStr) -> Vec<PathBuf> {
    let patterns = settings::alternatives(glob);
    patterns.iter().map(|pattern| settings::folder_of(pattern).unwrap_or_else(|| ".".into())).collect()
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
            assert_eq!(folders_of(OsStr::new(glob)), [PathBuf::from(folder)], "{glob}");
        }
        assert_eq!(folders_of(OsStr::new("{x,/a/b/*}")), [PathBuf::from("."), PathBuf::from("/a/b")]);
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
