//! Requests of `famio flush`, as the owner answers them. What it has to reach is on the control page: if the session
//! changes hands, the next owner goes on with it.

use super::Membership;
use crate::index::members::control_page::{FlushWords, is_later};
use core::cell::Cell;
use core::sync::atomic::Ordering;
use rustix::thread::futex;

/// A request, as the owner sees it.
pub(crate) struct FlushWanted<'a> {
    words: &'a FlushWords,
    /// The number of the last request, read before the journal's last epoch is.
    asked: u32,
    /// The number of the request that it answers. An owner may lose the session before it does, and the next one begin
    /// with another request.
    served: Cell<u32>,
}

impl Membership {
    /// A number that changes when a process asks, or looks for the answer.
    pub fn flush_activity(&self) -> u32 {
        self.page().flush.polls.load(Ordering::SeqCst)
    }

    /// A request of this process, for tests.
    pub fn flush_for_test(&self) -> FlushWanted<'_> {
        FlushWanted::new(&self.page().flush)
    }

    /// A request that was not answered yet.
    pub fn flush_wanted(&self) -> Option<FlushWanted<'_>> {
        let wanted = FlushWanted::new(&self.page().flush);
        is_later(wanted.asked, wanted.answered()).then_some(wanted)
    }
}

impl<'a> FlushWanted<'a> {
    /// The request in these words: those of a control page, or a process's own.
    pub fn new(words: &'a FlushWords) -> Self {
        let asked = words.asked.load(Ordering::SeqCst);
        Self { words, asked, served: Cell::new(asked) }
    }

    /// The number of the last request that was answered.
    fn answered(&self) -> u32 {
        self.words.answer.load(Ordering::Acquire) as u32
    }

    /// The epoch up to which the file has to have everything; `now`: of the last commit in the journal. Called by the
    /// owner alone.
    pub fn until(&self, now: u64) -> u64 {
        let (begun, until) = (self.words.begun.load(Ordering::Acquire), self.words.until.load(Ordering::Acquire));
        // In a new journal, epochs are counted anew.
        if is_later(begun, self.answered()) && until <= now {
            self.served.set(begun);
            until
        } else {
            self.words.until.store(now, Ordering::Release);
            self.words.moved.store(0, Ordering::Relaxed);
            self.words.begun.store(self.asked, Ordering::Release);
            self.served.set(self.asked);
            now
        }
    }

    /// The number of the request that is served.
    pub fn number(&self) -> u32 {
        self.served.get()
    }

    /// So many bytes more were written back.
    pub fn moved(&self, bytes: u64) {
        self.words.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Answers what it has begun; before that, an error is the answer to all requests. `error`: an errno, or 0.
    pub fn end(self, error: i32) {
        let served = self.served.get();
        let answer = u64::from(error as u32) << 32 | u64::from(served);
        let answer = |last: u64| is_later(served, last as u32).then_some(answer);
        let _ = self.words.answer.fetch_update(Ordering::SeqCst, Ordering::SeqCst, answer);
        self.words.answers.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.words.answers, futex::Flags::empty(), i32::MAX as u32);
    }
}
