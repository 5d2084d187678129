//! Map-ahead (HotStorage 2017, section 4): page tables are built before they are needed. The window that is mapped in
//! advance doubles with each step of a sequential run and halves where one ends, down to a page. What lies under the
//! current page table is mapped at once, the rest by background threads.
//!
//! This module knows addresses, not files: the owner of a file's map keeps an [`Ahead`] beside it.
// Cycle: access_pattern, mod: a run of accesses counts in pages of the map-ahead that it belongs to

mod access_pattern;
mod chunks;
mod reach;
pub(crate) mod workers;

pub(crate) use reach::Reach;

use super::Advice;
use super::huge::HUGE;
use access_pattern::{Run, Step};
use chunks::Chunks;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use rustix::thread::futex;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Threads with runs of their own. More than these share runs, and seem to read at random.
const RUNS: usize = 16;

/// Map-ahead for one map. It is dropped (or halted) before the map, and then waits for its threads.
#[derive(Debug)]
pub(crate) struct Ahead {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    base: usize,
    len: usize,
    reach: Reach,
    runs: [Run; RUNS],
    chunks: Chunks,
    /// By advice, every access counts as random.
    random: AtomicBool,
    /// Counts the callers that want no background threads.
    halted: AtomicU32,
    /// Requests with an earlier number are outdated.
    serial: AtomicU32,
    /// Background threads at work.
    active: AtomicU32,
    /// A forked child has the memory, but not the threads.
    process: u32,
}

impl Ahead {
    /// For a map of `range`, which begins at a page. All of it stays mapped until this is halted or dropped.
    ///
    /// # Safety
    /// The range is mapped as a file, readable, and no other memory takes its place before this is dropped.
    /// [`super::guard::install`] was called.
    pub unsafe fn new(range: Range<usize>, reach: Reach) -> Self {
        debug_assert!(range.start.is_multiple_of(PAGE));
        let len = range.end.saturating_sub(range.start);
        Self {
            shared: Arc::new(Shared {
                base: range.start,
                len,
                reach,
                runs: [const { Run::new() }; RUNS],
                chunks: Chunks::new(range.start, len),
                random: AtomicBool::new(false),
                halted: AtomicU32::new(0),
                serial: AtomicU32::new(0),
                active: AtomicU32::new(0),
                process: workers::process(),
            }),
        }
    }

    /// The caller is about to read or write `len` bytes at `offset` of the map. Costs nanoseconds if there is nothing
    /// to do.
    #[inline]
    pub fn touch(&self, offset: usize, len: usize) {
        self.access(offset, offset.saturating_add(len), || self.shared.len);
    }

    /// As [`touch`](Self::touch), for small records and a file that may end before the map. An access counts only if
    /// a page begins in it, so most cost an addition and a branch. `reach` returns how much of the map the file
    /// covers; it is only called if needed.
    #[inline]
    pub fn touch_pages(&self, offset: usize, len: usize, reach: impl FnOnce() -> usize) {
        let begins = page_at_or_after(offset);
        let end = page_at_or_after(offset.wrapping_add(len));
        if begins < end {
            self.access(begins, end, reach);
        }
    }

    #[inline]
    fn access(&self, offset: usize, end: usize, reach: impl FnOnce() -> usize) {
        let run = &self.shared.runs[run_of_thread()];
        match run.access(offset, end) {
            Step::Covered | Step::Turn => {}
            Step::Edge => self.shared.go_on(run, offset, end, reach()),
        }
    }

    /// Advises how `len` bytes at `offset` will be used. `Sequential` and `WillNeed` start map-ahead in the
    /// background, `Random` keeps the window at a page, `Normal` lets it grow again, `DontNeed` forgets what is
    /// mapped (after page tables were dropped). Windows belong to the map, whatever the range. False: there are no
    /// background threads for it.
    pub fn advise(&self, offset: usize, len: usize, advice: Advice) -> bool {
        let shared = &self.shared;
        let end = offset.saturating_add(len).min(shared.len);
        match advice {
            Advice::Normal => shared.set_window(None, false),
            Advice::Random => shared.set_window(Some(PAGE), true),
            Advice::Sequential => {
                shared.set_window(Some(access_pattern::WINDOW_MAX), false);
                return self.ask(offset..end.min(offset.saturating_add(access_pattern::WINDOW_MAX)));
            }
            Advice::WillNeed => return self.ask(offset..end),
            Advice::DontNeed => self.forget(offset..end),
        }
        true
    }

    /// Nothing of the range is mapped any more: its page tables were dropped, or it was replaced. Cancels earlier
    /// requests to the background.
    pub fn forget(&self, range: Range<usize>) {
        self.shared.serial.fetch_add(1, SeqCst);
        self.halt();
        self.shared.halted.fetch_sub(1, SeqCst);
        self.shared.chunks.forget(range.start..range.end.min(self.shared.len));
        self.shared.runs.iter().for_each(Run::look_again);
    }

    /// Maps `range` of the map with the background's help; returns when that is done.
    pub fn prefetch(&self, range: Range<usize>) {
        self.ask(range.clone());
        self.shared.map_chunks(range);
        self.shared.wait();
    }

