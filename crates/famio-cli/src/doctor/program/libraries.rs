//! Which libraries the loader would load. Asks the loader itself, since only it knows all its rules.

use crate::program::elf::{self, Kind};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The loader's list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Files.
    pub found: Vec<PathBuf>,
    /// Names that it did not find.
    pub missing: Vec<String>,
}

/// The libraries of a program or library. Runs none of its code: the loader maps it and stops. Uses this command's
/// loader, not one that the program names.
pub fn of(program: &Path) -> Result<Listed, String> {
    const ME: &str = "/proc/self/exe";
    let me = File::open(ME).and_then(|file| elf::read(&file)).map_err(|error| format!("{ME}: {error}"))?;
    let Kind::Dynamic(loader) = me else { return Err("this command has no loader".into()) };
    let loader = PathBuf::from(OsStr::from_bytes(&loader));
    let mut command = Command::new(&loader);
    command.arg("--list").arg(program).env_remove("LD_PRELOAD");
    let done = command.output().map_err(|error| format!("{}: {error}", loader.display()))?;
    if done.status.success() {
        return Ok(parse(&done.stdout));
    }
    // It stops at the first library that it does not find.
    let said = String::from_utf8_lossy(&done.stderr).trim_end().to_string();
    match missing(&said) {
        Some(name) => Ok(Listed { missing: vec![name], ..Listed::default() }),
        None => Err(said),
    }
}

/// The library that the loader complains about.
fn missing(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("loading shared libraries: ")?;
    let (name, why) = rest.split_once(": ")?;
    why.contains("cannot open").then(|| name.to_string())
}

/// Parses lines such as `name => path (address)`, `path (address)`, `name => not found`.
fn parse(text: &[u8]) -> Listed {
    let mut listed = Listed::default();
    for line in String::from_utf8_lossy(text).lines().map(str::trim) {
        let (name, rest) = line.split_once(" => ").unwrap_or(("", line));
        if rest == "not found" {
            listed.missing.push(name.into());
        } else if let Some((path, _)) = rest.rsplit_once(" (0x")
            && path.starts_with('/')
        {
            listed.found.push(path.into());
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = b"\tlinux-vdso.so.1 (0x00007ffe)\n\tliba.so => /a b/liba.so (0x1)\n\tlibb.so => not found\n\t/lib64/ld.so (0x2)\n";
        let listed = parse(text);
        assert_eq!(listed.found, [PathBuf::from("/a b/liba.so"), "/lib64/ld.so".into()]);
        assert_eq!(listed.missing, ["libb.so"]);
    }

    #[test]
    fn the_loader_is_asked() {
        let listed = of(Path::new("/bin/sh")).unwrap();
        assert!(listed.found.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{listed:?}");
        assert_eq!(of(Path::new("/no/such")).unwrap().missing, ["/no/such"]);
        let said = "x: error while loading shared libraries: libq.so: cannot open shared object file: No such file";
        assert_eq!(missing(said).unwrap(), "libq.so");
    }
}
