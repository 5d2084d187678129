//! Collapses a randomly written file and its journal into huge pages, in the background while they are in use.

use super::{Gathered, Session};
use crate::file::engine::context::Context;
use crate::file::engine::home::Home;
use crate::index::BLOCK;
use crate::map::huge::HUGE;
use core::sync::atomic::Ordering;

/// Blocks in the journal from which on it is worthwhile: the processor's TLB covers smaller working sets.
const WORTH_BLOCKS: u64 = (16 << 20) / BLOCK as u64;
/// Huge pages per round: some milliseconds.
const ROUND: u64 = 8;
/// While the file is written, the background rests this many times as long as a round took: a call on the page that
/// is just being collapsed waits for it, about a millisecond, and these calls must stay few.
const REST: u64 = 4;
/// A single failure may be temporary (memory is short); this many show that the kernel cannot.
const FAILURES_MAX: u64 = 16;
/// In `next` and `next_of_journal`: the kernel cannot.
const NEVER: u64 = u64::MAX;

impl Session {
    /// One round: collapses pages that the index knows. `quiet`: nobody writes. Returns whether to continue at once.
    pub(in crate::file) fn gather_pages(&self, cx: Context<'_>, quiet: bool) -> bool {
        let begun = crate::sys::monotonic_now();
        let rest = &self.gathered.rest_until;
        if !quiet && begun < rest.load(Ordering::Relaxed) {
            return false;
        }
        let more = self.gather_some(cx) || self.gather_journal(cx);
        if more {
            let end = crate::sys::monotonic_now();
            rest.store(end + REST * (end - begun), Ordering::Relaxed);
        }
        more && quiet
    }

    fn gather_some(&self, cx: Context<'_>) -> bool {
        let shared = cx.shared();
        let Gathered { next, arena, .. } = &self.gathered;
        let mut at = next.load(Ordering::Relaxed);
        if at == NEVER || shared.used.load(Ordering::Relaxed) < WORTH_BLOCKS || !cx.home.may_gather() {
            return false;
        }
        let pages = shared.physical.load(Ordering::Acquire) / HUGE as u64;
        if at >= pages {
            let now = shared.next.load(Ordering::Relaxed);
            if arena.swap(now, Ordering::Relaxed) == now {
                return false;
            }
            at = 0;
        }
        for _ in 0..ROUND {
            at += pages_without_blocks(cx, at, pages);
            if at >= pages {
                break;
            }
            if !gather(cx.home, at) && self.note_failure() {
                next.store(NEVER, Ordering::Relaxed);
                return false;
            }
            at += 1;
        }
        next.store(at, Ordering::Relaxed);
        at < pages
    }

    /// As [`gather_some`](Self::gather_some), of the journal, which has memory in order.
    fn gather_journal(&self, cx: Context<'_>) -> bool {
        let next = &self.gathered.next_of_journal;
        let at = next.load(Ordering::Relaxed);
        if at == NEVER || cx.shared().used.load(Ordering::Relaxed) < WORTH_BLOCKS {
            return false;
        }
        let pages = self.engine.huge_pages(cx);
        let end = pages.min(at.saturating_add(ROUND));
        for page in at..end {
            if !self.engine.gather_page(cx, page) && self.note_failure() {
                next.store(NEVER, Ordering::Relaxed);
                return false;
            }
        }
        next.store(end, Ordering::Relaxed); // less than before if the journal was truncated
        end < pages
    }

    /// Counts a failure. Returns whether there were so many that the kernel cannot.
    fn note_failure(&self) -> bool {
        self.gathered.failed.fetch_add(1, Ordering::Relaxed) >= FAILURES_MAX
    }
}

/// The number of huge pages from `page` on without a block that was ever written.
fn pages_without_blocks(cx: Context<'_>, page: u64, pages: u64) -> u64 {
    let blocks = (HUGE / BLOCK) as u64;
    cx.index().absent_run(page * blocks, pages.saturating_sub(page) * blocks) / blocks
}

fn gather(home: &Home, page: u64) -> bool {
    home.gather(page * HUGE as u64, (page + 1) * HUGE as u64)
}
