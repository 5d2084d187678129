//! Concurrent scenarios. Each function is one execution, with its assertions; `run` repeats it.

mod biased;
mod blocks;
mod cells;
mod gates;
mod lists;
mod locks;
mod pairs;
mod trees;

pub use biased::biased_mutex;
pub use blocks::{checkpointing, pending_words};
pub use cells::optimistic_reads;
pub use gates::{
    deferred_writes, one_alone, read_alone, read_along, read_along_without_a_look, read_in_a_long_call, together,
};
pub use lists::free_entries;
pub use locks::mutual_exclusion;
pub use pairs::two_change_at_once;
pub use trees::same_cells;

use crate::index::Arena;
use crate::sync;
use std::sync::Arc;

/// Runs a scenario this many times: half of the executions with threads switched at random, half with a few switches
/// placed by priorities (PCT), which finds rare but short orders. `FAMIO_INTERLEAVINGS` multiplies the number.
pub fn run(times: usize, scenario: fn()) {
    let more = std::env::var("FAMIO_INTERLEAVINGS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let once = move || {
        sync::reset();
        scenario();
    };
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    config.max_steps = shuttle::MaxSteps::FailAfter(5_000_000);
    let times = times * more / 2;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(times), config.clone()).run(once);
    shuttle::Runner::new(shuttle::scheduler::PctScheduler::new(3, times), config).run(once);
}

fn arena() -> Arc<Arena> {
    let file = rustix::fs::memfd_create("famio-interleavings", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    Arc::new(Arena::create(file, std::path::Path::new("/nonexistent")).unwrap())
}
