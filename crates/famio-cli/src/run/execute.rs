//! Becomes the program: `execve` of the checked path, with nothing else of the process changed.

use crate::failure::{Failure, NOT_EXECUTABLE};
use crate::program::preload;
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LD_PRELOAD: &str = "LD_PRELOAD";

/// Executes `path` with these arguments; returns only on failure, with the reason.
pub fn become_program(path: &Path, command: &[OsString], variables: &[(&str, OsString)], library: &Path) -> Failure {
    let arguments = command.iter().map(|word| c_string(word));
    let Ok(arguments) = arguments.collect::<Result<Vec<_>, _>>() else {
        return Failure::refused("an argument has a zero byte in it");
    };
    let environment = environment(std::env::vars_os(), variables, library);
    let Ok(environment) = environment.iter().map(|entry| c_string(entry)).collect::<Result<Vec<_>, _>>() else {
        return Failure::refused("a setting has a zero byte in it");
    };
    let Ok(program) = c_string(path.as_os_str()) else { return Failure::refused("the path has a zero byte in it") };
    let mut errno = execve(&program, &arguments, &environment);
    if errno == Errno::NOEXEC {
        // As execvp: a script without a line that names its interpreter.
        let shell = c"/bin/sh".to_owned();
        let rest = arguments.into_iter().skip(1);
        let arguments: Vec<_> = [shell.clone(), program].into_iter().chain(rest).collect();
        errno = execve(&shell, &arguments, &environment);
    }
    Failure::new(NOT_EXECUTABLE, format!("{}: can't be executed: {errno}", path.display()))
}

/// The inherited environment with Famio's variables.
fn environment(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    variables: &[(&str, OsString)],
    library: &Path,
) -> Vec<OsString> {
    let mut before = None;
    let mut entries = Vec::new();
    for (name, value) in inherited {
        if name == LD_PRELOAD {
            before = Some(value);
        } else if !variables.iter().any(|(ours, _)| name == *ours) {
            entries.push(entry(&name, &value));
        }
    }
    for (name, value) in variables {
        entries.push(entry(OsStr::new(name), value));
    }
    entries.push(entry(OsStr::new(LD_PRELOAD), &preload::value(library, before.as_deref())));
    entries
}

fn entry(name: &OsStr, value: &OsStr) -> OsString {
    let mut entry = name.to_os_string();
    entry.push("=");
    entry.push(value);
    entry
}

fn c_string(text: &OsStr) -> Result<CString, std::ffi::NulError> {
    CString::new(text.as_bytes())
}

fn execve(path: &CString, arguments: &[CString], environment: &[CString]) -> Errno {
    let arguments = pointers(arguments);
    let environment = pointers(environment);
    // SAFETY: both arrays end with a null pointer and their strings outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::NOSYS)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_variables_replace_and_the_rest_stays() {
        let inherited = [("A", "1"), ("FAMIO_POLICY", "undo"), ("LD_PRELOAD", "x.so")];
        let inherited = inherited.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let entries = environment(inherited.into_iter(), &[("FAMIO_POLICY", "redo".into())], Path::new("/f.so"));
        assert_eq!(entries, ["A=1", "FAMIO_POLICY=redo", "LD_PRELOAD=/f.so:x.so"]);
    }
}
