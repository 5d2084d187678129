//! The limit on file sizes (`ulimit -f`). The kernel answers what exceeds it with SIGXFSZ, which ends the command without
//! a word; that cannot be ignored before a program runs, since the program would inherit it.

use rustix::process::{Resource, getrlimit};

/// Whether a file of so many bytes may be made.
pub fn permits(bytes: u64) -> Result<(), String> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => {
            Err(format!("it takes a file of {bytes} bytes, and the limit is {limit}; raise it (ulimit -f unlimited)"))
        }
        _ => Ok(()),
    }
}
