//! Exposing: the file gets what is committed, and the journal what is not, while the epoch stays open. For an
//! outsider that is about to open the file.

use super::InPlace;
use super::state::State;
use crate::error::Result;
use crate::file::base::bits::{GRANULE, above, below, runs};
use crate::file::engine::context::{BlockBuf, Context};
use crate::index::{BLOCK, Cell, Version};
use crate::journal::inplace::{Kind, Stored};
use core::sync::atomic::Ordering;

/// The most blocks of growth that are moved to the journal so that the file can be cut to its committed size. More
/// would keep the outsider waiting: then the growth stays visible.
const GROWTH_MAX: u64 = 16_384;

impl InPlace {
    /// See [`Engine::expose`](crate::file::engine::context::Engine::expose).
    pub(super) fn expose_all(&self, cx: &Context<'_>) -> Result<bool> {
        // Dirty lines are recorded by where they live, which is about to change.
        self.flush_pending(cx)?;
        self.medium.fence();
        let (mut result, key) = (Ok(()), self.log.key());
        for number in 0..self.log.entries() {
            let entry = self.log.entry(number);
            let block = self.on_journal(cx, || match entry.read(key, number) {
                Stored::Used(used) => Some(used.constants.block),
                Stored::Free | Stored::Damaged(_) => None,
            })?;
            let Some(block) = block else { continue };
            let Some(cell) = cx.index().lookup(block) else { continue };
            let _locked = cx.lock(cell)?;
            if let Some(state) = State::of(cell, cx.shared().committed())
                && state.entry == number
            {
                // If one block fails (no room in the file), the others are shown nevertheless.
                result = result.and(self.expose_block(cx, cell, block, state));
            }
        }
        result?;
        self.hide_growth(cx)
    }

    fn expose_block(&self, cx: &Context<'_>, cell: &Cell, block: u64, state: State) -> Result<()> {
        match (state.kind, state.open) {
            (_, None) => self.checkpoint_block(cx, cell, block, state),
            (Kind::Map, Some(open)) => self.expose_map(cx, cell, block, state, open.1),
            (Kind::Undo, Some(open)) => self.expose_undo(cx, cell, block, state, open.1),
        }
    }

    /// Once bytes of the open epoch lie only in our memory, no commit may follow an error.
    fn or_poison(&self, cx: &Context<'_>, moved: Result<()>) -> Result<()> {
        moved.inspect_err(|_| cx.shared().poisoned.store(1, Ordering::Release))
    }

    /// The open epoch's granules that alternate put into the file go to the log, the committed ones to the file.
    fn expose_map(&self, cx: &Context<'_>, cell: &Cell, block: u64, mut state: State, open: Version) -> Result<()> {
        let size = cx.shared().committed_size.load(Ordering::Acquire);
        let committed = state.committed_in_log() & below(block, size);
        let Some((which, version)) = state.committed.filter(|_| committed != 0) else { return Ok(()) };
        cx.room_for(block, size.saturating_sub(block * BLOCK as u64).min(BLOCK as u64) as usize)?;
        let mut aside = Box::<BlockBuf>::new_uninit(); // the stack may be small
        let aside = aside.as_mut_ptr().cast::<u8>();
        let home = cx.home.ptr(block * BLOCK as u64, BLOCK)?;
        let (log, entry) = (self.log.block(state.entry), self.log.entry(state.entry));
        let in_file = committed & !open.granules;
        self.keep(in_file, home, aside)?;

        let _changing = cell.changing();
        let moved = (|| {
            // 1. The committed copy is in both homes.
            self.move_granules(committed, log, home)?;
            self.medium.fence();
            // 2. It lives in the file.
            let left = Version { granules: version.granules & !committed, ..version };
            self.on_journal(cx, || {
                entry.set_granules(which, left.granules);
                entry.flush();
            })?;
            self.log.medium().fence();
            cell.set_version(which, left);
            state.committed = Some((which, left));
            // 3. The log is free for the open epoch's granules.
            self.move_granules(in_file, aside, log)?;
            self.conclude_open(cx, cell, &mut state, open.granules | in_file)
        })();
        self.or_poison(cx, moved)
    }

