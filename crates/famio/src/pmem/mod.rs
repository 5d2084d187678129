//! Persistence: what a store needs to survive. Knows nothing of journals.

mod medium;

pub use medium::Medium;
