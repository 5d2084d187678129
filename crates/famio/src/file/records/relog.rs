//! Logging again: if all buffers of a write cache have room, a journal gives up its oldest epochs without a write to
//! the disk. What is still needed of them is logged once more by the commits that come anyway, a part by each, so that
//! none of them takes long.

use super::Records;
use super::checkpointing::{BlocksToRelog, Checkpointing};
use super::state::State;
use crate::file::engine::context::Context;
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;

/// Granules that a commit logs again at least, if there are so many.
const PART: u64 = 64;
/// For each granule that a commit has itself. The oldest quarter of a journal three times as long as its blocks has at
/// most 1.4 times its bytes of them: with two, the journal gets shorter.
const TIMES_OWN: u64 = 2;
/// Blocks that a commit looks at, for each that it has itself, and at least: most of them were written again since.
const LOOKS: u64 = 16;
const LEAST_LOOKS: u64 = 64;

/// Those that one commit logs again.
pub(super) struct RelogPart {
    /// In descending order.
    blocks: Vec<u64>,
    /// What can go after the commit: it has the last part.
    target: Option<u64>,
}

impl RelogPart {
    /// The blocks of the commit: those of the open epoch, in ascending order, and these.
    pub fn with(&self, open: &[u64]) -> Vec<u64> {
        let mut all = [open, &self.blocks].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether all of the block is logged.
    pub fn has(&self, block: u64) -> bool {
        holds(Rule::LoggedAgainWhole) && self.blocks.binary_search_by(|other| block.cmp(other)).is_ok()
    }

    /// The epoch up to which the journal can go, once this part is in it.
    pub fn target(&self) -> Option<u64> {
        self.target
    }
}

impl Records {
    /// What the present commit has to log again. Reports by [`logged_again`](Self::logged_again) if it has.
    pub(super) fn take_part(&self, cx: Context<'_>) -> Option<RelogPart> {
        let tier = self.tier.as_ref().filter(|_| self.relogs.load(Ordering::Relaxed))?;
        let mut checkpointing = self.checkpointing.lock(cx);
        let all = checkpointing.again.as_mut()?;
        let (own_blocks, own) = (self.blocks.load(Ordering::Relaxed), self.granules.load(Ordering::Relaxed));
        let (most, mut more) = (PART.max(TIMES_OWN * own), 0);
        let mut blocks = Vec::new();
        for _ in 0..LEAST_LOOKS.max(LOOKS * own_blocks) {
            if more >= most {
                break;
            }
            let Some(block) = all.blocks.pop() else { break };
            let state = cx.index().lookup(block).map(|cell| State::of(cell, cx.shared().committed()));
            if let Some(state) = state.filter(|state| state.buffer.is_some() && state.since <= all.target) {
                more += u64::from(state.held.count_ones());
                blocks.push(block);
            }
        }
        let is_last = all.blocks.is_empty() || !holds(Rule::LoggedAgainToTheLast);
        let target = is_last.then_some(all.target);
        let cost = self.cost(own_blocks + blocks.len() as u64, own + more);
        let has_room = !tier.is_hard(0) && self.log.lock(cx).reserve(cost).is_ok();
        if is_last || !has_room {
            // If this part is not logged, the journal must not go: the next pass decides anew.
            self.set_blocks_to_relog(&mut checkpointing, None);
        }
        has_room.then_some(RelogPart { blocks, target })
    }

    /// What the next commits log again; `None`: nothing.
    pub(super) fn set_blocks_to_relog(&self, checkpointing: &mut Checkpointing, again: Option<BlocksToRelog>) {
        self.relogs.store(again.is_some(), Ordering::Relaxed);
        checkpointing.again = again;
    }

    /// The commit of `epoch` has logged these blocks, too. The gate is closed.
    pub(super) fn logged_again(&self, cx: Context<'_>, part: &RelogPart, epoch: u64) {
        for cell in part.blocks.iter().filter_map(|&block| cx.index().lookup(block)) {
            // Its old record goes. An error: the journal has a fault, and keeps it.
            if holds(Rule::LoggedAgainMoves) && self.move_to_buffer(cx, cell).is_err() {
                return;
            }
            State::set_since(cell, epoch);
        }
        if let Some(target) = part.target {
            self.release(cx, target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tiered_file::{check, commit_block, with_tiered};
    use crate::file::session::Session;
    use crate::index::BLOCK;
    use crate::journal::live::Live;
    use crate::pmem::TestHooks;
    use famio_test_support::random::Random;

    fn length(journal: &Live) -> u64 {
        std::fs::metadata(journal.path()).unwrap().len()
    }

    /// The journal of a small working set once grew to 30 % of the budget, which may be a gigabyte; and all that was to
    /// be logged again went into one commit.
    #[test]
    fn a_small_working_set_keeps_a_small_journal_and_no_commit_is_long() {
        const BLOCKS: usize = 300;
        with_tiered("relog", BLOCKS, TestHooks::default(), |atomic, model| {
            let mut random = Random::new(1);
            let (mut longest, mut relogged) = (0, 0);
            for number in 0..20_000 {
                // Half of the blocks are written once, and logged again and again.
                let block = if number < BLOCKS { number } else { random.below(BLOCKS as u64 / 2) as usize };
                let written = commit_block(atomic, model, block, number as u8);
                longest = written.max(longest);
                relogged += u64::from(written > 2 * BLOCK as u64);
                if number % 64 == 0 {
                    atomic.with_session(|session| session.checkpoint_some(&atomic.fds)).unwrap().unwrap();
                }
                if number % 1000 == 999 {
                    check(atomic, model);
                }
            }
            let length = atomic.with_session(|session| length(session.engine.journal())).unwrap();
            assert!(length <= 12 << 20, "the journal has {length} bytes");
            assert!(longest <= 4 * BLOCK as u64, "a commit wrote {longest} bytes");
            assert!(relogged > 100, "{relogged} commits logged a block again");
        });
    }

    /// A write that ran ahead of the background once waited for a segment of 16 MiB, for 5 to 10 ms.
    #[test]
    fn a_journal_grows_in_the_background_and_in_short_steps() {
        const BLOCKS: usize = 4000;
        with_tiered("short-steps", BLOCKS, TestHooks::default(), |atomic, model| {
            let of_journal = || atomic.with_session(|session| length(session.engine.journal())).unwrap();
            commit_block(atomic, model, 0, 1);
            for block in 1..BLOCKS {
                let before = of_journal(); // other tests of this process may have started its background
                commit_block(atomic, model, block, block as u8);
                atomic.with_session(|session| session.engine.prepare(session.context(&atomic.fds))).unwrap().unwrap();
                let made = of_journal().saturating_sub(before);
                assert!(made <= 6 << 20, "{made} bytes after block {block}");
            }
            let ahead = of_journal().saturating_sub((BLOCKS * BLOCK) as u64);
            assert!(ahead <= 7 << 20, "{ahead} bytes more than the blocks have");
        });
    }

    /// A journal that has only one long segment left has nothing to give up: the background is not woken for it.
    #[test]
    fn one_long_segment_is_not_too_long() {
        let segments = Some([256 << 10, 16 << 20, 16 << 20]);
        with_tiered("long-segment", 20, TestHooks { segments, ..TestHooks::default() }, |atomic, model| {
            for number in 0..2000 {
                commit_block(atomic, model, number % 20, number as u8);
            }
            let pressed = |session: &Session| session.engine.is_pressed(session.context(&atomic.fds));
            assert!(atomic.with_session(|session| length(session.engine.journal())).unwrap() > 16 << 20);
            assert_eq!(atomic.with_session(pressed), Some(false));
        });
    }
}
