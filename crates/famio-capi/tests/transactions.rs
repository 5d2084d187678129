//! Transactions and rollback in C, by the shared and the static library and under the interposer.

mod common;

use common::{Folder, Linked, beside, build, command, succeed};

const PROGRAM: &str = "crates/famio-capi/tests/programs/transactions.c";

#[test]
fn what_they_do_and_refuse() {
    for linked in [Linked::Shared, Linked::Static] {
        let program = build(PROGRAM, linked);
        for folder in [Folder::new(&format!("tx-{linked:?}")), Folder::on_disk(&format!("tx-{linked:?}"))] {
            succeed(command(&program).current_dir(folder.path()));
            assert_eq!(folder.names(), ["file"]);
        }
    }
}

#[test]
fn under_the_interposer() {
    let program = build(PROGRAM, Linked::Shared);
    let folder = Folder::new("tx-interposed");
    let mut command = command(&program);
    command.env("LD_PRELOAD", beside("libfamio_preload.so")).env("FAMIO_ATOMIC", "");
    succeed(command.current_dir(folder.path()));
    assert_eq!(folder.names(), ["file"]);
}
