//! Several opens of one file in one process: they keep the write lease, and behave as on a plain file.

mod common;

use common::{Folder, build, succeed, under};

fn twins(folder: &Folder) {
    let program = build("twins");
    for journal in ["auto", "always"] {
        succeed(under(folder, &program).arg("atomic").env("FAMIO_JOURNAL", journal));
        for name in folder.names() {
            assert!(name.starts_with("atomic"), "left behind: {name}");
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
    }
    let _ = std::fs::remove_file(&program);
}

#[test]
fn they_keep_the_lease_in_memory() {
    twins(&Folder::new("twins"));
}

#[test]
fn they_keep_the_lease_on_a_disk() {
    twins(&Folder::on_disk("twins"));
}
