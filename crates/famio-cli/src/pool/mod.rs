//! Pools: whether one can be used, and `famio pool`.

mod check;
mod set;
pub mod view;

pub use check::{check, writable};
pub use set::{Args, main};
