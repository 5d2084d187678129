//! The library's own files.

#[path = "../../../crates/famio/src/index/arena.rs"]
mod arena;
#[path = "../../../crates/famio/src/index/lock.rs"]
mod lock;
#[path = "../../../crates/famio/src/index/radix.rs"]
mod radix;
#[path = "../../../crates/famio/src/index/shared.rs"]
mod shared;

#[path = "."]
pub(crate) mod blocks {
    #[path = "../../../crates/famio/src/index/blocks/block.rs"]
    pub(crate) mod block;
    #[path = "../../../crates/famio/src/index/blocks/cell.rs"]
    pub(crate) mod cell;
    #[path = "../../../crates/famio/src/index/blocks/deferred.rs"]
    pub(crate) mod deferred;
    #[path = "../../../crates/famio/src/index/blocks/growth.rs"]
    pub(crate) mod growth;
}

#[path = "."]
pub(crate) mod calls {
    #[path = "../../../crates/famio/src/index/calls/biased.rs"]
    pub(crate) mod biased;
    #[path = "../../../crates/famio/src/index/calls/counts.rs"]
    pub(crate) mod counts;
    #[path = "../../../crates/famio/src/index/calls/entered.rs"]
    pub(crate) mod entered;
    #[path = "../../../crates/famio/src/index/calls/exclusive.rs"]
    pub(crate) mod exclusive;
    #[path = "../../../crates/famio/src/index/calls/gate.rs"]
    pub(crate) mod gate;
    #[path = "../../../crates/famio/src/index/calls/pair.rs"]
    pub(crate) mod pair;
    #[path = "../../../crates/famio/src/index/calls/totals.rs"]
    pub(crate) mod totals;
}

pub(crate) use arena::Arena;
pub(crate) use blocks::cell::{Cell, Version};
pub(crate) use blocks::deferred::{DeferredWrite, PLACES};
pub(crate) use radix::Index;
