//! What the processes of an atomic file share: an arena in DRAM that has, for each block that was written, a cell
//! that says where its bytes live. It holds only offsets, so that every process may map it anywhere. It is
//! never persisted: recovery needs only the journal, and a session begins with an empty index or takes over a left one.

mod arena;
pub(crate) mod blocks;
pub(crate) mod calls;
mod lock;
pub(crate) mod members;
mod radix;
mod shared;

pub(crate) use self::blocks::block::{BLOCK, BLOCKS_MAX};
pub(crate) use self::blocks::cell::{Cell, Changing, Version};
pub(crate) use self::blocks::deferred::{DeferredWrite, PLACES};
pub(crate) use self::calls::counts::{CountsLine, Sums};
pub(crate) use self::calls::entered::{Entered, SLOTS};
pub(crate) use self::calls::exclusive::{EXCLUSIVE_WORDS, Exclusive};
pub(crate) use self::calls::gate::{Closed, Inside, LONG, SHORT};
pub(crate) use self::calls::pair::{Arrival, Leading, Led, Pairs, Partner, Taken};
pub(crate) use self::calls::totals::{BUCKETS, Histogram, LONGEST_FREEZE, SYNCS_TIMED, Timer, WRITES_TIMED, bound};
pub(crate) use self::members::before_images::{
    Before, IMAGE_MAX, Image, Images, NotSaved, Position, add_range, images_of_dead,
};
pub use self::members::control::Owner;
pub(crate) use self::members::control::{Control, random};
pub(crate) use self::members::control_page::{
    FlushWords, HAS_IMAGE, KERNELS, MOVED, SESSION, SIZE as CONTROL_SIZE, STORES,
};
pub(crate) use self::members::dead::{DeadArena, PLACE};
pub(crate) use self::members::flush::{Asked, FlushRequest};
pub(crate) use self::members::glance::Glance;
pub(crate) use self::members::in_flight::{Calls, MOST_AT_ONCE, What};
pub(crate) use self::members::life::LIVES;
pub(crate) use self::members::membership::{
    FlushWanted, ImageKind, Membership, Positions, SharedSize, Writer, WriterState,
};
pub(crate) use self::members::owner_lock::OwnerLock;
pub(crate) use self::members::sweep::{sign, sweep, sweep_once};
pub(crate) use arena::Arena;
pub(crate) use lock::{Locked, SharedLock, Stuck};
pub(crate) use radix::Index;
pub(crate) use shared::{
    CLOSED, Exact, MAGIC as ARENA_MAGIC, OwnLine, PENDING, RELEASED, Shared, follow_up, images, lease, policy_name,
};
