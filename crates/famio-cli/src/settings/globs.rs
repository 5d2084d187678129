//! Globs in the form that the preload library takes. Paths become absolute before the program runs, since it and its
//! children may change their folder. Globs without a slash are file names, in any folder; an existing folder stands
//! for everything below it. The library follows symbolic links on both sides.

use famio::posix::patterns;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// The glob; absolute if it is a path rather than a name.
pub fn absolute(glob: &OsStr, here: &Path) -> Result<OsString, String> {
    let shown = glob.to_string_lossy();
    let text = glob.to_str().ok_or_else(|| format!("glob '{shown}' is not UTF-8"))?;
    if text.is_empty() || text.contains('\n') {
        return Err(format!("glob '{shown}' is empty or has a line break in it"));
    }
    let home = std::env::var("HOME").ok();
    let all = patterns::expand(text, home.as_deref()).map_err(|error| format!("glob '{shown}': {error}"))?;
    let is_there = |pattern: &String| patterns::literal(pattern).is_some_and(|path| here.join(path).exists());
    if patterns::has_bare_comma(text) && !all.iter().all(is_there) {
        return Err(format!(
            "glob '{shown}': there is no such file; give several globs one by one, or in braces ({{a.db,b.db}}), and write \
             \\, for a comma that is part of a name"
        ));
    }
    let all: Result<Vec<String>, String> = all.iter().map(|pattern| absolute_pattern(pattern, here)).collect();
    let all = all?;
    if let Some(long) = all.iter().find(|pattern| pattern.len() >= libc::PATH_MAX as usize) {
        // The library would refuse it, and know only its own variable.
        let (start, bytes): (String, _) = (shown.chars().take(40).collect(), long.len());
        return Err(format!("glob '{start}...': too long ({bytes} bytes); a path has less than {}", libc::PATH_MAX));
    }
    Ok(patterns::join(&all).into())
}

/// The patterns to which an absolute glob expands.
pub fn alternatives(glob: &OsStr) -> Vec<String> {
    glob.to_str().and_then(|text| patterns::expand(text, None).ok()).unwrap_or_default()
}

fn absolute_pattern(pattern: &str, here: &Path) -> Result<String, String> {
    let shown = here.display();
    let folder = glob::Pattern::escape(here.to_str().ok_or_else(|| format!("folder '{shown}' is not UTF-8"))?);
    let whole = |path: &str| tidy(&Path::new(&folder).join(path)).to_string_lossy().into_owned();
    Ok(match patterns::literal(pattern) {
        Some(path) if here.join(&path).is_dir() => format!("{}/**", whole(pattern).trim_end_matches('/')),
        _ if pattern.contains('/') => whole(pattern),
        _ => pattern.to_owned(),
    })
}

/// The folder below which all matches of a pattern lie: its part before the first wildcard. A mere name has none.
pub fn folder_of(pattern: &str) -> Option<PathBuf> {
    let (folders, _) = pattern.rsplit_once('/')?;
    let mut folder = PathBuf::from("/");
    for part in folders.split('/').skip(1) {
        match patterns::literal(part) {
            Some(name) => folder.push(name),
            None => break,
        }
    }
    Some(folder)
}

/// Removes `.` and, textually, `..`: a file is matched by a path that has neither.
fn tidy(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_get_their_folder_and_names_do_not() {
        let all = |glob: &str| absolute(OsStr::new(glob), Path::new("/no/such")).unwrap();
        for (glob, absolute) in [
            ("app.db", "app.db"),
            ("*.db", "*.db"),
            ("./app.db", "/no/such/app.db"),
            ("data/**/*.db", "/no/such/data/**/*.db"),
            ("../x", "/no/x"),
            ("/a/*", "/a/*"),
            ("{a,b/c}.db", "{a.db,/no/such/b/c.db}"),
            ("{../x,./y}", "{/no/x,/no/such/y}"),
            (r"./a\,b\{c\}", r"/no/such/a\,b\{c\}"),
            ("data/", "/no/such/data/**"),
        ] {
            assert_eq!(all(glob), absolute, "{glob}");
            assert_eq!(all(absolute), absolute, "{absolute}: once is enough");
        }
    }

    #[test]
    fn a_folder_means_all_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("data[1]")).unwrap();
        std::fs::write(root.join("a,b"), "").unwrap();
        let all = |glob: &str| absolute(OsStr::new(glob), &root).unwrap().into_string().unwrap();
        let shown = root.display();
        assert_eq!(all(r"data\[1]"), format!("{shown}/data[[]1]/**"));
        assert_eq!(all("."), format!("{shown}/**"));
        assert_eq!(all("{x,.}"), format!("{{x,{shown}/**}}"));
        assert_eq!(all("a,b"), r"a\,b", "there is such a file");
    }

    #[test]
    fn a_folder_with_wildcards_in_its_name_is_literal() {
        let glob = absolute(OsStr::new("./x*"), Path::new("/no/[1]")).unwrap();
        assert_eq!(glob, "/no/[[]1[]]/x*");
        assert!(glob::Pattern::new("/no/[[]1[]]/x*").unwrap().matches("/no/[1]/xy"));
    }

    #[test]
    fn a_glob_that_no_path_can_match_is_refused_in_one_line() {
        let most = libc::PATH_MAX as usize - 1;
        for (glob, is_good) in [("a".repeat(most), true), ("a".repeat(most + 1), false), ("/a".repeat(most), false)] {
            let read = absolute(OsStr::new(&glob), Path::new("/"));
            assert_eq!(read.is_ok(), is_good, "{}", glob.len());
            assert!(read.is_ok() || read.is_err_and(|error| error.contains("too long") && error.len() < 200));
        }
    }

    #[test]
    fn bad_globs_are_refused() {
        for (glob, word) in [
            ("", "empty"),
            ("a\nb", "line break"),
            ("/a[", "without ']'"),
            ("/a**b", "**"),
            ("a.db,b.db", "{a.db,b.db}"),
            ("*.db,*.sqlite", "one by one"),
            ("{a,b", "without '}'"),
            ("~other/a.db", "~"),
        ] {
            let error = absolute(OsStr::new(glob), Path::new("/")).unwrap_err();
            assert!(error.contains(word), "{glob:?}: {error}");
        }
    }

    #[test]
    fn folders_of_patterns() {
        for (pattern, folder) in [
            ("/a/b/*.db", Some("/a/b")),
            ("/a/[[]x/**/y", Some("/a/[x")),
            ("/*", Some("/")),
            ("/a/b.db", Some("/a")),
            ("*.db", None),
        ] {
            assert_eq!(folder_of(pattern), folder.map(PathBuf::from), "{pattern}");
        }
    }
}
