//! Map-ahead (HotStorage 2017, section 4): page tables are built before they are needed. The window that is mapped in
//! advance doubles with each step of a sequential run and halves where one ends, down to a page; what lies under the
//! current page table is mapped at once, the rest by background threads.
//!
//! Knows addresses, and nothing of files: whoever has a map of a file puts an [`Ahead`] beside it.
// Cycle: mod, run: a run of accesses counts in pages of the map-ahead that it belongs to

mod chunks;
pub(crate) mod crew;
mod reach;
mod run;

pub(crate) use reach::Reach;

use super::Advice;
use super::huge::HUGE;
use chunks::Chunks;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use run::{Run, Step};
use rustix::thread::futex;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Threads with runs of their own. More share, and look as if they read at random.
const RUNS: usize = 16;

/// Map-ahead for one map. To be dropped (or halted) before the map goes: it then waits for the threads that are at it.
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
    /// Every access counts as random, by advice.
    random: AtomicBool,
    /// How many want that background threads leave, and none comes.
    halted: AtomicU32,
    /// What was asked of the background with an earlier number is not wanted any more.
    serial: AtomicU32,
    /// Background threads that are at it.
    active: AtomicU32,
    /// A forked child has the memory, but none of the threads.
    process: u32,
}

impl Ahead {
    /// For a map of `range`, which begins with a page. All of it stays mapped until this is halted or dropped.
    ///
    /// # Safety
    /// The range is mapped as a file, readable (for [`Reach::PopulateWrite`]: writable), and no other memory takes its place
    /// before this is dropped. [`super::guard::install`] was called.
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
                process: crew::process(),
            }),
        }
    }

    /// `len` bytes at `offset` of the map are about to be read, or written. Nanoseconds where nothing is to be done.
    #[inline]
    pub fn touch(&self, offset: usize, len: usize) {
        self.access(offset, offset.saturating_add(len), || self.shared.len);
    }

    /// As [`touch`](Self::touch), where records are small and the file may end before the map: an access counts only when a
    /// page begins in it, so that most cost an addition and a branch. `reach` says how much of the map has something behind it;
    /// it is asked where there is something to do.
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

    /// How `len` bytes at `offset` will be used. `Sequential` and `WillNeed` start map-ahead by background threads,
    /// `Random` sets the window to a page and leaves it there, `Normal` lets it grow again, `DontNeed` forgets what is mapped
    /// (where page tables were dropped). Windows are the map's, whatever the range. False: the background was to be asked, and
    /// there is none.
    pub fn advise(&self, offset: usize, len: usize, advice: Advice) -> bool {
        let shared = &self.shared;
        let end = offset.saturating_add(len).min(shared.len);
        match advice {
            Advice::Normal => shared.set_window(None, false),
            Advice::Random => shared.set_window(Some(PAGE), true),
            Advice::Sequential => {
                shared.set_window(Some(run::WINDOW_MAX), false);
                return self.ask(offset..end.min(offset.saturating_add(run::WINDOW_MAX)));
            }
            Advice::WillNeed => return self.ask(offset..end),
            Advice::DontNeed => self.forget(offset..end),
        }
        true
    }

    /// Nothing of the range is mapped any more: page tables were dropped, or something else has its place. What the background was
    /// asked for until now is not done any more.
    pub fn forget(&self, range: Range<usize>) {
        self.shared.serial.fetch_add(1, SeqCst);
        self.halt();
        self.shared.halted.fetch_sub(1, SeqCst);
        self.shared.chunks.forget(range.start..range.end.min(self.shared.len));
        self.shared.runs.iter().for_each(Run::look_again);
    }

    /// Maps `range` of the map, with the background's help, and returns when that is done.
    pub fn prefetch(&self, range: Range<usize>) {
        self.ask(range.clone());
        self.shared.map_chunks(range);
        self.shared.wait();
    }

    /// Cancels what is under way and waits for the threads that are at it. Until [`Ahead::resume`] none comes again.
    pub fn halt(&self) {
        self.shared.halted.fetch_add(1, SeqCst);
        self.shared.wait();
    }

    /// After [`Ahead::halt`]: the map is used again, by others, from its front maybe. What is mapped is still known.
    pub fn resume(&self) {
        self.shared.set_window(None, false);
        self.shared.runs.iter().for_each(Run::reset);
        self.shared.halted.fetch_sub(1, SeqCst);
    }

    /// Bytes that were mapped ahead, by whole page tables.
    pub fn mapped(&self) -> usize {
        self.shared.chunks.taken() * HUGE
    }

    fn ask(&self, range: Range<usize>) -> bool {
        self.shared.ask(range, crew::ask)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.halt();
    }
}

