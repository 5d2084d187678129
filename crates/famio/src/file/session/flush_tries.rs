//! How far the background has come with a request of `famio flush`, which it answers in turn with its other work.

use core::sync::atomic::{AtomicU32, Ordering};

/// Tries after a loss of the session at most.
const MOST_AFTER_LOSS: u32 = 3;

/// What is left to try for one request. Only the background uses it.
#[derive(Default)]
pub(in crate::file) struct FlushTries {
    request: AtomicU32,
    /// 1: the next try is the last, which leaves nothing; 0: none has begun.
    left: AtomicU32,
}

impl FlushTries {
    /// Another process may have answered the last request: for a new one, there are `most` tries, and the last.
    pub fn begin(&self, request: u32, most: u32) {
        if self.request.swap(request, Ordering::Relaxed) != request || self.left.load(Ordering::Relaxed) == 0 {
            self.left.store(most.saturating_add(1), Ordering::Relaxed);
        }
    }

    pub fn is_last(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 1
    }

    pub fn count(&self) {
        self.left.store(self.left.load(Ordering::Relaxed).saturating_sub(1).max(1), Ordering::Relaxed);
    }

    /// The next try is the last.
    pub fn skip(&self) {
        self.left.store(1, Ordering::Relaxed);
    }

    /// The session went to another process in the middle of a try: processes that write in turn may take it from each
    /// other at each.
    pub fn lost(&self) {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store((left - 1).clamp(1, MOST_AFTER_LOSS), Ordering::Relaxed);
        }
    }

    /// The request is answered.
    pub fn end(&self) {
        self.left.store(0, Ordering::Relaxed);
    }
}
