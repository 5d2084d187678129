//! The processes that have a file open: its control page, their memberships and lives, the lock of the owner, and
//! what they leave behind.

pub(super) mod before_images;
pub(super) mod control;
pub(super) mod control_page;
pub(super) mod dead;
pub(super) mod flush;
pub(super) mod glance;
pub(super) mod in_flight;
pub(super) mod left;
pub(super) mod life;
pub(super) mod membership;
pub(super) mod owner_lock;
pub(super) mod sweep;
