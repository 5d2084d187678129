//! Blocks of a file, each of which has a cell, and the shape of the tree that finds it.

/// Bytes of the file under one cell.
pub(crate) const BLOCK: usize = 4096;
pub(in crate::index) const BITS: u32 = 9;
pub(in crate::index) const FANOUT: usize = 1 << BITS;
/// Levels; level 1 holds the cells.
pub(in crate::index) const LEVELS: u32 = 4;
/// Blocks that the tree can hold.
pub(crate) const BLOCKS_MAX: u64 = 1 << (BITS * LEVELS);
