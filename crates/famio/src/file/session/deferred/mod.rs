//! The write-behind buffers: what a thread in exclusive mode wrote last stays in the arena until that thread's next
//! call (a whole block), or the one after it (a small write).
//!
//! A random write waits for the block's cell, which says where the bytes go, and then for its entry; neither is in the
//! cache. One call later the cell is, and two calls later the entry. The price is a second copy, within the cache. A
//! write to the same block as the last one waits for nothing, and is not deferred; nor is the first whole block of
//! an epoch, if the program SYNCs each write.
//!
//! A deferred write is part of the open epoch, and is lost with it. Any other thread that enters the file, or closes
//! the gate, first carries it out. That cannot fail for want of anything: it needs no entry, no room, and no caller's
//! memory.

use super::Session;
use super::closed_gate::ClosedGate;
use super::read::is_current;
use crate::error::{Error, Result};
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::engine::context::Context;
use crate::file::engine::home::copy_in;
use crate::file::{Descriptors, UserBuf};
use crate::index::{Arena, BLOCK, CountsLine, DeferredWrite, Inside, LONG, PLACE, PLACES, SHORT, Stuck};
use crate::pmem::LINE;
use core::sync::atomic::{AtomicU64, Ordering};

/// Larger parts of blocks are not deferred: copying them takes as long as the wait.
const SMALL: usize = 512;
/// Small writes that stay deferred when a call returns.
const STAY: usize = 2;
const _: () = assert!(STAY < PLACES);

/// More buffers than writes that stay, since the next one arrives before the oldest leaves. A whole block has the same
/// offset in a cache line as in the caller's memory: a copy between different offsets takes twice the loads.
#[repr(C, align(64))]
struct Places([[AtomicU64; PLACE / 8]; PLACES]);

/// Allocates the buffers, once per arena. Nothing is deferred.
pub(in crate::file) fn prepare(arena: &Arena) -> Result<()> {
    let shared = arena.shared();
    shared.deferred.reset();
    if shared.deferred_bytes.load(Ordering::Relaxed) == 0 {
        shared.deferred_bytes.store(arena.allocate(size_of::<Places>())?, Ordering::Release);
    }
    Ok(())
}

impl Session {
    #[inline]
    fn place(&self, place: usize, shift: usize) -> Result<*mut u8> {
        let offset = self.arena.shared().deferred_bytes.load(Ordering::Relaxed);
        let places = self.arena.at::<Places>(offset).ok_or(Error::new(libc::EIO))?;
        Ok(places.0[place].as_ptr().cast_mut().cast::<u8>().wrapping_add(shift % LINE))
    }

    /// Defers a write of one whole block, or a small one to another block than the last, if possible, and counts it in
    /// `mine`, the thread's counts. `None`: nothing was done. Inside the gate.
    ///
    /// # Safety
    /// The buffer may be read; it may be bad.
    #[inline]
    pub(in crate::file) unsafe fn defer(
        &self,
        cx: &Context<'_>,
        offset: u64,
        bufs: &[UserBuf],
        mine: &CountsLine,
    ) -> Option<Answer<usize>> {
        let [buf] = *bufs else { return None };
        let (block, start, shared) = (offset / BLOCK as u64, (offset % BLOCK as u64) as usize, cx.shared());
        let inside = offset.checked_add(buf.len as u64).is_some_and(|end| end <= shared.size());
        if !cx.exclusive || !inside {
            return None;
        }
        let done = match buf.len {
            // SAFETY: the caller's promise.
            BLOCK if start == 0 => unsafe { self.defer_block(cx, block, buf.base) }?,
            // SAFETY: the caller's promise.
            1..=SMALL if start + buf.len <= BLOCK => unsafe { self.defer_part(cx, block, start, buf) }?,
            _ => return None,
        };
        if let Err(e) = done {
            return Some(Err(e));
        }
        shared.make_dirty();
        mine.wrote(1, buf.len as u64);
        self.touch(*cx);
        Some(Ok(buf.len))
    }

