//! Users: unused numbers, so that no account need be created.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The user whose files are attacked.
pub const VICTIM: u32 = 61233;
/// The user who attacks.
pub const NEIGHBOUR: u32 = 61234;
/// The user of a program (`USER` in rights.c).
pub const USER: u32 = 61232;
/// A group of the victim's, and sometimes of the neighbour's.
pub const GROUP: u32 = 61300;

/// Runs the command as that user, with these groups and no capabilities, in a new process group.
pub fn run_as(command: &mut Command, user: u32, groups: &[u32]) {
    let groups = groups.to_vec();
    // SAFETY: only system calls, which are allowed after a fork.
    unsafe {
        command.pre_exec(move || {
            libc::setpgid(0, 0);
            libc::umask(0o022);
            if user != 0 {
                ok(libc::setgroups(groups.len(), groups.as_ptr()))?;
                ok(libc::setresgid(user, user, user))?;
                ok(libc::setresuid(user, user, user))?;
            }
            ok(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
        });
    }
}

fn ok(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
