//! Files in memory: one long mapping a file, and copies that outlive a truncation by somebody else.

pub mod guard;
pub(crate) mod huge;
mod reserve;

pub use guard::Fault;
pub use reserve::{Mapping, RESERVATION};
