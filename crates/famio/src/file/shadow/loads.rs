//! Map-ahead of the program's own maps, for what copies of ours load from them. Where the kernel watches a map for stores it maps
//! nothing around a fault: each page of 4 KiB costs one, and to map it before by `MADV_POPULATE_READ` half of that. That is no
//! store: a page that was write-protected stays so.

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
    /// For a map that was just made, or has just become another's.
    pub fn begin(range: &mut MappedRange) {
        range.ahead.end();
        if range.end.saturating_sub(range.start) < FROM || guard::install().is_err() {
            return;
        }
        let reach = if range.watched { Reach::PopulateRead } else { Reach::Touch };
        // SAFETY: a map of a file, that the program gives up through us: it is ended before. A program that gives it up behind
        // our back has a byte read here and there, or page tables built, of what it puts there.
        range.ahead = Self(Some(Arc::new(unsafe { Ahead::new(range.start..range.end, reach) })));
    }

    pub fn get(&self) -> Option<Arc<Ahead>> {
        self.0.clone()
    }

    /// Other memory has its place.
    pub fn forget(&self) {
        if let Some(ahead) = &self.0 {
            ahead.forget(0..usize::MAX);
        }
    }

    /// For good: the map goes, or is cut. Nobody is at it any more when this returns.
    pub fn end(&mut self) {
        if let Some(ahead) = self.0.take() {
            ahead.halt();
        }
    }
}

/// No part of what a map is.
impl PartialEq for Loads {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Loads {}
