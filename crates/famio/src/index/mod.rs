//! What the processes of an atomic file share: an arena in DRAM that has, for each block that was written, a cell
//! that says where its bytes live. It holds only offsets, so that every process may map it anywhere. It is rebuilt
//! from the journal and never persisted.
// Cycle: alone, gate: exclusive mode is a mode of the gate, and its words lie in it

pub(crate) mod alone;
mod arena;
mod before_images;
mod block;
mod cell;
mod control;
mod control_page;
mod counts;
mod dead;
mod deferred;
mod gate;
mod growth;
mod in_flight;
mod life;
mod lock;
mod membership;
mod owner_lock;
mod radix;
mod shared;
mod sweep;
mod totals;

pub(crate) use alone::{ALONE, Alone};
pub(crate) use arena::Arena;
pub(crate) use before_images::{Before, IMAGE_MAX, Image, Images, NotSaved, Position, add_range, images_of_dead};
pub(crate) use block::{BLOCK, BLOCKS_MAX};
pub(crate) use cell::{Cell, Changing, Version};
pub use control::Owner;
pub(crate) use control::{Control, random};
pub(crate) use control_page::{HAS_IMAGE, KERNELS, MOVED, SESSION, SIZE as CONTROL_SIZE, STORES};
pub(crate) use counts::{CountsLine, Sums};
pub(crate) use dead::{DeadArena, PLACE};
pub(crate) use deferred::PutOff;
pub(crate) use gate::{Closed, Inside, LONG, SHORT, Slot};
pub(crate) use in_flight::{Calls, MOST_AT_ONCE, What};
pub(crate) use life::LIVES;
pub(crate) use lock::{Locked, SharedLock};
pub(crate) use membership::{Membership, Positions, SharedSize, Sort, Writer, WriterState};
pub(crate) use owner_lock::OwnerLock;
pub(crate) use radix::Index;
pub(crate) use shared::{
    MAGIC as ARENA_MAGIC, PENDING, RELEASED, SLOTS, Shared, follow_up, images, lease, policy_name,
};
pub(crate) use sweep::{sign, sweep, sweep_once};
pub(crate) use totals::{BUCKETS, Histogram, LONGEST_FREEZE, SYNCS_TIMED, Timer, WRITES_TIMED, bound};
