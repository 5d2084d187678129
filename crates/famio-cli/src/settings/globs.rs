//! Globs with a slash become absolute before the program runs: it may change its folder, and its children too. Those
//! without one are file names, in any folder. The library follows symbolic links on both sides.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// The glob, from the root on if it is a path rather than a name.
pub fn absolute(glob: &OsStr, here: &Path) -> Result<OsString, String> {
    let shown = glob.to_string_lossy();
    let text = glob.to_str().ok_or_else(|| format!("glob '{shown}' is not UTF-8"))?;
    if text.is_empty() || text.contains('\n') {
        return Err(format!("glob '{shown}' is empty or has a line break in it"));
    }
    glob::Pattern::new(text).map_err(|error| format!("glob '{shown}': {error}"))?;
    if !text.contains('/') {
        return Ok(glob.to_os_string());
    }
    let here = here.to_str().ok_or_else(|| format!("folder '{}' is not UTF-8", here.display()))?;
    Ok(tidy(&Path::new(&glob::Pattern::escape(here)).join(text)).into_os_string())
}

/// Without `.` and, textually, without `..`: a file is matched by a path that has neither.
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
        assert_eq!(all("app.db"), "app.db");
        assert_eq!(all("*.db"), "*.db");
        assert_eq!(all("./app.db"), "/no/such/app.db");
        assert_eq!(all("data/**/*.db"), "/no/such/data/**/*.db");
        assert_eq!(all("../x"), "/no/x");
        assert_eq!(all("/a/*"), "/a/*");
    }

    #[test]
    fn a_folder_with_wildcards_in_its_name_is_literal() {
        let glob = absolute(OsStr::new("./x*"), Path::new("/no/[1]")).unwrap();
        assert_eq!(glob, "/no/[[]1[]]/x*");
        assert!(glob::Pattern::new("/no/[[]1[]]/x*").unwrap().matches("/no/[1]/xy"));
    }

    #[test]
    fn bad_globs_are_refused() {
        for glob in ["", "a\nb", "/a[", "/a**b"] {
            assert!(absolute(OsStr::new(glob), Path::new("/")).is_err(), "{glob:?}");
        }
    }
}