    /// The pre-images go back to the file; the granules of the entry now live in the log.
    fn expose_undo(&self, cx: &Context<'_>, cell: &Cell, block: u64, state: State, open: Version) -> Result<()> {
        let mut aside = Box::<BlockBuf>::new_uninit(); // the stack may be small
        let aside = aside.as_mut_ptr().cast::<u8>();
        let home = cx.home.ptr(block * BLOCK as u64, BLOCK)?;
        let log = self.log.block(state.entry);
        self.keep(open.granules, home, aside)?;

        let _changing = cell.changing();
        let moved = (|| {
            // As recovery would: a crash from here on repeats it.
            self.move_granules(open.granules, log, home)?;
            self.medium.fence();
            self.on_journal(cx, || self.log.entry(state.entry).free())?;
            self.log.medium().fence();
            self.on_journal(cx, || {
                self.log.assign(state.entry, block);
            })?;
            cell.set_version(0, Version::default());
            cell.set_version(1, Version::default());
            cell.kind.store(Kind::Map as u32, Ordering::Relaxed);
            cx.index().set_has_entry(block, true);
            self.move_granules(open.granules, aside, log)?;
            let mut state = State { kind: Kind::Map, committed: None, open: None, ..state };
            self.conclude_open(cx, cell, &mut state, open.granules)
        })();
        self.or_poison(cx, moved)
    }

    /// Sets the open version and leaves nothing dirty. What was stored before is in the log.
    fn conclude_open(&self, cx: &Context<'_>, cell: &Cell, state: &mut State, granules: u64) -> Result<()> {
        self.set_open(cx, cell, state, cx.shared().committed() + 1, granules)?;
        self.on_journal(cx, || self.log.entry(state.entry).flush())?;
        self.medium.fence();
        Ok(())
    }

    /// Copies granules to our memory.
    fn keep(&self, granules: u64, from: *const u8, aside: *mut u8) -> Result<()> {
        runs(granules, |first, count| {
            let at = first * GRANULE;
            // SAFETY: a mapped home, guarded, and a whole block of our own.
            unsafe {
                crate::file::engine::home::copy_out(aside.wrapping_add(at), from.wrapping_add(at), count * GRANULE)
            }
        })
    }

    /// Copies granules to a home; persistent after the next fence.
    fn move_granules(&self, granules: u64, from: *const u8, to: *mut u8) -> Result<()> {
        runs(granules, |first, count| {
            let at = first * GRANULE;
            self.store(to.wrapping_add(at), from.wrapping_add(at), count * GRANULE)
        })
    }

    /// Moves what the open epoch has appended to the log, and cuts the file to its committed size. By now every entry
    /// belongs to the open epoch, and its granules live in the log. False: not all of it could be moved, and the file
    /// stays longer.
    fn hide_growth(&self, cx: &Context<'_>) -> Result<bool> {
        let shared = cx.shared();
        let (size, committed) = (shared.size(), shared.committed_size.load(Ordering::Acquire));
        let physical = shared.physical.load(Ordering::Acquire);
        let end = size.min(physical).div_ceil(BLOCK as u64);
        let mut block = committed / BLOCK as u64;
        let mut moved = 0;
        while block < end {
            let absent = cx.index().absent_run(block, end - block);
            if absent > 0 {
                block += absent;
                continue;
            }
            if let Some(cell) = cx.index().lookup(block) {
                moved += 1;
                if moved > GROWTH_MAX || !self.hide_block(cx, cell, block, (committed, size.min(physical)))? {
                    return Ok(false);
                }
            }
            block += 1;
        }
        if physical != committed {
            cx.home.set_physical(shared, cx.fds, committed, size)?;
        }
        Ok(true)
    }

    /// Moves a block's appended granules to the log. False: the log has no room.
    fn hide_block(&self, cx: &Context<'_>, cell: &Cell, block: u64, (committed, end): (u64, u64)) -> Result<bool> {
        let _locked = cx.lock(cell)?;
        let state = State::of(cell, cx.shared().committed());
        let fresh = above(block, committed) & below(block, end) & !state.map_or(0, |state| state.in_log());
        if fresh == 0 {
            return Ok(true);
        }
        let mut state = match state {
            Some(state) => state,
            None => match self.give_entry(cx, cell, block, Kind::Map) {
                Err(e) if e.errno() == libc::ENOSPC => return Ok(false),
                given => given?,
            },
        };
        let home = cx.home.ptr(block * BLOCK as u64, BLOCK)?;
        let granules = state.open.map_or(0, |(_, version)| version.granules);
        let _changing = cell.changing();
        self.move_granules(fresh, home, self.log.block(state.entry))?;
        self.conclude_open(cx, cell, &mut state, granules | fresh)?;
        Ok(true)
    }
}
