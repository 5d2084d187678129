//! Famio's lock-free code, run through many interleavings on a model of weak memory.
//!
//! The files of `crates/famio/src/index` and the list of free entries are compiled here again, unchanged, with this
//! crate's `crate::sync`: atomics over the same real memory (an arena is mapped bytes), where every access is a point
//! at which [shuttle](https://docs.rs/shuttle) may switch to another thread, and where a load may return an older
//! value as far as C11's orderings allow that (`sync::memory`). Shuttle, not loom: loom's atomics are its own
//! objects, which cannot lie in mapped memory, it weakens sequentially consistent accesses, on which the gate relies,
//! and it has nothing like `membarrier`. The price is that the search is random with seeds, not exhaustive.
//!
//! `file/inplace` contains too many system calls to be compiled here; `scenario::blocks` has a short version of it,
//! over the real cells, locks, gate and list.

pub mod scenario;
pub mod sync;

#[allow(dead_code, reason = "a part of each file is used here")]
mod map;
mod pmem;
mod sys;
#[allow(dead_code, reason = "a part of each file is used here")]
mod thread;

pub(crate) use famio::error;

#[allow(dead_code, reason = "a part of each file is used here")]
mod index;

#[allow(dead_code, reason = "a part of each file is used here")]
mod journal;
