//! Requests of `famio flush`, as the owner answers them. What it has to reach is on the control page: if the session
//! changes hands, the next owner goes on with it.

use super::Membership;
use crate::index::members::control_page::FlushWords;
use core::sync::atomic::Ordering;
use rustix::thread::futex;

/// A request, as the owner sees it.
pub(crate) struct FlushWanted<'a> {
    words: &'a FlushWords,
    /// The number of the last request, read before the journal's last epoch is.
    asked: u32,
}

impl Membership {
    /// A number that changes when a process asks, or looks for the answer.
    pub fn flush_knocks(&self) -> u32 {
        self.page().flush.knocks.load(Ordering::SeqCst)
    }

    /// A request of this process, for tests.
    pub fn flush_for_test(&self) -> FlushWanted<'_> {
        let words = &self.page().flush;
        FlushWanted { words, asked: words.asked.load(Ordering::SeqCst) }
    }

    /// A request that was not answered yet.
    pub fn flush_wanted(&self) -> Option<FlushWanted<'_>> {
        let words = &self.page().flush;
        let asked = words.asked.load(Ordering::SeqCst);
        (asked != words.done.load(Ordering::Acquire)).then_some(FlushWanted { words, asked })
    }
}

impl FlushWanted<'_> {
    /// The epoch up to which the file has to have everything; `now`: of the last commit in the journal.
    pub fn until(&self, now: u64) -> u64 {
        let begun = self.words.begun.load(Ordering::Acquire);
        // In a new journal, epochs are counted anew.
        if begun == self.words.done.load(Ordering::Acquire) || self.words.until.load(Ordering::Acquire) > now {
            self.words.until.store(now, Ordering::Release);
            self.words.moved.store(0, Ordering::Relaxed);
            self.words.begun.store(self.asked, Ordering::Release);
        }
        self.words.until.load(Ordering::Acquire)
    }

    /// So many bytes more were written back.
    pub fn moved(&self, bytes: u64) {
        self.words.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Answers. `error`: an errno, or 0.
    pub fn end(self, error: i32) {
        self.words.error.store(error as u32, Ordering::Release);
        self.words.done.store(self.words.begun.load(Ordering::Acquire), Ordering::SeqCst);
        let _ = futex::wake(&self.words.done, futex::Flags::empty(), i32::MAX as u32);
    }
}
