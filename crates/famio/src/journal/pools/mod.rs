//! Pools: where a journal lies, how it is reached, and who may read and write it.

pub(crate) mod access;
pub(super) mod beside;
pub(super) mod kept;
pub(super) mod place;
pub mod pool;
pub(crate) mod reach;
