//! The write lease of an atomic file in an unmodified program.

mod common;

use common::{Folder, build, succeed, under};
use std::os::fd::AsRawFd;

#[test]
fn it_is_in_nobodys_way() {
    let (folder, program) = (Folder::new("lease"), build("lease"));
    succeed(under(&folder, &program).arg("atomic").env("FAMIO_JOURNAL", "always"));
    let _ = std::fs::remove_file(&program);
    assert_eq!(folder.names(), ["atomic again", "atomic mapped", "atomic third"]);
}

/// It used to be killed by the signal of the library's mark.
#[test]
fn the_break_of_the_programs_own_comes_by_its_own_signal() {
    let (folder, program) = (Folder::new("own-lease"), build("own_lease"));
    for journal in ["auto", "always"] {
        succeed(under(&folder, &program).arg("atomic").env("FAMIO_JOURNAL", journal));
    }
    let _ = std::fs::remove_file(&program);
}

/// The thread that waits for breaks of leases waited for `SIGIO`, and took what was sent to the process: programs with
/// signal-driven input waited for ever.
#[test]
fn a_signal_of_the_program_is_the_programs() {
    let (folder, program) = (Folder::new("own-sigio"), build("own_sigio"));
    for journal in ["auto", "always"] {
        succeed(under(&folder, &program).arg("atomic").env("FAMIO_JOURNAL", journal));
    }
    let _ = std::fs::remove_file(&program);
}

/// It was called again, and waited until the kernel broke the lease (45 seconds).
#[test]
fn an_open_that_waits_for_the_lease_of_another_program_is_interrupted() {
    let (folder, program) = (Folder::new("interrupted"), build("interrupted_open"));
    let file = std::fs::File::create(folder.path().join("atomic")).unwrap();
    // SAFETY: no memory is passed. This process ignores the signal of the break.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK), 0);
    }
    succeed(under(&folder, &program).arg("atomic"));
    let _ = std::fs::remove_file(&program);
}
