//! Synchronisation primitives under one name: the crate `tests/interleavings` compiles the files that use them
//! (`index/`, the list of free entries) against a model of weak memory instead.

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
pub(crate) use rustix::thread::{futex, sched_yield};

/// How often a thread looks at a word before it sleeps on it.
pub(crate) const SPINS: u32 = 1000;
