//! Calls in progress: the gate that a SYNC closes to them, exclusive mode, and what they count.
// Cycle: exclusive, gate: exclusive mode is a mode of the gate, and its words lie in it

pub(crate) mod biased;
pub(super) mod counts;
pub(super) mod entered;
pub(crate) mod exclusive;
pub(super) mod gate;
pub(super) mod pair;
pub(super) mod totals;
