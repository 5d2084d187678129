//! Writes a whole block in exclusive mode, under alternate: the fast path of random page writes. One guard covers
//! everything; no lock, no fence.

use super::InPlace;
use super::state::State;
use crate::error::{Error, Result};
use crate::file::base::bits::above;
use crate::file::engine::context::Context;
use crate::file::engine::policy::Policy;
use crate::index::{BLOCK, Version};
use crate::journal::inplace::Kind;
use crate::map::guard::{self, Fault};
use core::sync::atomic::Ordering;

/// All granules of a block.
const ALL: u64 = u64::MAX;

impl InPlace {
    /// See [`Engine::can_defer`](crate::file::engine::context::Engine::can_defer): the block has an entry, and both homes
    /// have room. Looks at little that is not in the cache.
    #[inline]
    pub(super) fn is_whole_write_sure(&self, cx: &Context<'_>, block: u64) -> bool {
        let shared = cx.shared();
        shared.policy.load(Ordering::Relaxed) == Policy::Alternate as u32
            && above(block, shared.committed_size.load(Ordering::Relaxed)) == 0
            && cx.home.has_room(shared, (block + 1) * BLOCK as u64)
            && cx.index().has_entry(block)
    }

    /// `None`: nothing was done, since the block needs more than this.
    #[inline]
    pub(super) fn write_whole(&self, cx: &Context<'_>, block: u64, src: *const u8) -> Option<Result<()>> {
        let shared = cx.shared();
        if !cx.exclusive {
            return None;
        }
        debug_assert!(self.is_whole_write_sure(cx, block), "what is deferred is sure until it is carried out");
        let cell = cx.index().lookup(block)?;
        let state = State::of(cell, shared.committed()).filter(|state| state.kind == Kind::Map)?;
        let (granules, to_log) = match state.committed_in_log() {
            0 => (ALL, true),
            ALL => (0, false),
            _ => return None,
        };
        let which = match (state.open, state.committed) {
            (Some((which, version)), _) if version.granules == granules => which,
            (Some(_), _) => return None,
            (None, Some((committed, _))) => 1 - committed,
            (None, None) => 0,
        };
        let turn = self.own_from_clean(cx, block)?;
        // The entry may come from a write of a part of the block.
        shared.raise_stale_end((block + 1) * BLOCK as u64);
        let home = match cx.home.ptr(block * BLOCK as u64, BLOCK) {
            Ok(home) => home,
            Err(e) => return Some(Err(e)),
        };
        let dst = if to_log { self.log.block(state.entry) } else { home };
        let (entry, medium) = (self.log.entry(state.entry), self.medium);
        let version = Version { epoch: shared.committed() + 1, granules };
        let begins = state.open.is_none();
        // SAFETY: both homes are ours, or the entry's; if an outsider has cut one, the guard returns the fault. The
        // closure owns nothing.
        let stored = unsafe {
            guard::run(|| {
                medium.copy(dst, src, BLOCK);
                if begins {
                    entry.begin(which, Kind::Map, version);
                    entry.flush();
                }
            })
        };
        if begins {
            cell.set_version(which, version);
        }
        cell.changed_alone();
        let (journal, file) = if to_log { (BLOCK, 0) } else { (0, BLOCK) };
        shared.counts.mine().went(journal as u64, file as u64);
        turn.leave_clean();
        Some(stored.map_err(|fault| self.fault_of_whole(cx, fault, home)))
    }

    #[cold]
    fn fault_of_whole(&self, cx: &Context<'_>, fault: Fault, home: *mut u8) -> Error {
        if fault.is_in(home, BLOCK) { Error::new(libc::EIO) } else { self.journal_was_cut(cx) }
    }
}
