//! Finds a program as `execvp` does.

use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND};
use rustix::fs::Access;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where `execvp` looks if there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The path to execute for `name`.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    find_in(name, &std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()))
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.to_string_lossy();
    if name.as_bytes().contains(&b'/') {
        return match executable(Path::new(name)) {
            Ok(()) => Ok(name.into()),
            Err(errno) => Err(missing(&shown, errno)),
        };
    }
    let mut refusal = Errno::NOENT;
    if !name.is_empty() {
        for folder in path.as_bytes().split(|&byte| byte == b':') {
            // An empty component of PATH is the current folder.
            let folder = if folder.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(folder)) };
            let candidate = folder.join(name);
            match executable(&candidate) {
                Ok(()) => return Ok(candidate),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => refusal = errno,
            }
        }
    }
    Err(missing(&shown, refusal))
}

/// Whether the kernel would execute this file, as far as permissions go.
fn executable(path: &Path) -> Result<(), Errno> {
    let found = rustix::fs::stat(path)?;
    if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    // Checked as the effective user, who executes it.
    rustix::fs::accessat(rustix::fs::CWD, path, Access::EXEC_OK, rustix::fs::AtFlags::EACCESS)
}

fn missing(shown: &str, errno: Errno) -> Failure {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Failure::new(NOT_FOUND, format!("{shown}: no such program")),
        errno => Failure::new(NOT_EXECUTABLE, format!("{shown}: can't be executed: {errno}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn as_execvp() {
        let folder = tempfile::tempdir().unwrap();
        for (sub, mode) in [("a", 0o644), ("b", 0o755)] {
            let sub = folder.path().join(sub);
            std::fs::create_dir(&sub).unwrap();
            std::fs::write(sub.join("tool"), "").unwrap();
            std::fs::set_permissions(sub.join("tool"), PermissionsExt::from_mode(mode)).unwrap();
        }
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let both = std::env::join_paths([&a, &b]).unwrap();
        assert_eq!(find_in(OsStr::new("tool"), &both).unwrap(), b.join("tool"));
        assert_eq!(find_in(OsStr::new("tool"), a.as_os_str()).unwrap_err().status, NOT_EXECUTABLE);
        assert_eq!(find_in(OsStr::new("nothing"), &both).unwrap_err().status, NOT_FOUND);
        assert_eq!(find_in(OsStr::new(""), &both).unwrap_err().status, NOT_FOUND);
        assert_eq!(find_in(a.as_os_str(), &both).unwrap_err().status, NOT_EXECUTABLE);
        assert_eq!(find_in(b.join("tool").as_os_str(), OsStr::new("")).unwrap(), b.join("tool"));
    }
}
