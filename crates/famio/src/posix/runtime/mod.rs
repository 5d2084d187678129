//! The library in its process: whether it runs, after a `fork` or in a child of `vfork`; numbers of descriptors, signal
//! handlers, the limit on file sizes; and what the library says, on stderr or to a program that asks.

pub(super) mod file_size;
pub mod handlers;
pub(super) mod message;
pub(super) mod numbers;
pub(super) mod say;
pub(super) mod state;
pub(super) mod texts;
