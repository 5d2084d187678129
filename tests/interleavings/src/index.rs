//! The library's own files.

#[path = "../../../crates/famio/src/index/alone.rs"]
pub(crate) mod alone;
#[path = "../../../crates/famio/src/index/arena.rs"]
mod arena;
#[path = "../../../crates/famio/src/index/block.rs"]
mod block;
#[path = "../../../crates/famio/src/index/cell.rs"]
mod cell;
#[path = "../../../crates/famio/src/index/counts.rs"]
mod counts;
#[path = "../../../crates/famio/src/index/deferred.rs"]
mod deferred;
#[path = "../../../crates/famio/src/index/gate.rs"]
pub(crate) mod gate;
#[path = "../../../crates/famio/src/index/growth.rs"]
mod growth;
#[path = "../../../crates/famio/src/index/lock.rs"]
mod lock;
#[path = "../../../crates/famio/src/index/radix.rs"]
mod radix;
#[path = "../../../crates/famio/src/index/shared.rs"]
mod shared;
#[path = "../../../crates/famio/src/index/totals.rs"]
mod totals;

pub(crate) use arena::Arena;
pub(crate) use cell::{Cell, Version};
pub(crate) use deferred::PutOff;
pub(crate) use radix::Index;