impl Shared {
    /// A run has come to the edge of what is known to be mapped.
    #[cold]
    fn go_on(self: &Arc<Self>, run: &Run, offset: usize, end: usize, reach: usize) {
        if self.random.load(Relaxed) || end >= self.len {
            return run.set_edge(usize::MAX);
        }
        if end >= reach {
            return run.set_edge(end); // there may be more another time
        }
        let window = run.widen();
        let to = end.saturating_add(window).min(self.len).min(reach);
        let table = self.chunks.end_of(end);
        let here = self.chunks.index(end);
        if to < table {
            // As long as the run is short; a run that began in a table that is mapped has nothing to do there.
            if !self.chunks.is_taken(here) {
                self.map(offset..to);
            }
            return run.set_edge(to);
        }
        // What lies far before a run that began late in a table is left for who comes there.
        let front = offset.saturating_sub(self.chunks.start_of(here)) <= window;
        if if front { self.chunks.take(here) } else { !self.chunks.is_taken(here) } {
            self.map(offset.max(self.chunks.start_of(here))..table);
        }
        if to > table && run.wants(end, to) && self.chunks.any_free(table..to) {
            self.ask(table..to, crew::try_ask);
        }
        run.set_edge(table);
    }

    /// False: nobody does it.
    fn ask(self: &Arc<Self>, range: Range<usize>, ask: fn(crew::Asked, usize) -> bool) -> bool {
        // In a forked child the count of threads is the parent's.
        if range.is_empty() || self.halted.load(Relaxed) != 0 || self.process != crew::process() {
            return false;
        }
        let tables = range.len().div_ceil(HUGE);
        ask(crew::Asked { work: self.clone(), range, serial: self.serial.load(SeqCst) }, tables)
    }

    /// Maps what of the range nobody has taken.
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

    /// False: there is nothing to map, the file was cut.
    fn map(&self, range: Range<usize>) -> bool {
        // SAFETY: within the map, which stays until this is dropped and nobody is active (`Ahead::new`).
        unsafe { self.reach.map(self.base + range.start..self.base + range.end, &self.halted) }
    }

    /// Sets the window of every run, or leaves it as it is.
    fn set_window(&self, window: Option<usize>, random: bool) {
        self.random.store(random, Relaxed);
        for run in &self.runs {
            if let Some(window) = window {
                run.set_window(window);
            }
            run.look_again();
        }
    }

    /// Until no background thread is at it. A forked child has none.
    fn wait(&self) {
        if self.active.load(SeqCst) == 0 || self.process != crew::process() {
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

impl crew::Work for Shared {
    fn work(&self, range: Range<usize>, serial: u32) {
        // First counted, then looked: `halt` stores, then looks at the count.
        self.active.fetch_add(1, SeqCst);
        if self.halted.load(SeqCst) == 0 && self.serial.load(SeqCst) == serial {
            self.map_chunks(range);
        }
        if self.active.fetch_sub(1, SeqCst) == 1 {
            let _ = futex::wake(&self.active, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }
}

/// The first page boundary that is not before `offset`.
#[inline]
fn page_at_or_after(offset: usize) -> usize {
    offset.wrapping_add(PAGE - 1) & !(PAGE - 1)
}

/// Which run is this thread's. Threads' blocks lie far apart: the multiplication spreads them.
#[inline]
fn run_of_thread() -> usize {
    let block = core::ptr::from_ref(crate::thread::current()) as usize;
    (block >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - RUNS.trailing_zeros())
}

#[cfg(test)]
mod tests;
