//! The library's own files.

#[path = "../../../crates/famio/src/journal/inplace/free.rs"]
mod free;
#[path = "../../../crates/famio/src/journal/inplace/segment.rs"]
mod segment;

pub(crate) use free::Free;
pub(crate) use segment::Geometry;

/// Checks are not tested here.
#[derive(Clone, Copy)]
pub(crate) struct Key;

impl Key {
    pub fn check(self, _number: u64, _words: &[u64]) -> u64 {
        0
    }
}
