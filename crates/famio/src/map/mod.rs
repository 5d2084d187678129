//! Files in memory: one long mapping a file, and copies that outlive a truncation by somebody else. Maps that are built
//! before they are touched, and kept after they are dropped.

mod advice;
pub(crate) mod ahead;
pub mod cache;
pub mod guard;
pub(crate) mod huge;
pub(crate) mod mapped;
mod reserve;
mod view;

pub use advice::Advice;
pub use guard::Fault;
pub(crate) use reserve::{AHEAD_FROM, reservation};
pub use reserve::{Mapping, RESERVATION};
pub use view::View;
