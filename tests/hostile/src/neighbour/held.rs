//! A descriptor that the neighbour keeps.

use std::fs::File;

/// A descriptor that the neighbour keeps, with a lock or a lease by it, or a map.
pub struct Held {
    _file: File,
    map: Option<(*mut libc::c_void, usize)>,
}

impl Held {
    /// With a map of it, which is unmapped in the end.
    pub fn new(file: File, map: Option<(*mut libc::c_void, usize)>) -> Self {
        Self { _file: file, map }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((at, length)) = self.map {
            // SAFETY: the map is ours, and nothing else uses it.
            unsafe { libc::munmap(at, length) };
        }
    }
}
