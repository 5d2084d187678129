//! The interface of vNVML ("vNVML: An Efficient User Space Library for Virtualizing and Sharing Non-Volatile Memories",
//! MSST 2019; longer in CCF THPC 2020) over atomic files and their transactions: `include/famio_vnvml.h`.
//!
//! A *region* is memory over an atomic file (`region.rs`). What is stored there by pointer is not durable; what a
//! *transaction* (`transaction.rs`) writes is, at its commit, in all of its regions or in none. A thread has one open
//! transaction at most. `state.rs` lists the regions and the open transactions of the process.

mod calls;
mod region;
mod state;
mod transaction;
mod undo;

pub(super) use calls::{abort, allocate, begin, commit, free, init, release, trim, write};
