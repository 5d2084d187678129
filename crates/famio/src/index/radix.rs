//! A radix tree from block numbers to cells: nine bits per level, four levels (256 TiB of 4 KiB blocks). Nodes are
//! installed by compare-and-swap and never removed while the arena lives (Libnvmmio, section 3.2).

use super::arena::Arena;
use crate::error::{Error, Result};
use crate::index::blocks::block::{BITS, BLOCKS_MAX, FANOUT, LEVELS};
use crate::index::blocks::cell::Cell;
use crate::sync::{AtomicU64, Ordering};

/// An inner node: offsets of the nodes below, 0 if there is none.
pub(super) type Node = [AtomicU64; FANOUT];
/// A node of level 1: 512 blocks.
#[repr(C, align(64))]
pub(super) struct Leaf {
    /// One bit per block, see [`Index::has_entry`].
    has_entry: [AtomicU64; FANOUT / 64],
    pub(super) cells: [Cell; FANOUT],
}

/// The tree of one arena.
#[derive(Clone, Copy)]
pub(crate) struct Index<'a> {
    arena: &'a Arena,
}

/// The index of the child of a node at `level` that leads to `block`.
#[inline]
pub(super) fn child(block: u64, level: u32) -> usize {
    (block >> (BITS * (level - 1))) as usize & (FANOUT - 1)
}

impl<'a> Index<'a> {
    pub fn new(arena: &'a Arena) -> Self {
        Self { arena }
    }

    /// The node to start from: the skip pointer's if it covers the block, else the root.
    #[inline]
    fn start(&self, block: u64) -> (u64, u32) {
        let shared = self.arena.shared();
        let skip = shared.skip.load(Ordering::Acquire);
        let level = (skip & 63) as u32; // nodes are aligned to 64: the low bits are free for the level
        if level != 0 && block < 1 << (BITS * level) {
            (skip & !63, level)
        } else {
            (shared.root.load(Ordering::Acquire), LEVELS)
        }
    }

