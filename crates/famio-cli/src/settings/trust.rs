//! Which `famio.toml` is obeyed: this user's and root's, in places where no other user can create or change it.

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const STICKY: u32 = 0o1000;
/// Writing, for the group and everybody.
const OTHERS: u32 = 0o022;

/// Whether to obey a settings file that the user has not named.
#[derive(Debug, PartialEq, Eq)]
pub enum Trust {
    /// There is none.
    Absent,
    /// It exists, and only this user or root can change it.
    Obeyed,
    /// It exists but is not obeyed; the reason.
    Refused(String),
}

/// Examines `path`, which is absolute and has no symbolic links, except possibly the last component. Opens nothing: a
/// FIFO or a device may have that name.
pub fn look(path: &Path) -> Trust {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::empty()).and_then(fstat) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Trust::Absent,
        Err(errno) => return Trust::Refused(errno.to_string()),
    };
    match FileType::from_raw_mode(file.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Trust::Refused("it is a symbolic link".into()),
        _ => return Trust::Refused("it is not a regular file".into()),
    }
    if let Some(why) = wrong_with(file.st_uid, file.st_mode, false) {
        return Trust::Refused(format!("it {why}"));
    }
    for folder in path.ancestors().skip(1) {
        let why = match std::fs::metadata(folder) {
            Ok(found) => wrong_with(found.uid(), found.mode(), found.mode() & STICKY != 0),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            return Trust::Refused(format!("the folder {} {why}", folder.display()));
        }
    }
    Trust::Obeyed
}

/// Why another user can change it.
fn wrong_with(owner: u32, mode: u32, is_sticky: bool) -> Option<String> {
    if ![0, rustix::process::geteuid().as_raw()].contains(&owner) {
        return Some(format!("belongs to user {owner}"));
    }
    let by_others = mode & OTHERS != 0 && !is_sticky;
    by_others.then(|| format!("may be written by others (mode {:03o}); chmod go-w", mode & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn refused(path: &Path, word: &str) {
        match look(path) {
            Trust::Refused(why) => assert!(why.contains(word), "{why}"),
            other => panic!("{word}: {other:?}"),
        }
    }

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_what_nobody_else_can_write_is_obeyed() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("folder");
        let file = folder.join("famio.toml");
        std::fs::create_dir(&folder).unwrap();
        mode(&folder, 0o755);
        assert_eq!(look(&file), Trust::Absent);
        std::fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        assert_eq!(look(&file), Trust::Obeyed);
        for bits in [0o664, 0o646] {
            mode(&file, bits);
            refused(&file, "it may be written by others");
        }
        mode(&file, 0o600);
        for bits in [0o775, 0o757] {
            mode(&folder, bits);
            refused(&file, "folder may be written by others");
        }
        mode(&folder, 0o1777);
        assert_eq!(look(&file), Trust::Obeyed);
        symlink(&file, folder.join("link")).unwrap();
        refused(&folder.join("link"), "symbolic link");
        rustix::fs::mkfifoat(CWD, folder.join("fifo"), Mode::RUSR).unwrap();
        refused(&folder.join("fifo"), "not a regular file");
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: other owners, not root");
            return;
        }
        chown(&file, Some(1234), None).unwrap();
        refused(&file, "it belongs to user 1234");
        chown(&file, Some(0), None).unwrap();
        chown(&folder, Some(1234), None).unwrap();
        refused(&file, "folder belongs to user 1234");
    }
}
