//! Which files a glob matches now.

use super::globs::{alternatives, folder_of};
use famio::posix::Globs;
use famio::posix::patterns;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most folder entries that are examined.
const MOST: usize = 200_000;

/// The result.
#[derive(Debug, Default)]
pub struct Found {
    /// Sorted by name.
    pub files: Vec<PathBuf>,
    /// Whether there may be more, in folders that were not searched.
    pub is_cut_short: bool,
    /// Whether one of the patterns is a mere name: it applies in every folder, and was searched for in this one.
    pub is_name: bool,
}

/// The files of one glob, in the form that the library gets; names are searched below `here`.
pub fn find(glob: &OsStr, here: &Path, pool: Option<&Path>) -> Result<Found, String> {
    let globs = Globs::new(glob.as_bytes(), here.as_os_str().as_bytes(), pool)?;
    let mut found = Found::default();
    let mut left = MOST;
    let look = |path: &Path, found: &mut Found| {
        let is_file = std::fs::metadata(path).is_ok_and(|file| file.is_file());
        if is_file && !globs.marks_of(path.as_os_str().as_bytes()).is_empty() {
            found.files.push(path.to_path_buf());
        }
    };
    for pattern in alternatives(glob) {
        let folder = folder_of(&pattern);
        found.is_name |= folder.is_none();
        match (folder, patterns::literal(&pattern)) {
            (Some(_), Some(path)) => look(Path::new(&path), &mut found),
            (Some(folder), None) => walk(&folder, &mut left, &mut |path| look(path, &mut found)),
            (None, _) => walk(here, &mut left, &mut |path| look(path, &mut found)),
        }
    }
    found.is_cut_short = left == 0;
    found.files.sort();
    found.files.dedup();
    Ok(found)
}

/// Calls `visit` for everything below a folder except folders.
fn walk(folder: &Path, left: &mut usize, visit: &mut dyn FnMut(&Path)) {
    let mut waiting = vec![folder.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            if *left == 0 {
                return;
            }
            *left -= 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != ".famio" => waiting.push(entry.path()),
                Ok(kind) if !kind.is_dir() => visit(&entry.path()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b/.famio")).unwrap();
        for file in ["x.db", "a/y.db", "a/b/z.db", "a/b/.famio/no.db", "a/b/z.txt"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        let names = |glob: &str| {
            let glob = super::super::globs::absolute(OsStr::new(glob), &root).unwrap();
            let found = find(&glob, &root, None).unwrap();
            assert!(!found.is_cut_short);
            let names = found.files.iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string());
            (names.collect::<Vec<_>>().join(" "), found.is_name)
        };
        for (glob, files, is_name) in [
            ("*.db", "a/b/z.db a/y.db x.db", true),
            ("./*.db", "x.db", false),
            ("a", "a/b/z.db a/b/z.txt a/y.db", false),
            ("a/*/*.db", "a/b/z.db", false),
            ("{./x.db,a/y.*}", "a/y.db x.db", false),
            ("./none.db", "", false),
        ] {
            assert_eq!(names(glob), (files.to_string(), is_name), "{glob}");
        }
    }
}
