//! The write lease of an atomic file in an unmodified program.

mod common;

use common::{Folder, build, succeed, under};

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
