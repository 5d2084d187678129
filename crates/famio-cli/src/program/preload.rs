//! Finds the preload library, and that of `famio trace`.

use super::elf::{self, Kind};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NAME: &str = "libfamio_preload.so";
const TRACER: &str = "libfamio_trace.so";
/// Where `make install` puts it, relative to the command's folder.
const INSTALLED: &str = "../lib/famio";

/// Searches `FAMIO_PRELOAD`, beside the command (a build tree), and where `make install` puts it.
pub fn find() -> Result<PathBuf, String> {
    find_library(NAME, "FAMIO_PRELOAD")
}

/// Searches `FAMIO_TRACER`, and where the preload library may be.
pub fn find_tracer() -> Result<PathBuf, String> {
    find_library(TRACER, "FAMIO_TRACER")
}

fn find_library(name: &str, variable: &str) -> Result<PathBuf, String> {
    let named = std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let command = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let library = find_from(name, variable, named.as_deref(), command.parent().unwrap_or(Path::new("/")))?;
    check(&library).map_err(|why| format!("{}: {why}; the loader would ignore it", library.display()))?;
    Ok(library)
}

/// Checked, since the loader only warns about a library that it cannot load, and runs the program without protection.
fn check(library: &Path) -> Result<(), String> {
    let file = File::open(library).map_err(|error| error.to_string())?;
    match elf::read(&file).map_err(|error| error.to_string())? {
        Kind::NotElf => Err("not a library".into()),
        Kind::Foreign => Err(format!("for another architecture than {}, 64 bits", std::env::consts::ARCH)),
        // A library needs not name a loader.
        Kind::Static | Kind::Dynamic(_) => Ok(()),
    }
}

fn find_from(name: &str, variable: &str, named: Option<&Path>, folder: &Path) -> Result<PathBuf, String> {
    let path = match named {
        Some(path) if path.is_file() => path.to_path_buf(),
        Some(path) => return Err(format!("{variable}: no such file: {}", path.display())),
        None => {
            let places = [folder.join(name), folder.join(INSTALLED).join(name)];
            match places.iter().find(|path| path.is_file()) {
                Some(path) => path.clone(),
                None => {
                    let places = places.map(|path| path.display().to_string()).join(" and ");
                    return Err(format!(
                        "{name} not found; looked for {places}: cargo install brings the command alone. In Famio's source run 'make' and \
                         'make install PREFIX=...', or name a library that was built in {variable}"
                    ));
                }
            }
        }
    };
    let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(format!(
            "{}: LD_PRELOAD can't name a path with a space or a colon; copy the library elsewhere and set {variable}",
            path.display()
        ));
    }
    Ok(path)
}

/// The value of `LD_PRELOAD`: Famio's library first, then the previous value.
pub fn value(library: &Path, before: Option<&OsStr>) -> std::ffi::OsString {
    let mut value = library.as_os_str().to_os_string();
    let before = before.unwrap_or_default().as_bytes();
    for other in before.split(|byte| b" :".contains(byte)) {
        if !other.is_empty() && other != library.as_os_str().as_bytes() {
            value.push(":");
            value.push(OsStr::from_bytes(other));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(named: Option<&Path>, folder: &Path) -> Result<PathBuf, String> {
        find_from(NAME, "FAMIO_PRELOAD", named, folder)
    }

    #[test]
    fn beside_then_installed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let bin = root.join("bin");
        let installed = root.join("lib/famio");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&installed).unwrap();
        assert!(find_in(None, &bin).unwrap_err().contains("lib/famio"));
        std::fs::write(installed.join(NAME), "").unwrap();
        assert_eq!(find_in(None, &bin).unwrap(), installed.join(NAME));
        std::fs::write(bin.join(NAME), "").unwrap();
        assert_eq!(find_in(None, &bin).unwrap(), bin.join(NAME));
        assert_eq!(find_in(Some(&installed.join(NAME)), &bin).unwrap(), installed.join(NAME));
        assert!(find_in(Some(&root.join("no")), &bin).unwrap_err().contains("FAMIO_PRELOAD"));
        std::fs::create_dir(root.join("a b")).unwrap();
        std::fs::write(root.join("a b").join(NAME), "").unwrap();
        assert!(find_in(None, &root.join("a b")).unwrap_err().contains("space"));
    }

    #[test]
    fn what_is_no_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        std::fs::write(&path, "text").unwrap();
        assert!(check(&path).unwrap_err().contains("not a library"));
        assert_eq!(check(Path::new("/proc/self/exe")), Ok(()));
    }

    #[test]
    fn others_stay_behind_ours_which_is_there_once() {
        let ours = Path::new("/f.so");
        assert_eq!(value(ours, None), "/f.so");
        assert_eq!(value(ours, Some(OsStr::new("a.so b.so:/f.so"))), "/f.so:a.so:b.so");
    }
}