    /// The block's cell, if the block has one.
    #[inline]
    pub fn lookup(&self, block: u64) -> Option<&'a Cell> {
        self.leaf(block).map(|leaf| &leaf.cells[child(block, 1)])
    }

    #[inline]
    fn leaf(&self, block: u64) -> Option<&'a Leaf> {
        if block >= BLOCKS_MAX {
            return None;
        }
        let (mut at, mut level) = self.start(block);
        while level > 1 {
            if at == 0 {
                return None;
            }
            at = self.arena.at::<Node>(at)?[child(block, level)].load(Ordering::Acquire);
            level -= 1;
        }
        if at == 0 { None } else { self.arena.at::<Leaf>(at) }
    }

    /// The number of blocks from `block` on, up to `most`, that surely have no cell. Skips whole subtrees.
    pub fn absent_run(&self, block: u64, most: u64) -> u64 {
        let mut run = 0;
        while run < most {
            let Some(end) = self.absent_to(block + run) else { break };
            run = end - block;
        }
        run.min(most)
    }

    /// If the block has no cell: the end of the smallest missing subtree that it belongs to.
    fn absent_to(&self, block: u64) -> Option<u64> {
        if block >= BLOCKS_MAX {
            return Some(u64::MAX);
        }
        let (mut at, mut level) = self.start(block);
        while level > 1 && at != 0 {
            let Some(node) = self.arena.at::<Node>(at) else { break };
            at = node[child(block, level)].load(Ordering::Acquire);
            level -= 1;
        }
        let is_absent = at == 0 || level > 1 || self.arena.at::<Leaf>(at).is_none();
        is_absent.then(|| (block | ((1 << (BITS * level)) - 1)) + 1)
    }

    /// Whether none of `count` blocks from `block` on has a cell.
    #[inline]
    pub fn is_absent(&self, block: u64, count: u64) -> bool {
        self.absent_run(block, count) == count
    }

    /// Whether the block has an entry with granules in the log. The cell says so, too, but this bit is more likely to
    /// be in the cache.
    #[inline]
    pub fn has_entry(&self, block: u64) -> bool {
        let at = child(block, 1);
        self.leaf(block).is_some_and(|leaf| leaf.has_entry[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1 == 1)
    }

    /// Updates that bit. The caller holds the block's lock.
    pub fn set_has_entry(&self, block: u64, has: bool) {
        let at = child(block, 1);
        if let Some(leaf) = self.leaf(block) {
            let (word, bit) = (&leaf.has_entry[at / 64], 1 << (at % 64));
            let _ = if has { word.fetch_or(bit, Ordering::Relaxed) } else { word.fetch_and(!bit, Ordering::Relaxed) };
        }
    }

    /// The block's cell, made if it is missing. `ENOSPC`: the arena cannot grow. `EFBIG`: beyond the tree.
    #[inline]
    pub fn cell(&self, block: u64) -> Result<&'a Cell> {
        match self.lookup(block) {
            Some(cell) => Ok(cell),
            None => self.insert(block),
        }
    }

    #[cold]
    fn insert(&self, block: u64) -> Result<&'a Cell> {
        if block >= BLOCKS_MAX {
            return Err(Error::new(libc::EFBIG));
        }
        let shared = self.arena.shared();
        let mut at = self.child_or_new(&shared.root, size_of::<Node>())?;
        let mut leftmost = None;
        for level in (2..=LEVELS).rev() {
            let node = self.arena.at::<Node>(at).ok_or(Error::new(libc::EIO))?;
            let size = if level == 2 { size_of::<Leaf>() } else { size_of::<Node>() };
            at = self.child_or_new(&node[child(block, level)], size)?;
            if block < 1 << (BITS * (level - 1)) {
                leftmost = Some((at, level - 1));
            }
        }
        if let Some((at, level)) = leftmost {
            self.offer_skip(at, level);
        }
        let leaf = self.arena.at::<Leaf>(at).ok_or(Error::new(libc::EIO))?;
        Ok(&leaf.cells[child(block, 1)])
    }

    fn child_or_new(&self, place: &AtomicU64, size: usize) -> Result<u64> {
        let seen = place.load(Ordering::Acquire);
        if seen != 0 {
            return Ok(seen);
        }
        let fresh = self.arena.allocate(size)?; // lost if another thread is first: one node, once
        Ok(match place.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(theirs) => theirs,
        })
    }

    /// Makes a leftmost node the skip pointer if the present one does not cover `block`. Called with the lowest node
    /// that covers the block: a higher one would serve more blocks, a lower one is shorter to walk.
    fn offer_skip(&self, at: u64, level: u32) {
        let shared = self.arena.shared();
        let skip = shared.skip.load(Ordering::Acquire);
        if level > (skip & 63) as u32 {
            let _ = shared.skip.compare_exchange(skip, at | u64::from(level), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Calls `visit` for every existing cell in `first..=last`, in file order, until it fails.
    pub fn for_each(&self, first: u64, last: u64, mut visit: impl FnMut(u64, &'a Cell) -> Result<()>) -> Result<()> {
        let (mut block, last) = (first, last.min(BLOCKS_MAX - 1));
        while block <= last {
            let run = self.absent_run(block, last - block + 1);
            block += run;
            if run == 0 {
                if let Some(cell) = self.lookup(block) {
                    visit(block, cell)?;
                }
                block += 1;
            }
        }
        Ok(())
    }
}

impl Arena {
    /// Prefetches the block's cell, if it has one. `from_others`: other threads may have it in their caches.
    #[inline]
    pub fn prefetch_cell(&self, block: u64, from_others: bool) {
        if let Some(cell) = Index::new(self).lookup(block) {
            let address = core::ptr::from_ref(cell).cast();
            if from_others { crate::pmem::prefetch_for_store(address) } else { crate::pmem::prefetch(address) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_inserted_near_and_far() {
        let arena = Arena::for_test();
        let index = Index::new(&arena);
        let blocks = [0, 1, 511, 512, 513, 1 << 18, (1 << 27) + 5, BLOCKS_MAX - 1];
        for (i, &block) in blocks.iter().enumerate() {
            index.cell(block).unwrap().transaction.store(i as u64 + 1, Ordering::Relaxed);
        }
        for (i, &block) in blocks.iter().enumerate() {
            assert_eq!(index.lookup(block).unwrap().transaction.load(Ordering::Relaxed), i as u64 + 1, "block {block}");
        }
        assert!(index.lookup(1 << 20).is_none());
        assert_eq!(index.cell(BLOCKS_MAX).err().unwrap().errno(), libc::EFBIG);
    }

    /// It once went through the whole tree, block by block.
    #[test]
    fn all_blocks_are_visited_and_nothing_else() {
        let arena = Arena::for_test();
        let index = Index::new(&arena);
        let visited = |first, last| {
            let mut all = Vec::new();
            index
                .for_each(first, last, |block, _| {
                    all.push(block);
                    Ok(())
                })
                .unwrap();
            all
        };
        assert!(visited(0, u64::MAX).is_empty());
        for block in [3, BLOCKS_MAX - 1] {
            index.cell(block).unwrap();
        }
        let all = visited(0, u64::MAX);
        assert!(all.contains(&3) && all.last() == Some(&(BLOCKS_MAX - 1)) && all.len() <= 1024, "{}", all.len());
        assert_eq!((visited(3, 3), visited(BLOCKS_MAX, u64::MAX)), (vec![3], vec![]));
    }

    #[test]
    fn the_skip_pointer_is_the_lowest_node_that_covers_what_there_is() {
        let arena = Arena::for_test();
        let index = Index::new(&arena);
        let level_after = |block| {
            index.cell(block).unwrap();
            arena.shared().skip.load(Ordering::Relaxed) & 63
        };
        let blocks = [1 << 27, 3, 511, 512, 7, (1 << 18) - 1, 1 << 18, 5, 1 << 30];
        assert_eq!(blocks.map(level_after), [0, 1, 1, 2, 2, 2, 3, 3, 3]);
        assert!(blocks.iter().all(|&block| index.lookup(block).is_some()));
        assert!(index.lookup(1 << 20).is_none());
    }

    #[test]
    fn blocks_2_mib_apart_have_cells_of_their_own() {
        let arena = Arena::for_test();
        let index = Index::new(&arena);
        let (a, b) = (index.cell(3).unwrap(), index.cell(3 + 512).unwrap());
        assert!(!core::ptr::eq(a, b));
    }

    #[test]
    fn threads_agree_on_the_cells() {
        let arena = Arena::for_test();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let index = Index::new(&arena);
                    for block in (0..40_000).step_by(37) {
                        index.cell(block).unwrap().transaction.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let index = Index::new(&arena);
        for block in (0..40_000).step_by(37) {
            assert_eq!(index.lookup(block).unwrap().transaction.load(Ordering::Relaxed), 4);
        }
    }

    #[test]
    fn an_absent_run_ends_at_a_leaf_that_exists() {
        let arena = Arena::for_test();
        let index = Index::new(&arena);
        assert_eq!(index.absent_run(7, 10), 10);
        index.cell(1024).unwrap();
        assert_eq!(index.absent_run(0, 5000), 1024);
        let mut seen = Vec::new();
        index
            .for_each(1000, 1030, |block, _| {
                seen.push(block);
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, (1024..=1030).collect::<Vec<_>>());
    }
}
