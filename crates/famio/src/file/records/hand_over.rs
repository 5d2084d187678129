//! What the next owner, perhaps another process, has to know of a session with a journal of epochs.

use super::Records;
use super::checkpointing::Checkpointing;
use crate::error::Result;
use crate::file::engine::context::{Context, Words, put_list};
use core::sync::atomic::{AtomicU64, Ordering};

impl Records {
    /// See [`Engine::leave_state`](crate::file::engine::context::Engine::leave_state).
    pub(super) fn leave(&self, cx: Context<'_>, words: &mut Vec<u64>) -> Result<bool> {
        // Work outside of the gate has ended or not begun. Work that begins later finds that the session is another
        // process's.
        let Some(_idle) = self.ended.try_lock() else { return Ok(false) };
        self.settle_early(cx)?;
        let mut checkpointing = self.checkpointing.lock(cx);
        if !self.log.lock(cx).leave_state(words)? {
            return Ok(false);
        }
        for counter in self.words_of_owner() {
            words.push(counter.load(Ordering::Relaxed));
        }
        words.push(self.wants_segment.load(Ordering::Relaxed).into());
        checkpointing.leave(words);
        self.open.with(cx, |open| put_list(words, open));
        self.is_away.store(true, Ordering::Release);
        self.live.limit().set(0); // the next owner accounts for it
        self.held.set(0);
        Ok(true)
    }

    fn words_of_owner(&self) -> [&AtomicU64; 6] {
        [&self.blocks, &self.granules, &self.cut, &self.committed_cut, &self.appended, &self.taken_up]
    }

    /// See [`Engine::take_state`](crate::file::engine::context::Engine::take_state). No work outside the gate has begun
    /// yet.
    pub(super) fn take(&self, cx: Context<'_>, words: &mut Words<'_>) -> Result<()> {
        let mut log = self.log.lock(cx);
        log.take_state(words)?;
        if let Some(tier) = &self.tier {
            tier.note(&log);
        }
        drop(log);
        let counters: [u64; 6] = words.next()?;
        let [wants_segment] = words.next()?;
        let checkpointing = Checkpointing::take(words)?;
        let open = words.list()?;
        self.words_of_owner().into_iter().zip(counters).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        self.released.store(self.taken_up.load(Ordering::Relaxed), Ordering::Relaxed);
        // The next write asks again; until then the journal keeps what is `needed`.
        self.reserved.store(0, Ordering::Relaxed);
        self.wants_segment.store(wants_segment != 0, Ordering::Relaxed);
        *self.checkpointing.lock(cx) = checkpointing;
        self.relogs.store(false, Ordering::Relaxed); // the next pass decides anew
        self.open.with(cx, |list| *list = open);
        self.is_away.store(false, Ordering::Release);
        Ok(())
    }
}
