//! Random calls on an atomic file and on a plain one.

pub mod agent;
mod compound;
pub mod kills;
mod mapped;
pub mod minimal;
pub mod pair;
pub mod past;
pub mod side;
pub mod step;
pub mod together;
pub mod worker;
