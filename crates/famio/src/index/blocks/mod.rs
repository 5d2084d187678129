//! What the arena knows of each block.

pub(super) mod block;
pub(super) mod cell;
pub(super) mod deferred;
pub(super) mod growth;