    /// Cancels work under way and waits for its threads. No thread works until [`Ahead::resume`].
    pub fn halt(&self) {
        self.shared.halted.fetch_add(1, SeqCst);
        self.shared.wait();
    }

    /// After [`Ahead::halt`]: the map is used again, perhaps by another caller from its front. What is mapped is
    /// still known.
    pub fn resume(&self) {
        self.shared.set_window(None, false);
        self.shared.runs.iter().for_each(Run::reset);
        self.shared.halted.fetch_sub(1, SeqCst);
    }

    /// Bytes that were mapped ahead, in whole page tables.
    pub fn mapped(&self) -> usize {
        self.shared.chunks.taken() * HUGE
    }

    fn ask(&self, range: Range<usize>) -> bool {
        self.shared.ask(range, workers::ask)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.halt();
    }
}

impl Shared {
    /// A run has reached the end of what is known to be mapped.
    #[cold]
    fn go_on(self: &Arc<Self>, run: &Run, offset: usize, end: usize, reach: usize) {
        if self.random.load(Relaxed) || end >= self.len {
            return run.set_edge(usize::MAX);
        }
        if end >= reach {
            return run.set_edge(end); // the file may be longer another time
        }
        let window = run.widen();
        let to = end.saturating_add(window).min(self.len).min(reach);
        let table = self.chunks.end_of(end);
        let here = self.chunks.index(end);
        if to < table {
            // Maps the window while the run is short. A run that began in a mapped table has nothing to do there.
            if !self.chunks.is_taken(here) {
                self.map(offset..to);
            }
            return run.set_edge(to);
        }
        // The part far before a run that began late in a table is left for accesses that reach it.
        let front = offset.saturating_sub(self.chunks.start_of(here)) <= window;
        if if front { self.chunks.take(here) } else { !self.chunks.is_taken(here) } {
            self.map(offset.max(self.chunks.start_of(here))..table);
        }
        if to > table && run.wants(end, to) && self.chunks.any_free(table..to) {
            self.ask(table..to, workers::try_ask);
        }
        run.set_edge(table);
    }

    /// False: no background thread does it.
    fn ask(self: &Arc<Self>, range: Range<usize>, ask: fn(workers::Asked, usize) -> bool) -> bool {
        // In a forked child the count of threads is the parent's.
        if range.is_empty() || self.halted.load(Relaxed) != 0 || self.process != workers::process() {
            return false;
        }
        let tables = range.len().div_ceil(HUGE);
        ask(workers::Asked { work: self.clone(), range, serial: self.serial.load(SeqCst) }, tables)
    }

    /// Maps the chunks of the range that no thread has taken.
    fn map_chunks(&self, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end.min(self.len) && self.halted.load(Relaxed) == 0 {
            let next = self.chunks.end_of(at).min(range.end);
            let chunk = self.chunks.index(at);
            let whole = self.chunks.start_of(chunk) == at && self.chunks.end_of(at) == next;
            if if whole { self.chunks.take(chunk) } else { !self.chunks.is_taken(chunk) } && !self.map(at..next) {
                return;
            }
            at = next;
        }
    }

    /// False: there is nothing to map, because the file was cut.
    fn map(&self, range: Range<usize>) -> bool {
        // SAFETY: within the map, which stays until this is dropped and no thread is active (`Ahead::new`).
        unsafe { self.reach.map(self.base + range.start..self.base + range.end, &self.halted) }
    }

    /// Sets the window of every run, or leaves it.
    fn set_window(&self, window: Option<usize>, random: bool) {
        self.random.store(random, Relaxed);
        for run in &self.runs {
            if let Some(window) = window {
                run.set_window(window);
            }
            run.look_again();
        }
    }

    /// Waits until no background thread is at work. A forked child has none.
    fn wait(&self) {
        if self.active.load(SeqCst) == 0 || self.process != workers::process() {
            return;
        }
        loop {
            let active = self.active.load(SeqCst);
            if active == 0 {
                return;
            }
            let _ = futex::wait(&self.active, futex::Flags::PRIVATE, active, None);
        }
    }
}

impl workers::Work for Shared {
    fn work(&self, range: Range<usize>, serial: u32) {
        // Counts first, then looks: `halt` stores first, then looks at the count.
        self.active.fetch_add(1, SeqCst);
        if self.halted.load(SeqCst) == 0 && self.serial.load(SeqCst) == serial {
            self.map_chunks(range);
        }
        if self.active.fetch_sub(1, SeqCst) == 1 {
            let _ = futex::wake(&self.active, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }
}

/// The first page boundary at or after `offset`.
#[inline]
fn page_at_or_after(offset: usize) -> usize {
    offset.wrapping_add(PAGE - 1) & !(PAGE - 1)
}

/// This thread's run. The blocks of threads lie far apart: the multiplication spreads them.
#[inline]
fn run_of_thread() -> usize {
    let block = core::ptr::from_ref(crate::thread::current()) as usize;
    (block >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - RUNS.trailing_zeros())
}

#[cfg(test)]
mod tests;
