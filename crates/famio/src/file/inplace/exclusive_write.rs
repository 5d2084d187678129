//! Writes whole granules of a block in exclusive mode, under alternate: the fast path of random writes. One guard
//! covers everything; no lock, no fence.

use super::InPlace;
use super::state::State;
use crate::error::{Error, Result};
use crate::file::base::bits::{GRANULE, above, touched};
use crate::file::engine::context::Context;
use crate::file::engine::policy::Policy;
use crate::index::{BLOCK, Version};
use crate::journal::inplace::Kind;
use crate::map::guard::{self, Fault};
use crate::pmem::prefetch;
use core::sync::atomic::Ordering;

impl InPlace {
    /// See [`Engine::can_defer`](crate::file::engine::context::Engine::can_defer): the block has an entry, and both
    /// homes have room. Looks at little that is not in the cache.
    #[inline]
    pub(super) fn write_cannot_fail(&self, cx: &Context<'_>, block: u64) -> bool {
        let shared = cx.shared();
        shared.policy.load(Ordering::Relaxed) == Policy::Alternate as u32
            && above(block, shared.committed_size.load(Ordering::Relaxed)) == 0
            && cx.home.has_room(shared, (block + 1) * BLOCK as u64)
            && cx.index().has_entry(block)
    }

    /// Prefetches what [`write_exclusive`](Self::write_exclusive) is going to need: the entry, and of a small part its
    /// home, which is stored to by ordinary stores. The cell is in the cache.
    #[inline]
    pub(super) fn prefetch_homes(&self, cx: &Context<'_>, block: u64, start: usize, end: usize) {
        let Some(cell) = cx.index().lookup(block) else { return };
        let Some(entry) = cell.entry.load(Ordering::Relaxed).checked_sub(1) else { return };
        prefetch(self.log.entry_address(entry));
        if end - start < BLOCK
            && let Some(state) = State::of(cell, cx.shared().committed())
        {
            let home = if state.committed_in_log() & touched(start, end) == 0 {
                self.log.block(entry)
            } else {
                cx.home.ptr(block * BLOCK as u64, BLOCK).unwrap_or(core::ptr::null_mut())
            };
            (start..end).step_by(GRANULE).for_each(|at| prefetch(home.wrapping_add(at)));
        }
    }

    /// Writes bytes `start..end` of the block, which lie at the same offset in `buf`. `None`: nothing was done, since
    /// the block needs more than this.
    #[inline(always)]
    pub(super) fn write_exclusive(
        &self,
        cx: &Context<'_>,
        block: u64,
        (start, end): (usize, usize),
        buf: *const u8,
    ) -> Option<Result<()>> {
        let shared = cx.shared();
        if !cx.exclusive || !start.is_multiple_of(GRANULE) || !end.is_multiple_of(GRANULE) {
            return None;
        }
        debug_assert!(self.write_cannot_fail(cx, block), "a deferred write cannot fail until it is carried out");
        let cell = cx.index().lookup(block)?;
        let state = State::of(cell, shared.committed()).filter(|state| state.kind == Kind::Map)?;
        let (bits, in_log) = (touched(start, end), state.committed_in_log());
        // Each to the home without the committed copy.
        let to_log = match bits & in_log {
            0 => true,
            all if all == bits => false,
            _ => return None,
        };
        let base = state.open.map_or(in_log, |(_, version)| version.granules);
        let granules = if to_log { base | bits } else { base & !bits };
        let which = state.which_is_open();
        let turn = self.own_from_clean(cx, block)?;
        // The entry may come from a write of a part of the block.
        shared.raise_stale_end(block * BLOCK as u64 + end as u64);
        let home = match cx.home.ptr(block * BLOCK as u64, BLOCK) {
            Ok(home) => home,
            Err(e) => return Some(Err(e)),
        };
        let dst = if to_log { self.log.block(state.entry) } else { home };
        let (entry, medium) = (self.log.entry(state.entry), self.medium);
        let version = Version { epoch: shared.committed() + 1, granules };
        let (begins, changes) = (state.open.is_none(), base != granules);
        // SAFETY: both homes are ours, or the entry's; if an outsider has cut one, the guard returns the fault. The
        // closure owns nothing.
        let stored = unsafe {
            guard::run(|| {
                medium.copy(dst.wrapping_add(start), buf.wrapping_add(start), end - start);
                if begins {
                    entry.begin(which, Kind::Map, version);
                } else if changes {
                    entry.set_granules(which, granules);
                }
                if begins || changes {
                    entry.flush();
                }
            })
        };
        if begins || changes {
            cell.set_version(which, version);
        }
        cell.changed_alone();
        let len = (end - start) as u64;
        let (journal, file) = if to_log { (len, 0) } else { (0, len) };
        shared.counts.mine().stored(journal, file);
        turn.leave_clean();
        Some(stored.map_err(|fault| self.fault_of_copy(cx, fault, home)))
    }

    #[cold]
    fn fault_of_copy(&self, cx: &Context<'_>, fault: Fault, home: *mut u8) -> Error {
        if fault.is_in(home, BLOCK) { Error::new(libc::EIO) } else { self.journal_was_cut(cx) }
    }
}
