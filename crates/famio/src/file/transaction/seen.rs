//! What a transaction has relied on, so that its commit can check whether it still holds.
//!
//! Per block (4 KiB) this is the sequence number in the block's cell, which every change of the block increments, and
//! which has to be the same at the commit. The number that a transaction leaves in the cell tells whether one has
//! changed the block since this one began. A block moved by a checkpoint counts as changed: a false conflict, which
//! costs another try.

use crate::error::{Error, Result};
use crate::file::base::refusal::Answer;
use crate::file::engine::context::Context;
use crate::file::session::Session;
use crate::file::{AtomicFile, UserBuf};
use crate::index::{BLOCK, Stuck};
use core::ops::Range;
use core::sync::atomic::Ordering;
use std::collections::BTreeMap;

/// Reads repeated because their bytes changed meanwhile, before the transaction is taken to be in conflict.
const READS: u32 = 1000;
/// Looks at a block that is being changed.
const LOOKS: u32 = 1 << 26;

/// Identifies a session among all that a file has while this process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SessionId {
    arena: u64,
    opened: u64,
}

/// What one transaction has relied on in one file.
pub(crate) struct Seen {
    session: SessionId,
    /// `Shared::transactions` when it began.
    began: u64,
    /// The same when all of `blocks` was last checked.
    looked: u64,
    /// `Shared::cuts` when it began.
    cuts: u32,
    /// The size, if a read has reached the end of the file, or the size was asked for.
    size: Option<u64>,
    /// Sequences by block; 0: the block had no cell.
    blocks: BTreeMap<u64, u32>,
    /// Something has changed already.
    is_broken: bool,
}

impl Seen {
    /// Whether it has relied on nothing yet.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.size.is_none() && !self.is_broken
    }

    fn conflict(&mut self) -> Error {
        self.is_broken = true;
        changed()
    }
}

/// The error of a transaction in conflict.
fn changed() -> Error {
    Error::new(libc::EAGAIN)
}

impl Session {
    fn id(&self) -> SessionId {
        SessionId { arena: self.arena_number, opened: self.opened.load(Ordering::Acquire) }
    }

    /// The sequence of a block that no thread is changing, and the number that transactions have left there.
    fn state_of(&self, cx: Context<'_>, block: u64) -> Result<(u32, u64)> {
        for _ in 0..LOOKS {
            let Some(cell) = cx.index().lookup(block) else { return Ok((0, 0)) };
            if let Some(sequence) = cell.begin_read() {
                return Ok((sequence, cell.transaction.load(Ordering::Relaxed)));
            }
            core::hint::spin_loop();
        }
        Err(Stuck.into())
    }

    /// Checks that everything seen still holds. No other thread is inside the gate.
    pub(super) fn still_holds(&self, cx: Context<'_>, seen: &Seen) -> Result<()> {
        if seen.is_empty() {
            return Ok(());
        }
        let shared = cx.shared();
        let same = |(&block, &sequence): (&u64, &u32)| {
            cx.index().lookup(block).map_or(0, crate::index::Cell::sequence) == sequence
        };
        let holds = !seen.is_broken
            && seen.session == self.id()
            && seen.cuts == shared.cuts.load(Ordering::Acquire)
            && seen.size.is_none_or(|size| size == shared.size())
            && seen.blocks.iter().all(same);
        if holds { Ok(()) } else { Err(changed()) }
    }

    /// Records the blocks of `range` that were not recorded yet, and returns them.
    fn note(&self, cx: Context<'_>, range: &Range<u64>, seen: &mut Seen) -> Answer<Vec<u64>> {
        self.join(cx)?;
        let mut fresh = Vec::new();
        if seen.session != self.id() || seen.cuts != cx.shared().cuts.load(Ordering::Acquire) {
            return Err(seen.conflict().into());
        }
        for block in range.start / BLOCK as u64..range.end.div_ceil(BLOCK as u64) {
            if seen.blocks.contains_key(&block) {
                continue;
            }
            let (sequence, transaction) = self.state_of(cx, block)?;
            if transaction > seen.began {
                return Err(seen.conflict().into());
            }
            seen.blocks.insert(block, sequence);
            fresh.push(block);
        }
        Ok(fresh)
    }

