//! The state of the checkpoint, which goes to the session's next owner.

use super::waiting::Waiting;
use crate::error::Result;
use crate::file::engine::context::{Words, put_list};
use crate::rule::{Rule, holds};

/// Bytes in buffers from which on the background does not wait for a quiet moment.
pub(super) const PRESSED_FROM: u64 = 16 << 20;
/// The same, at least, for bytes in the journal that no pass has taken up: a few hot blocks then get a checkpoint
/// before the journal grows, so that it reuses segments that are already full of zeros.
pub(super) const LONG_JOURNAL_FROM: u64 = 4 << 20;
/// Bytes in buffers from which on writers help.
pub(super) const WRITERS_HELP_FROM: u64 = 128 << 20;

/// The state of the checkpoint.
#[derive(Default)]
pub(super) struct Checkpointing {
    /// Committed blocks that no pass has taken up yet.
    pub(super) waiting: Waiting,
    /// Blocks of the present pass.
    pub(super) queue: Vec<u64>,
    /// The journal's epoch when the pass began.
    pub(super) target: u64,
    /// It takes up everything that was committed when it began.
    pub(super) whole: bool,
    /// It has left out granules that an open epoch had overwritten, which may be committed by now, but not in the file.
    pub(super) left_some: bool,
    /// A pass is under way; it ends with an `fdatasync`.
    pub(super) under_way: bool,
    /// That `fdatasync` is under way.
    pub(super) flushing: bool,
    /// The number of finished ones.
    pub(super) flushes: u64,
    /// A pass left granules that the open epoch had overwritten: until the commit of that epoch, their committed
    /// copies are only in the journal. Until then this holds for every pass, since their blocks are not listed again.
    /// (The blocks that `keep_later` keeps in a write cache are: each pass looks at them anew.)
    pub(super) overwritten: bool,
    /// The pass left a block to a writer. The next commit need not contain any of its granules, so the journal has to
    /// stay until another pass has written them.
    pub(super) skipped: bool,
    /// The file was cut since the last pass began: this also needs a pass before its record can go.
    pub(super) was_cut: bool,
    /// A close or a forced pass that failed has written blocks: nothing is released before a pass has flushed the file.
    pub(super) unflushed: bool,
    /// The target of a finished pass, which the next commit may release.
    pub(super) finished: Option<u64>,
    /// What the next commits log again.
    pub(super) again: Option<BlocksToRelog>,
}

/// Blocks that are to be logged again, if no later epoch has all that is held of them. All of them also wait for a
/// checkpoint.
pub(super) struct BlocksToRelog {
    /// In ascending order.
    pub blocks: Vec<u64>,
    /// Once all are in a later epoch, the journal up to this one can go.
    pub target: u64,
}

impl Checkpointing {
    pub fn is_waiting(&self) -> bool {
        self.under_way || !self.waiting.is_empty()
    }

    /// Whether the file has changes that no flush of a pass has covered.
    pub fn must_flush(&self) -> bool {
        (self.was_cut || self.unflushed) && holds(Rule::CutTakesAFlush)
    }

    /// Whether all that was done to the file, its size too, is durable.
    pub fn is_flushed(&self) -> bool {
        !self.under_way && !self.must_flush()
    }

    /// For the next owner of the session. No flush is under way.
    pub fn leave(&mut self, words: &mut Vec<u64>) {
        // Writes of a failed close count as a cut for the next owner, which also makes it flush.
        let flags = [self.under_way, self.overwritten, self.skipped, self.must_flush(), self.finished.is_some()];
        words.extend(flags.map(u64::from));
        words.extend([self.target, self.finished.unwrap_or(0)]);
        put_list(words, self.waiting.all());
        put_list(words, &self.queue);
    }

    /// Restores the state that the last owner left.
    ///
    /// # Errors
    /// `EIO`: the words are invalid.
    pub fn take(words: &mut Words<'_>) -> Result<Self> {
        let flags: [u64; 5] = words.next()?;
        let [under_way, overwritten, skipped, was_cut, has_finished] = flags.map(|flag| flag != 0);
        let [target, finished] = words.next()?;
        let (waiting, queue) = (words.list()?.into(), words.list()?);
        let finished = has_finished.then_some(finished);
        Ok(Self { waiting, queue, target, under_way, overwritten, skipped, was_cut, finished, ..Self::default() })
    }
}
