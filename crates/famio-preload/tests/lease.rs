//! The write lease of an atomic file in an unmodified program.

mod common;

use common::only;

#[test]
fn it_is_in_nobodys_way() {
    let (folder, _) = only("lease");
    assert_eq!(folder.names(), ["atomic again", "atomic mapped", "atomic third"]);
}
