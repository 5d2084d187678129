//! The state of an entry in the cell and on the medium: both change together.

use super::InPlace;
use crate::error::{Error, Result};
use crate::file::base::background_wakeup;
use crate::file::engine::context::{Context, Engine};
use crate::index::{Cell, Version};
use crate::journal::inplace::Kind;
use crate::map::guard;
use core::sync::atomic::Ordering;

/// A block's entry, from its cell. The cell's lock is held.
#[derive(Clone, Copy, Debug)]
pub(in crate::file) struct State {
    /// The number of the entry and of its log block.
    pub entry: u32,
    pub kind: Kind,
    /// The version for *C*, and its index.
    pub committed: Option<(usize, Version)>,
    /// The version of the open epoch, and its index.
    pub open: Option<(usize, Version)>,
}

impl State {
    /// `None`: the block has no entry, and lives in the file.
    #[inline]
    pub fn of(cell: &Cell, committed: u64) -> Option<Self> {
        let entry = cell.entry.load(Ordering::Relaxed).checked_sub(1)?;
        let kind = Kind::from_number(cell.kind.load(Ordering::Relaxed).into())?;
        let open = (0..2).map(|i| (i, cell.version(i))).find(|(_, v)| v.epoch == committed + 1);
        Some(Self { entry, kind, committed: cell.holding(committed), open })
    }

    /// The index of the open version. Without one, the index that it will have: not that of the committed version.
    #[inline]
    pub fn which_is_open(&self) -> usize {
        match (self.open, self.committed) {
            (Some((which, _)), _) => which,
            (None, Some((committed, _))) => 1 - committed,
            (None, None) => 0,
        }
    }

    /// Granules with their live copy in the log.
    #[inline]
    pub fn in_log(&self) -> u64 {
        match (self.kind, self.open.or(self.committed)) {
            (Kind::Map, Some((_, version))) => version.granules,
            _ => 0,
        }
    }

    /// Granules with their committed copy in the log.
    #[inline]
    pub fn committed_in_log(&self) -> u64 {
        match (self.kind, self.committed) {
            (Kind::Map, Some((_, version))) => version.granules,
            _ => 0,
        }
    }
}

impl InPlace {
    /// Takes an entry, without versions, for the block.
    pub(super) fn give_entry(&self, cx: &Context<'_>, cell: &Cell, block: u64, kind: Kind) -> Result<State> {
        match self.give_free_entry(cx, cell, block, kind) {
            Err(e) if e.errno() == libc::ENOSPC => {
                // The journal has its largest size: make room in it.
                self.checkpoint_round(cx)?;
                self.give_free_entry(cx, cell, block, kind)
            }
            given => given,
        }
    }

    /// As [`give_entry`](Self::give_entry). `ENOSPC`: the journal has its largest size.
    pub(super) fn give_free_entry(&self, cx: &Context<'_>, cell: &Cell, block: u64, kind: Kind) -> Result<State> {
        let entry = self.log.take(cx.arena)?;
        if self.log.wants_more() || self.is_pressed(*cx) {
            background_wakeup::wake();
        }
        self.on_journal(cx, || {
            self.log.assign(entry, block);
        })?;
        cell.set_version(0, Version::default());
        cell.set_version(1, Version::default());
        cell.kind.store(kind as u32, Ordering::Relaxed);
        cell.entry.store(entry + 1, Ordering::Relaxed);
        cx.index().set_has_entry(block, kind == Kind::Map);
        Ok(State { entry, kind, committed: None, open: None })
    }

    /// Sets the granules of the open version, which is begun if there is none yet. Not flushed.
    #[inline]
    pub(super) fn set_open(
        &self,
        cx: &Context<'_>,
        cell: &Cell,
        state: &mut State,
        epoch: u64,
        granules: u64,
    ) -> Result<()> {
        let entry = self.log.entry(state.entry);
        let version = Version { epoch, granules };
        if state.open.is_some_and(|(_, old)| old.granules == granules) {
            return Ok(());
        }
        let which = state.which_is_open();
        let (kind, begun) = (state.kind, state.open.is_some());
        self.on_journal(cx, || {
            if begun {
                entry.set_granules(which, granules);
            } else {
                entry.begin(which, kind, version);
            }
        })?;
        cell.set_version(which, version);
        state.open = Some((which, version));
        Ok(())
    }

    /// Runs `work`, which stores to the mapped journal: if an outsider has cut that, it is an error, and no more
    /// writes are taken. `work` owns nothing, takes no lock and does not panic.
    #[inline]
    pub(super) fn on_journal<R: Copy>(&self, cx: &Context<'_>, work: impl FnOnce() -> R) -> Result<R> {
        // SAFETY: the closure may be ended anywhere: it owns nothing. The guard was installed when the file was
        // opened.
        unsafe { guard::run(work) }.map_err(|_| self.journal_was_cut(cx))
    }

    /// No more writes are taken.
    #[cold]
    pub(super) fn journal_was_cut(&self, cx: &Context<'_>) -> Error {
        cx.shared().poisoned.store(1, Ordering::Release);
        let journal = self.journal.path().display();
        Error::with(libc::EIO, format!("another program truncated the journal {journal}: no more writes are taken"))
    }
}
