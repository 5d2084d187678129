//! Writes many pieces at once to prepared blocks, for transactions. One guard covers all of them, and one fence comes
//! at the end; nothing stays dirty.
//!
//! Under alternate, or under redo over granules whose committed copy is in the file, pieces need no order among
//! themselves: the bytes, and the block's version of the open epoch, go to places that are not read before a slot
//! commits them (docs/format.md, *A write*).

use super::InPlace;
use super::state::State;
use crate::error::{Error, Result};
use crate::file::base::bits::{GRANULE, above, touched};
use crate::file::engine::context::{Context, Piece};
use crate::file::engine::policy::Policy;
use crate::index::{BLOCK, Cell, Version};
use crate::journal::inplace::Kind;
use crate::map::guard;
use crate::pmem::{prefetch, prefetch_for_store};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

/// Pieces written at a time.
const AT_ONCE: usize = 64;

/// Up to so many entries, with as many blocks of the file and of the journal, the processor's own cache has most of what
/// a transaction stores to: prefetching that takes longer than it saves. Measured with 1 MiB of L2: 32 times 128 bytes
/// over 1 MiB 1.9 to 2.1 µs with, 1.85 to 1.9 without; over 4 MiB 2.2 with, 2.2 to 2.9 without.
const CACHED: u32 = 1024;

/// Entries that have to be flushed.
///
/// Invariant: the first `count` are initialized. Zeroing all would be a hundredth of a small transaction.
struct Changed {
    entries: [MaybeUninit<u32>; AT_ONCE],
    count: usize,
}

impl Changed {
    /// At most one per piece.
    #[inline]
    fn add(&mut self, entry: u32) {
        if let Some(place) = self.entries.get_mut(self.count) {
            place.write(entry);
            self.count += 1;
        }
    }

    #[inline]
    fn all(&self) -> &[u32] {
        // SAFETY: see the invariant.
        unsafe { core::slice::from_raw_parts(self.entries.as_ptr().cast(), self.count) }
    }
}

impl InPlace {
    /// See [`Engine::write_pieces`](crate::file::engine::context::Engine::write_pieces).
    pub(super) fn write_prepared(&self, cx: &Context<'_>, pieces: &[Piece]) -> Result<usize> {
        let policy = Policy::from_number(cx.shared().policy.load(Ordering::Relaxed));
        if policy == Policy::Undo {
            return Ok(0);
        }
        let number = cx.shared().transactions.load(Ordering::Relaxed) + 1;
        let pieces = &pieces[..pieces.len().min(AT_ONCE)];
        let run = || {
            // All cache misses of one kind together: none waits for another.
            let mut cells = [const { MaybeUninit::<Option<&Cell>>::uninit() }; AT_ONCE];
            for (cell, piece) in cells.iter_mut().zip(pieces) {
                cell.write(cx.index().lookup(piece.block));
            }
            // SAFETY: these were written just now: there are at most as many pieces as cells.
            let cells: &[Option<&Cell>] = unsafe { core::slice::from_raw_parts(cells.as_ptr().cast(), pieces.len()) };
            // In exclusive mode nothing is in another thread's cache.
            if !cx.exclusive || self.log.entries() > CACHED {
                self.prefetch_pieces(cx, cells, pieces);
            } else {
                for cell in cells.iter().flatten() {
                    if let Some(entry) = cell.entry.load(Ordering::Relaxed).checked_sub(1) {
                        prefetch(self.log.entry_address(entry));
                    }
                }
            }
            let mut changed = Changed { entries: [const { MaybeUninit::uninit() }; AT_ONCE], count: 0 };
            let mut written = 0;
            for (cell, piece) in cells.iter().zip(pieces) {
                let Some(cell) = cell else { break };
                // SAFETY: within the guard below.
                if !unsafe { self.write_piece(cx, cell, piece, policy, number, &mut changed) } {
                    break;
                }
                written += 1;
            }
            // Only now: a store to a line that is being written back would wait for that.
            for &entry in changed.all() {
                self.log.entry(entry).flush();
            }
            written
        };
        // SAFETY: stores go to our homes, whose faults the guard returns. The closure owns nothing, takes no lock and
        // does not panic. If it is ended in the middle, a transaction is copied in part, after which no more writes
        // are taken.
        let written = unsafe { guard::run(run) }.map_err(|_| self.fault_of_piece(cx))?;
        if written > 0 && !cx.exclusive {
            self.medium.fence();
        }
        Ok(written)
    }

