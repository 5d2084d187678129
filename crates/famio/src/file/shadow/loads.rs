//! Map-ahead of the program's maps, for copies that load from them. If the kernel watches a map for stores, a fault
//! maps only its own page of 4 KiB; `MADV_POPULATE_READ` in advance costs half of that, and does not count as a
//! store.

use super::mapped_range::MappedRange;
use crate::map::ahead::{Ahead, Reach};
use crate::map::guard;
use std::sync::Arc;

/// Bytes of a map from which on it has map-ahead.
const FROM: usize = crate::map::AHEAD_FROM as usize;

/// Map-ahead of one map, if it has any.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads(Option<Arc<Ahead>>);

impl Loads {
    /// For a map that was just made, or became one of another file.
    pub fn begin(range: &mut MappedRange) {
        range.ahead.end();
        if range.end.saturating_sub(range.start) < FROM || guard::install().is_err() {
            return;
        }
        let reach = if range.watched { Reach::PopulateRead } else { Reach::Touch };
        // SAFETY: a map of a file. When the program unmaps it through us, this is ended before. If it unmaps it by a
        // system call of its own, the memory that follows has some bytes read, or page tables built.
        range.ahead = Self(Some(Arc::new(unsafe { Ahead::new(range.start..range.end, reach) })));
    }

    pub fn get(&self) -> Option<Arc<Ahead>> {
        self.0.clone()
    }

    /// Its memory was replaced.
    pub fn forget(&self) {
        if let Some(ahead) = &self.0 {
            ahead.forget(0..usize::MAX);
        }
    }

    /// The map is unmapped or cut. No thread uses it any more when this returns.
    pub fn end(&mut self) {
        if let Some(ahead) = self.0.take() {
            ahead.halt();
        }
    }
}

/// Does not count when maps are compared.
impl PartialEq for Loads {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Loads {}