    /// Whether the blocks of `range` are as recorded; and all others, too, if a transaction was committed since their
    /// last check.
    fn is_as_noted(&self, cx: Context<'_>, range: &Range<u64>, seen: &mut Seen) -> Answer<bool> {
        self.join(cx)?;
        let now = cx.shared().transactions.load(Ordering::Acquire) & !1;
        let blocks = range.start / BLOCK as u64..range.end.div_ceil(BLOCK as u64);
        let all = if now == seen.looked { blocks } else { 0..u64::MAX };
        for (&block, &sequence) in seen.blocks.range(all) {
            if self.state_of(cx, block)?.0 != sequence {
                return Ok(false);
            }
        }
        seen.looked = now;
        let same = seen.session == self.id() && seen.cuts == cx.shared().cuts.load(Ordering::Acquire);
        Ok(same && seen.size.is_none_or(|size| size == cx.shared().size()))
    }
}

impl AtomicFile {
    /// Begins a transaction whose commit checks what it has read. The file gets a session, if it had none.
    ///
    /// # Errors
    /// Those of a first write. `EOPNOTSUPP`: the file is the kernel's.
    pub(crate) fn begin_to_see(&self) -> Result<Seen> {
        let see = |session: &Session| {
            let shared = session.arena.shared();
            let began = shared.transactions.load(Ordering::Acquire);
            let cuts = shared.cuts.load(Ordering::Acquire);
            let (size, blocks) = (None, BTreeMap::new());
            Ok(Seen { session: session.id(), began, looked: began & !1, cuts, size, blocks, is_broken: false })
        };
        Ok(self.writing(see, || Err(self.without_transactions()))?)
    }

    /// Reads for such a transaction: all its reads show one moment, as far as transactions have changed the file.
    ///
    /// # Errors
    /// Those of a read. `EAGAIN`: something it has seen was changed meanwhile, so its commit would fail.
    ///
    /// # Safety
    /// The buffer may be overwritten; it may be bad.
    pub(crate) unsafe fn read_and_see(&self, offset: u64, buf: UserBuf, seen: &mut Seen) -> Result<usize> {
        if seen.is_broken {
            return Err(changed());
        }
        for _ in 0..READS {
            let size = self.size();
            let end = offset.saturating_add(buf.len as u64);
            if end > size && seen.size.is_none() {
                seen.size = Some(size);
            }
            let range = offset.min(size)..end.min(size);
            let mut fresh = Vec::new();
            self.writing(
                |session| {
                    fresh = session.note(session.context(&self.fds), &range, seen)?;
                    Ok(())
                },
                || Err(self.without_transactions()),
            )?;
            if self.shadow().is_some() {
                // A change raises the numbers before its bytes are in the shadow, which is read: waits until they are.
                drop(self.shadow.lock());
            }
            // SAFETY: the caller's promise.
            let read = unsafe { self.read(offset, &[buf]) }?;
            let is_as_noted = self.writing(
                |session| session.is_as_noted(session.context(&self.fds), &range, seen),
                || Err(self.without_transactions()),
            )?;
            if is_as_noted {
                return Ok(read);
            }
            // What only this read relies on may be newer than the rest: all of that is checked again.
            for block in &fresh {
                seen.blocks.remove(block);
            }
            let none = 0..0;
            seen.looked = u64::MAX;
            let others_hold = self.writing(
                |session| session.is_as_noted(session.context(&self.fds), &none, seen),
                || Err(self.without_transactions()),
            )?;
            if !others_hold {
                return Err(seen.conflict());
            }
        }
        Err(seen.conflict())
    }

    /// Such a transaction is going to overwrite `range`. Its commit reports earlier changes there.
    ///
    /// # Errors
    /// Those of a first write. `EOPNOTSUPP`: the file is the kernel's.
    pub(crate) fn see_overwritten(&self, range: &Range<u64>, seen: &mut Seen) -> Result<()> {
        if seen.is_broken || range.is_empty() {
            return Ok(());
        }
        Ok(self.writing(
            |session| match session.note(session.context(&self.fds), range, seen) {
                Err(_) if seen.is_broken => Ok(()),
                noted => noted.map(drop),
            },
            || Err(self.without_transactions()),
        )?)
    }

    /// The size, for such a transaction.
    pub(crate) fn see_size(&self, seen: &mut Seen) -> u64 {
        let size = self.size();
        *seen.size.get_or_insert(size)
    }
}
