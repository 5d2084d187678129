//! Famio's lock-free code, run through many interleavings on a model of weak memory.
//!
//! The files of `crates/famio/src/index` and the list of free entries are compiled here once more, as they are, with
//! `crate::sync` being this crate's: atomics over the same real memory (an arena is mapped bytes), where every access is a
//! point at which [shuttle](https://docs.rs/shuttle) may go on with another thread, and where a load may give an older value
//! as far as C11's orderings allow that (`sync::memory`). Shuttle, not loom: loom's atomics are objects of its own, which
//! can't lie in mapped memory, it weakens sequentially consistent accesses, on which the gate relies, and it has nothing
//! like `membarrier`. The price is that the search is random with seeds, not exhaustive.
//!
//! What is too entangled with system calls to be compiled here, `file/inplace`, is stated again in `scenario::blocks`, small,
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
