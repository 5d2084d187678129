//! The library's own files.

#[path = "../../../crates/famio/src/map/huge.rs"]
pub(crate) mod huge;
