//! The radix tree: nodes are installed by compare-and-swap.

use super::arena;
use crate::index::Index;
use crate::sync::{Ordering, spawn};

/// Threads that create cells concurrently agree on them, and find them again; distant and close blocks, so that the
/// skip pointer changes.
pub fn same_cells() {
    let arena = arena();
    let blocks = [[3, 515, 1 << 20], [515, 3, 7], [1 << 20, 7, 515]];
    let running: Vec<_> = blocks
        .into_iter()
        .map(|mine| {
            let arena = arena.clone();
            spawn(move || {
                let index = Index::new(&arena);
                for block in mine {
                    let cell = index.cell(block).unwrap();
                    cell.transaction.fetch_add(1, Ordering::Relaxed);
                    assert!(core::ptr::eq(index.lookup(block).unwrap(), cell));
                }
            })
        })
        .collect();
    running.into_iter().for_each(crate::sync::Running::join);
    let index = Index::new(&arena);
    for (block, writers) in [(3, 2), (515, 3), (7, 2), (1 << 20, 2)] {
        assert_eq!(index.lookup(block).unwrap().transaction.load(Ordering::Relaxed), writers, "block {block}");
    }
    assert!(index.lookup(1030).is_none());
}
