//! The accesses of one thread to a map: whether they are sequential, and how far ahead of them is mapped.

use super::PAGE;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The widest window: a few milliseconds at 10 GiB/s, longer than it takes to wake a thread. Its page tables are 64
/// KiB.
pub(super) const WINDOW_MAX: usize = 32 << 20;

/// The kind of an access.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Sequential, within what is known to be mapped.
    Covered,
    /// Sequential, at the end of that: map ahead.
    Edge,
    /// Not sequential.
    Turn,
}

/// In a cache line of its own, since each thread writes its run at every access. Values are bytes from the map's
/// beginning. If threads share a run by chance, it is wrong but never unsafe.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Run {
    /// Where the next sequential access begins.
    next: AtomicUsize,
    /// Up to here there is nothing to do.
    edge: AtomicUsize,
    window: AtomicUsize,
    /// Up to here the background was asked.
    asked: AtomicUsize,
}

impl Run {
    pub const fn new() -> Self {
        Self {
            next: AtomicUsize::new(0),
            edge: AtomicUsize::new(0),
            window: AtomicUsize::new(PAGE),
            asked: AtomicUsize::new(0),
        }
    }

    /// Notes an access from `offset` to `end`. If it does not continue or repeat the last one, it halves the window.
    #[inline]
    pub fn access(&self, offset: usize, end: usize) -> Step {
        let next = self.next.load(Relaxed);
        if next == end {
            return Step::Covered;
        }
        self.next.store(end, Relaxed);
        if next != offset {
            self.turn();
            return Step::Turn;
        }
        if end <= self.edge.load(Relaxed) { Step::Covered } else { Step::Edge }
    }

    #[inline]
    fn turn(&self) {
        let window = self.window.load(Relaxed);
        if window > PAGE {
            self.window.store(window / 2, Relaxed);
        }
        self.look_again();
    }

    /// Doubles the window and returns it.
    pub fn widen(&self) -> usize {
        let window = (self.window.load(Relaxed) * 2).min(WINDOW_MAX);
        self.window.store(window, Relaxed);
        window
    }

    pub fn set_window(&self, window: usize) {
        self.window.store(window, Relaxed);
    }

    pub fn set_edge(&self, edge: usize) {
        self.edge.store(edge, Relaxed);
    }

    /// Whether to ask the background for more, up to `to`: if less than half a window ahead of `at` was asked for.
    pub fn wants(&self, at: usize, to: usize) -> bool {
        let wants = self.asked.load(Relaxed).saturating_sub(at) < (to - at) / 2;
        if wants {
            self.asked.store(to, Relaxed);
        }
        wants
    }

    /// Nothing is known to be mapped.
    #[inline]
    pub fn look_again(&self) {
        self.edge.store(0, Relaxed);
        self.asked.store(0, Relaxed);
    }

    pub fn reset(&self) {
        self.next.store(0, Relaxed);
        self.set_window(PAGE);
        self.look_again();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(run: &Run) -> usize {
        run.window.load(Relaxed)
    }

    #[test]
    fn the_window_doubles_in_a_run_and_halves_at_its_end() {
        let run = Run::new();
        let mut at = 0;
        for step in 1..30 {
            assert_eq!(run.access(at, at + 100), Step::Edge);
            assert_eq!(run.widen(), (PAGE << step).min(WINDOW_MAX));
            at += 100;
        }
        assert_eq!(run.access(5, 6), Step::Turn);
        assert_eq!(window(&run), WINDOW_MAX / 2);
        assert_eq!(run.access(5, 6), Step::Covered, "the same again is none");
        assert_eq!(window(&run), WINDOW_MAX / 2);
        for end in 0..40 {
            assert_eq!(run.access(1 << 30, end), Step::Turn);
        }
        assert_eq!(window(&run), PAGE, "never less than a page");
    }

    #[test]
    fn an_access_below_the_edge_asks_for_nothing() {
        let run = Run::new();
        assert_eq!(run.access(0, 10), Step::Edge);
        run.set_edge(30);
        assert_eq!(run.access(10, 30), Step::Covered);
        assert_eq!(run.access(30, 31), Step::Edge);
        run.set_edge(100);
        assert_eq!(run.access(0, 32), Step::Turn);
        assert_eq!(run.access(32, 40), Step::Edge, "of another run nothing is known");
    }

    #[test]
    fn the_background_is_asked_once_for_half_a_window() {
        let run = Run::new();
        assert!(run.wants(0, 1000) && !run.wants(400, 1400));
        assert!(run.wants(501, 1501) && !run.wants(600, 1600));
        run.look_again();
        assert!(run.wants(600, 1600));
    }
}