    /// # Safety
    /// As [`defer`](Self::defer), for a whole block.
    #[inline]
    unsafe fn defer_block(&self, cx: &Context<'_>, block: u64, base: *mut u8) -> Option<Answer<()>> {
        let deferred = &cx.shared().deferred;
        // The SYNC that follows at once would only copy it a second time.
        let is_synced_next =
            self.syncs_each_write.load(Ordering::Relaxed) && cx.shared().dirty.load(Ordering::Relaxed) == 0;
        if is_synced_next || !self.engine.can_defer(cx, block, true) {
            return None;
        }
        let newest = deferred.newest_block();
        if let Some(newest) = newest {
            self.engine.prefetch_for(cx, newest, (0, BLOCK));
        }
        let (place, shift) = (deferred.free_place(), base as usize % LINE);
        let stored = self.place(place, shift).and_then(|bytes| {
            // SAFETY: that buffer is empty, and only this thread uses it now; the source is guarded.
            unsafe { copy_in(bytes, base, BLOCK) }
        });
        if let Err(e) = stored {
            return Some(Err(e.into()));
        }
        let next = DeferredWrite { block, start: 0, len: BLOCK, shift };
        if newest == Some(block) && deferred.is_one() {
            deferred.replace(place, next); // the only one is all written over
            return Some(Ok(()));
        }
        let done = self.carry_out_but(cx, 0);
        if done.is_ok() {
            deferred.put(place, next);
        }
        Some(done.map_err(Refusal::from))
    }

    /// # Safety
    /// As [`defer`](Self::defer), for a small part of a block.
    unsafe fn defer_part(&self, cx: &Context<'_>, block: u64, start: usize, buf: UserBuf) -> Option<Answer<()>> {
        let deferred = &cx.shared().deferred;
        if deferred.is_direct(block) {
            return None;
        }
        let newest = deferred.newest();
        if newest.is_some_and(|newest| newest.block == block) {
            deferred.go_direct(block);
            return None;
        }
        if !self.engine.can_defer(cx, block, false) {
            return None;
        }
        if let Some(newest) = newest {
            self.engine.prefetch_for(cx, newest.block, newest.part());
        }
        let place = deferred.free_place();
        let stored = self.place(place, 0).and_then(|bytes| {
            // SAFETY: that buffer is empty, and only this thread uses it now; the source is guarded.
            unsafe { copy_in(bytes.wrapping_add(start), buf.base, buf.len) }
        });
        if stored.is_err() {
            return None; // bad memory: as in the ordinary way
        }
        let done = self.carry_out_but(cx, STAY - 1);
        if done.is_ok() {
            deferred.put(place, DeferredWrite { block, start, len: buf.len, shift: 0 });
        }
        Some(done.map_err(Refusal::from))
    }

    /// Makes sure that nothing is deferred. Inside the gate, or with it closed by this thread.
    #[inline]
    pub(in crate::file) fn carry_out(&self, cx: &Context<'_>) -> Answer<()> {
        let shared = cx.shared();
        if !shared.deferred.is_any() {
            return Ok(());
        }
        is_current(*cx)?; // otherwise it is the next session's
        // The older one's entry and home are on their way, and its wait is that of the newest.
        if cx.exclusive
            && !shared.deferred.is_one()
            && let Some(newest) = shared.deferred.newest()
        {
            self.engine.prefetch_for(cx, newest.block, newest.part());
        }
        shared.deferred.carry_out(cx.exclusive, |what, place| self.carry_out_one(cx, what, place))?;
        // Their page faults may have changed the file's time now, long after the calls that deferred them.
        shared.leave_coarsely();
        Ok(())
    }