    /// Prefetches the entries, and where the bytes probably go: to the home without the newest copy.
    #[inline]
    fn prefetch_pieces(&self, cx: &Context<'_>, cells: &[Option<&Cell>], pieces: &[Piece]) {
        for (cell, piece) in cells.iter().zip(pieces) {
            let Some(cell) = cell else { continue };
            let Some(entry) = cell.entry.load(Ordering::Relaxed).checked_sub(1) else { continue };
            prefetch_for_store(self.log.entry_address(entry));
            let Piece { block, start, end, .. } = *piece;
            if end - start >= BLOCK {
                continue;
            }
            let (first, second) = (cell.version(0), cell.version(1));
            let newest = if first.epoch > second.epoch { first } else { second };
            let is_in_file = newest.granules >> (start / GRANULE) & 1 == 0;
            let to = if is_in_file { Ok(self.log.block(entry)) } else { cx.home.ptr(block * BLOCK as u64, BLOCK) };
            if let Ok(to) = to {
                (start..end).step_by(GRANULE).for_each(|at| prefetch_for_store(to.wrapping_add(at)));
            }
        }
    }

    /// Returns false, and does nothing, if the piece needs more than this.
    ///
    /// # Safety
    /// Within a guard.
    #[inline]
    unsafe fn write_piece(
        &self,
        cx: &Context<'_>,
        cell: &Cell,
        piece: &Piece,
        policy: Policy,
        number: u64,
        changed: &mut Changed,
    ) -> bool {
        let Piece { block, start, end, from } = *piece;
        if !start.is_multiple_of(GRANULE) || !end.is_multiple_of(GRANULE) {
            return false; // the rest of a granule comes from its live copy
        }
        let shared = cx.shared();
        let committed = shared.committed();
        let Some(state) = State::of(cell, committed).filter(|state| state.kind == Kind::Map) else { return false };
        let bits = touched(start, end);
        let fresh = above(block, shared.committed_size.load(Ordering::Relaxed));
        let committed_in_log = state.committed_in_log() & !fresh;
        let to_file = match policy {
            Policy::Alternate => bits & (fresh | committed_in_log),
            _ => bits & fresh,
        };
        let to_log = bits & !to_file;
        if policy != Policy::Alternate && to_log & committed_in_log != 0 {
            return false; // the committed copy goes to the file first
        }
        let Ok(home) = cx.home.ptr(block * BLOCK as u64, BLOCK) else { return false };
        let log = self.log.block(state.entry);
        let (which, before, begins) = match (state.open, state.committed) {
            (Some((which, version)), _) => (which, version.granules, false),
            (None, Some((which, _))) => (1 - which, committed_in_log, true),
            (None, None) => (0, committed_in_log, true),
        };
        let version = Version { epoch: committed + 1, granules: before & !to_file | to_log };
        shared.raise_stale_end(block * BLOCK as u64 + end as u64);

        let changing = if cx.exclusive { None } else { Some(cell.changing()) };
        let (first, second) = if to_file == 0 { (log, home) } else { (home, log) };
        let (mut bits, mut is_second, mut home_of) = (if to_file == 0 { to_log } else { to_file }, false, first);
        // Nearly always one run: the granules of a piece have the same history.
        loop {
            while bits != 0 {
                let granule = bits.trailing_zeros() as usize;
                let count = (!(bits >> granule)).trailing_zeros() as usize;
                let (place, len) = (granule * GRANULE, count * GRANULE);
                let to = home_of.wrapping_add(place);
                // SAFETY: in a home that has room for the block; the piece's bytes lie at `from`.
                unsafe {
                    let from = from.wrapping_add(place - start);
                    if cx.exclusive {
                        self.medium.copy(to, from, len);
                    } else {
                        // Non-temporal stores might be seen before the sequence number that is stored first.
                        self.medium.stage(to, from, len, true);
                        self.medium.flush(to, len);
                    }
                }
                bits &= if granule + count == 64 { 0 } else { u64::MAX << (granule + count) };
            }
            if is_second || to_file == 0 || to_log == 0 {
                break;
            }
            (bits, is_second, home_of) = (to_log, true, second);
        }
        let entry = self.log.entry(state.entry);
        if begins {
            entry.begin(which, state.kind, version);
            changed.add(state.entry);
        } else if before != version.granules {
            entry.set_granules(which, version.granules);
            changed.add(state.entry);
        }
        cell.set_version(which, version);
        cell.transaction.store(number, Ordering::Relaxed);
        match changing {
            Some(changing) => drop(changing),
            None => cell.changed_alone(),
        }
        true
    }

    #[cold]
    fn fault_of_piece(&self, cx: &Context<'_>) -> Error {
        cx.shared().poisoned.store(1, Ordering::Release);
        let journal = self.journal.path().display();
        Error::with(libc::EIO, format!("another program truncated the file or its journal {journal}"))
    }
}
