//! The shared memory in which the processes of a run note what they select and sync: a file in a folder of this
//! user's. The last process removes it; what a kill leaves is removed by the next run.

use crate::settings::{Layer, Origins};
use famio::posix::run_record;
use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The value of the variable for "no record".
pub const NONE: &str = "none";
const PREFIX: &str = "famio-run-";
const FILE: &str = "record";
const PAGE: usize = 4096;

/// Creates the record of this process and of the program that it becomes. With `verbose`, the settings are reported
/// at the end.
pub fn make(layer: &Layer, origins: &Origins, verbose: bool) -> Result<PathBuf, String> {
    let lines = layer.atomic.join("\n".as_ref());
    let labels: Vec<String> = origins.globs.iter().map(|glob| glob.label.clone()).collect();
    let details = verbose.then(|| {
        let line = |setting: &crate::settings::Setting| format!("setting: {}: {}\n", setting.name, setting.text());
        origins.settings.iter().map(line).collect::<String>()
    });
    let me = std::process::id();
    let bytes = run_record::new_file(me, lines.as_bytes(), &labels, details.as_deref());
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let mut error = String::new();
    let shm = layer.shm.clone().unwrap_or_else(|| famio::sys::shm::DEFAULT.into());
    for base in runtime.into_iter().chain([shm, std::env::temp_dir()]) {
        match make_in(&base, me, &bytes) {
            Ok(path) => return Ok(path),
            Err(why) => error = format!("{}: {why}", base.display()),
        }
    }
    Err(error)
}

/// Removes it if the program could not be started.
pub fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = path.parent().map(std::fs::remove_dir);
}

fn make_in(base: &Path, me: u32, bytes: &[u8]) -> io::Result<PathBuf> {
    // First, so that no folder is left.
    crate::limit::permits(bytes.len() as u64).map_err(io::Error::other)?;
    let start = start_of(me).ok_or_else(|| io::Error::other("/proc can't be read"))?;
    sweep(base);
    let template = base.join(format!("{PREFIX}{}-{me}-{start}-XXXXXX", namespace()?)).into_os_string().into_vec();
    let template = CString::new(template)?.into_raw();
    // SAFETY: a C string that is changed in place, and taken back.
    let folder = unsafe {
        let made = !libc::mkdtemp(template).is_null();
        let name = CString::from_raw(template);
        if !made {
            return Err(io::Error::last_os_error());
        }
        PathBuf::from(OsString::from_vec(name.into_bytes()))
    };
    let path = folder.join(FILE);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(|file: File| {
        file.set_permissions(PermissionsExt::from_mode(0o600))?;
        file.set_len(bytes.len() as u64)?;
        // Most of it is empty, and takes no space until something is noted there.
        let mut parts = bytes.chunks(PAGE).enumerate().filter(|(_, part)| part.iter().any(|&byte| byte != 0));
        parts.try_for_each(|(index, part)| file.write_all_at(part, (index * PAGE) as u64))
    });
    written.inspect_err(|_| remove(&path))?;
    Ok(path)
}

/// Process ids belong to a namespace.
fn namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino())
}

/// The start time of a process, which tells it from an earlier process with the same id.
fn start_of(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Removes records that this user's runs have left and whose first process is gone.
fn sweep(base: &Path) {
    let (Ok(entries), Ok(namespace)) = (std::fs::read_dir(base), namespace()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.as_bytes().strip_prefix(PREFIX.as_bytes()) else { continue };
        let Some(numbers) = numbers(rest).filter(|numbers| numbers[0] == namespace) else { continue };
        let is_gone = start_of(numbers[1] as u32) != Some(numbers[2]);
        let is_ours = std::fs::symlink_metadata(entry.path())
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
        if is_gone && is_ours {
            remove(&entry.path().join(FILE));
        }
    }
}

/// Namespace, process id and start time in a folder's name.
fn numbers(text: &[u8]) -> Option<[u64; 3]> {
    let mut parts = std::str::from_utf8(text).ok()?.split('-').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kill_left_is_removed_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let me = std::process::id();
        let mine = make_in(base.path(), me, b"x").unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = make_in(base.path(), child.id(), b"x");
        child.wait().unwrap();
        std::fs::create_dir(base.path().join("famio-run-other")).unwrap();
        let kept = make_in(base.path(), me, b"x").unwrap();
        assert!(gone.is_ok_and(|path| !path.exists()));
        assert!(mine.exists() && kept.exists() && base.path().join("famio-run-other").exists());
        remove(&kept);
        assert!(!kept.parent().unwrap().exists());
    }
}