    /// As [`carry_out`](Self::carry_out), but `keep` writes may stay. For a thread in exclusive mode, inside the gate.
    #[inline]
    fn carry_out_but(&self, cx: &Context<'_>, keep: usize) -> Result<()> {
        cx.shared().deferred.carry_out_oldest(keep, |what, place| self.carry_out_one(cx, what, place))
    }

    #[inline]
    fn carry_out_one(&self, cx: &Context<'_>, what: DeferredWrite, place: usize) -> Result<()> {
        let written = self
            .place(place, what.shift)
            .and_then(|bytes| self.engine.write_deferred(cx, what.block, what.part(), bytes));
        // The program was told that the bytes are written.
        written.inspect_err(|_| cx.shared().poisoned.store(1, Ordering::Release))
    }

    /// Enters as a writer. Nothing is deferred then, except by this thread in exclusive mode.
    #[inline]
    pub(in crate::file) fn enter_gate<'a>(&'a self, cx: &mut Context<'a>) -> Answer<Inside<'a>> {
        let shared = self.arena.shared();
        let inside = match shared.gate.enter(cx.me, &shared.entered, &SHORT) {
            Err(Stuck) => {
                self.remove_dead_from_gate();
                shared.gate.enter(cx.me, &shared.entered, &LONG)?
            }
            Ok(inside) => inside,
        };
        cx.exclusive = inside.exclusive;
        if !inside.exclusive {
            self.carry_out(cx)?;
        }
        Ok(inside)
    }

    /// For readers: no write from before the call is deferred any more.
    #[inline]
    pub(in crate::file) fn join(&self, cx: Context<'_>) -> Answer<()> {
        cx.shared().gate.join(cx.me)?;
        if cx.shared().deferred.is_any() { self.show_deferred(cx.fds) } else { Ok(()) }
    }

    /// As [`join`](Self::join), for a reader of these bytes: writes to other blocks stay deferred, if they are this
    /// thread's.
    #[inline]
    pub(in crate::file) fn join_for(&self, cx: Context<'_>, offset: u64, len: usize) -> Answer<()> {
        let shared = cx.shared();
        shared.gate.join(cx.me)?;
        if !shared.deferred.is_any() || shared.gate.is_exclusively_of(cx.me) && !self.is_deferred(cx, offset, len) {
            return Ok(());
        }
        self.show_deferred(cx.fds)
    }

    fn is_deferred(&self, cx: Context<'_>, offset: u64, len: usize) -> bool {
        let last = offset.saturating_add(len as u64).saturating_sub(1);
        cx.shared().deferred.has_any_of(offset / BLOCK as u64..=last / BLOCK as u64)
    }

    #[cold]
    fn show_deferred(&self, fds: &Descriptors) -> Answer<()> {
        if crate::thread::current().locks_held.get() > 0 {
            return Err(Error::new(libc::EDEADLK).into()); // a signal handler, which may have interrupted just this
        }
        let mut cx = self.context(fds);
        let _inside = self.enter_gate(&mut cx)?;
        self.carry_out(&cx)
    }

    /// Closes the gate; nothing is deferred then.
    pub(in crate::file) fn close_gate(&self, fds: &Descriptors) -> Answer<ClosedGate<'_>> {
        self.show_before_close(fds)?;
        self.close_shown(fds)
    }

    /// While the gate is open: a reader that comes now finds a thread in exclusive mode inside.
    #[inline]
    pub(in crate::file) fn show_before_close(&self, fds: &Descriptors) -> Answer<()> {
        if self.arena.shared().deferred.is_any() { self.show_deferred(fds) } else { Ok(()) }
    }

    /// As [`close_gate`](Self::close_gate), after [`show_before_close`](Self::show_before_close).
    #[inline]
    pub(in crate::file) fn close_shown(&self, fds: &Descriptors) -> Answer<ClosedGate<'_>> {
        let closed = self.close_gate_past_dead()?;
        self.carry_out(&self.context(fds))?;
        Ok(closed)
    }
}

#[cfg(test)]
mod tests;
