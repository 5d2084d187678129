//! Globs become absolute before the program runs: it may change its folder, and its children too.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The glob from the root on: as written, and also, where its fixed folders lead through symbolic links, as the kernel
/// will name the file.
pub fn absolute(glob: &OsStr, here: &Path) -> Result<Vec<OsString>, String> {
    let shown = glob.to_string_lossy();
    let text = glob.to_str().ok_or_else(|| format!("glob '{shown}' is not UTF-8"))?;
    if text.is_empty() || text.contains('\n') {
        return Err(format!("glob '{shown}' is empty or has a line break in it"));
    }
    glob::Pattern::new(text).map_err(|error| format!("glob '{shown}': {error}"))?;
    let written = if text.starts_with('/') { PathBuf::from(text) } else { escape(here).join(text) };
    let plain = tidy(&written);
    let resolved = resolve(&written).filter(|resolved| *resolved != plain);
    Ok([Some(plain), resolved].into_iter().flatten().map(PathBuf::into_os_string).collect())
}

/// A folder's name as a glob that matches only it.
fn escape(folder: &Path) -> PathBuf {
    let mut text = Vec::new();
    for &byte in folder.as_os_str().as_bytes() {
        match byte {
            b'*' | b'?' | b'[' | b']' => text.extend([b'[', byte, b']']),
            _ => text.push(byte),
        }
    }
    OsString::from_vec(text).into()
}

/// Without `.` and, textually, without `..`: the file is matched by the name that the kernel gives, which has neither.
fn tidy(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// The folders in front of the first wildcard with symbolic links followed, and the rest as it is.
fn resolve(glob: &Path) -> Option<PathBuf> {
    let mut fixed = PathBuf::new();
    let mut parts = glob.components().peekable();
    while let Some(part) = parts.peek() {
        let bytes = part.as_os_str().as_bytes();
        if bytes.iter().any(|byte| b"*?[".contains(byte)) {
            break;
        }
        fixed.push(part);
        parts.next();
    }
    let rest: PathBuf = parts.collect();
    let resolved = match fixed.canonicalize() {
        Ok(resolved) => resolved,
        // A file that does not exist yet: its folder counts.
        Err(_) => fixed.parent()?.canonicalize().ok()?.join(fixed.file_name()?),
    };
    let resolved = escape(&resolved);
    Some(if rest.as_os_str().is_empty() { resolved } else { resolved.join(rest) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_globs_get_their_folder() {
        let all = |glob: &str| absolute(OsStr::new(glob), Path::new("/no/such")).unwrap();
        assert_eq!(all("app.db"), ["/no/such/app.db"]);
        assert_eq!(all("./data/**/*.db"), ["/no/such/data/**/*.db"]);
        assert_eq!(all("../x"), ["/no/x"]);
        assert_eq!(all("/a/*"), ["/a/*"]);
    }

    #[test]
    fn a_folder_with_wildcards_in_its_name_is_literal() {
        let all = absolute(OsStr::new("x*"), Path::new("/no/[1]")).unwrap();
        assert_eq!(all, ["/no/[[]1[]]/x*"]);
        assert!(glob::Pattern::new("/no/[[]1[]]/x*").unwrap().matches("/no/[1]/xy"));
    }

    #[test]
    fn symbolic_links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        let all = absolute(OsStr::new("link/a.db"), &root).unwrap();
        assert_eq!(all, [root.join("link/a.db"), root.join("real/a.db")]);
        let all = absolute(OsStr::new("link/*.db"), &root).unwrap();
        assert_eq!(all, [root.join("link/*.db"), root.join("real/*.db")]);
    }

    #[test]
    fn bad_globs_are_refused() {
        for glob in ["", "a\nb", "/a[", "/a**b"] {
            assert!(absolute(OsStr::new(glob), Path::new("/")).is_err(), "{glob:?}");
        }
    }
}
