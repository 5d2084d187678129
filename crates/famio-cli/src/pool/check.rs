//! Whether a pool can hold journals: checked before a program runs, not at its first write.

use famio::journal::Pool;
use rustix::fs::{Access, AtFlags, CWD};
use std::path::Path;

/// Checks a pool that the user named: it must exist, be trusted by the library's rules, and be writable.
pub fn check(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Err(error) => return Err(format!("pool {}: {error}; it has to be made first", path.display())),
        Ok(found) if !found.is_dir() => return Err(format!("pool {}: not a folder", path.display())),
        Ok(_) => {}
    }
    Pool::at(path, None).map_err(|error| error.to_string())?;
    writable(path).map_err(|error| format!("pool {error}"))
}

/// Whether files can be created in a folder.
pub fn writable(folder: &Path) -> Result<(), String> {
    rustix::fs::accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(|error| format!("{}: not writable ({error})", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_only() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(check(folder.path()), Ok(()));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(check(&file).unwrap_err().contains("not a folder"));
        assert!(check(&folder.path().join("none")).unwrap_err().contains("made first"));
    }
}
