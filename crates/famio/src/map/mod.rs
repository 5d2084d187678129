//! Files in memory: one long mapping per file, copies that survive a truncation by another process, maps that are
//! built before they are touched and kept after they are dropped.

mod advice;
pub(crate) mod ahead;
#[doc(hidden)]
pub mod cache;
mod growing;
#[doc(hidden)]
pub mod guard;
pub(crate) mod huge;
mod reserve;
mod view;

pub use advice::Advice;
pub(crate) use growing::GrowingMapping;
pub use guard::Fault;
pub(crate) use reserve::{AHEAD_FROM, reservation};
#[doc(hidden)]
pub use reserve::{Mapping, RESERVATION};
#[doc(hidden)]
pub use view::View;
