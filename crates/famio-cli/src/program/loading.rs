//! Whether a program will load the library: checked before it runs, because `LD_PRELOAD` fails open.

use super::elf::{self, Kind};
use super::search;
use crate::failure::{Failure, NOT_EXECUTABLE, REFUSED};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How many nested interpreters the kernel follows.
const DEEPEST: usize = 5;
/// How many bytes of a script's first line the kernel reads.
const FIRST_LINE: usize = 256;

/// Refuses a program into which the library would not be loaded. Follows scripts to their interpreter, and returns
/// its path.
pub fn check(path: &Path) -> Result<PathBuf, Failure> {
    follow(path, path, 0)
}

/// `path` stands for `program`: it is the program itself, or an interpreter on the way.
fn follow(program: &Path, path: &Path, depth: usize) -> Result<PathBuf, Failure> {
    let name = if program == path {
        format!("{}", program.display())
    } else {
        format!("{} (through its interpreter {})", program.display(), path.display())
    };
    let refuse = |why: &str| Err(Failure::new(REFUSED, format!("{name}: {why}; it would run without protection")));
    if depth > DEEPEST {
        return Err(Failure::new(NOT_EXECUTABLE, format!("{name}: too many interpreters")));
    }
    // A program that may be executed but not read would run, but its kind is unknown.
    let file = match crate::look::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::new(crate::failure::NOT_FOUND, format!("{name}: no such program")));
        }
        Err(error) => return refuse(&format!("can't be read to check it ({error})")),
    };
    let found = file.metadata().map_err(|error| Failure::refused(format!("{name}: {error}")))?;
    let kind = elf::read(&file).map_err(|error| Failure::new(NOT_EXECUTABLE, format!("{name}: {error}")))?;
    if kind == Kind::NotElf {
        return follow_script(program, &file, depth, &refuse);
    }
    // The kernel ignores these bits for scripts.
    if found.permissions().mode() & 0o4000 != 0 {
        return refuse(&format!("is set-user-id (of user {}), where the loader ignores LD_PRELOAD", found.uid()));
    }
    if found.permissions().mode() & 0o2010 == 0o2010 {
        return refuse(&format!("is set-group-id (of group {}), where the loader ignores LD_PRELOAD", found.gid()));
    }
    if has_capabilities(&file) {
        return refuse("has file capabilities, with which the loader ignores LD_PRELOAD");
    }
    match kind {
        Kind::Static => refuse("is statically linked, so that its calls can't be intercepted"),
        Kind::Foreign => refuse(&format!("is for another architecture than {}, 64 bits", std::env::consts::ARCH)),
        Kind::Dynamic(loader) if !same_loader(&loader) => {
            refuse(&format!("is for another C library (loader {})", OsStr::from_bytes(&loader).to_string_lossy()))
        }
        Kind::Dynamic(_) | Kind::NotElf => Ok(path.to_path_buf()),
    }
}

/// Continues with the interpreter that the first line names; `execvp` runs a file without such a line by `/bin/sh`.
fn follow_script(
    program: &Path,
    file: &File,
    depth: usize,
    refuse: &dyn Fn(&str) -> Result<PathBuf, Failure>,
) -> Result<PathBuf, Failure> {
    let mut line = [0; FIRST_LINE];
    let length = match elf::read_up_to(file, &mut line) {
        Ok(length) => length,
        Err(error) => return refuse(&format!("can't be read to check it ({error})")),
    };
    let Some((interpreter, argument)) = first_line(&line[..length]) else {
        return follow(program, Path::new("/bin/sh"), depth + 1);
    };
    let interpreter = Path::new(OsStr::from_bytes(interpreter));
    let found = follow(program, interpreter, depth + 1)?;
    // For `#!/usr/bin/env python3`, the program that env runs counts; options and assignments of env are not
    // interpreted.
    let plain = !argument.is_empty() && !argument.starts_with(b"-") && !argument.contains(&b'=');
    if plain && interpreter.file_name() == Some(OsStr::new("env")) {
        let path = search::find(OsStr::from_bytes(argument))?;
        return follow(program, &path, depth + 1);
    }
    Ok(found)
}

/// The interpreter and its one argument.
fn first_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_prefix(b"#!")?;
    let line = line.split(|&byte| byte == b'\n' || byte == 0).next()?.trim_ascii();
    let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    (!interpreter.is_empty()).then(|| (interpreter, argument.trim_ascii()))
}

fn has_capabilities(file: &File) -> bool {
    let mut nothing = [0u8; 0];
    rustix::fs::fgetxattr(file, "security.capability", &mut nothing[..]).is_ok_and(|length| length > 0)
}

/// Whether a loader is the one for which this command, and so the library, was built. The folder may differ; the file
/// name identifies C library and architecture.
fn same_loader(loader: &[u8]) -> bool {
    let ours = File::open("/proc/self/exe").and_then(|file| elf::read(&file));
    match ours {
        Ok(Kind::Dynamic(ours)) => base_name(&ours) == base_name(loader),
        _ => true,
    }
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(folder: &Path, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn first_lines() {
        assert_eq!(first_line(b"#!/bin/sh\nrest"), Some((&b"/bin/sh"[..], &b""[..])));
        assert_eq!(first_line(b"#! \t/usr/bin/env  python3 -x \n"), Some((&b"/usr/bin/env"[..], &b"python3 -x"[..])));
        assert_eq!(first_line(b"#!\n"), None);
        assert_eq!(first_line(b"echo"), None);
    }

    #[test]
    fn scripts_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(check(&script(folder, "plain", b"echo", 0o755)).is_ok());
        assert!(check(&script(folder, "sh", b"#!/bin/sh\n", 0o755)).is_ok());
        assert!(check(&script(folder, "env", b"#!/usr/bin/env sh\n", 0o755)).is_ok());
        let gone = check(&script(folder, "gone", b"#!/no/such\n", 0o755)).unwrap_err();
        assert_eq!(gone.status, crate::failure::NOT_FOUND);
        let own = folder.join("loop");
        script(folder, "loop", format!("#!{}\n", own.display()).as_bytes(), 0o755);
        assert_eq!(check(&own).unwrap_err().status, NOT_EXECUTABLE);
    }

    #[test]
    fn privileged_programs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("true");
        std::fs::copy("/bin/true", &copy).unwrap();
        assert!(check(&copy).is_ok());
        for mode in [0o4755, 0o2755] {
            std::fs::set_permissions(&copy, PermissionsExt::from_mode(mode)).unwrap();
            let error = check(&copy).unwrap_err();
            assert_eq!(error.status, REFUSED);
            assert!(error.message.contains("LD_PRELOAD"), "{}", error.message);
        }
    }
}
