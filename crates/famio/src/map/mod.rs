//! Files in memory: one long mapping a file, and copies that outlive a truncation by somebody else.

pub mod guard;
mod reserve;

pub use guard::Fault;
pub use reserve::{Mapping, RESERVATION};
