//! Pools: where a journal lies, how it is reached, and who may read and write it.

pub(crate) mod access;
mod acl;
pub(super) mod beside;
pub(super) mod kept;
pub(super) mod place;
pub mod pool;
pub(crate) mod reach;
pub(crate) mod shares;
pub(crate) mod trust;
mod without_pool;
