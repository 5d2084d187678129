//! The environment block that the program was started with.

use core::ffi::c_char;
use std::ffi::CStr;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Whether libc has set up the environment.
pub(in crate::posix) fn is_there() -> bool {
    // SAFETY: libc's variable; only its value is looked at.
    !unsafe { environ }.is_null()
}

/// The user's home folder, from the environment.
pub(in crate::posix) fn home() -> Option<&'static str> {
    variable("HOME").and_then(|home| core::str::from_utf8(home).ok())
}

/// Whether the program has more rights than its caller (set-user-id, set-group-id, file capabilities). The caller's
/// environment must not configure it then.
fn is_secure() -> bool {
    // SAFETY: reads the auxiliary vector, which is there before `main`.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

pub(in crate::posix) fn variable(name: &str) -> Option<&'static [u8]> {
    if is_secure() {
        return None;
    }
    // SAFETY: libc's environment block: a null-terminated array of C strings. It is read once, at the start, before
    // the program can change it.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            entry = entry.add(1);
        }
    }
    None
}
