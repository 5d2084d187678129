//! Writes to an attached file: block by block, each through a buffer, so that no block lock is held while the
//! caller's memory is touched.

use super::exclusive::is_time_to_ask;
use super::read::is_current;
use super::{CALL_MAX, Session};
use crate::error::{Error, Result};
use crate::file::base::bits::GRANULE;
use crate::file::base::doing::is_doing;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::engine::context::{BlockBuf, Context};
use crate::file::engine::home::copy_in;
use crate::file::{Descriptors, UserBuf};
use crate::index::{BLOCK, BLOCKS_MAX, Calls, MOST_AT_ONCE, Timer, WRITES_TIMED};
use crate::map::guard;
use core::sync::atomic::Ordering;

/// The largest file, in bytes.
pub(crate) const SIZE_MAX: u64 = BLOCKS_MAX * BLOCK as u64;

/// The caller's buffers, consumed from the front.
struct Source<'a> {
    bufs: &'a [UserBuf],
    used: usize,
}

impl Source<'_> {
    /// Whether the next `len` bytes, at most a block and in one buffer, can be read: if not, nothing of a block may
    /// be stored. Looks at the one or two pages that they lie on; unmapping these afterwards is the caller's race.
    #[inline]
    fn is_readable(&self, len: usize) -> bool {
        let Some(buf) = self.bufs.first() else { return false };
        let first = buf.base.wrapping_add(self.used);
        // SAFETY: the guard returns a fault at any address. The closure owns nothing.
        unsafe { guard::run_on(first, len, || (first.read_volatile(), first.wrapping_add(len - 1).read_volatile())) }
            .is_ok()
    }

    /// The address of the next `len` bytes, if they lie in one buffer.
    #[inline]
    fn in_one(&self, len: usize) -> Option<*mut u8> {
        let buf = self.bufs.first()?;
        (buf.len - self.used >= len).then(|| buf.base.wrapping_add(self.used))
    }

    /// Consumes `len` bytes of the first buffer.
    #[inline]
    fn skip(&mut self, len: usize) {
        self.used += len;
        if self.bufs.first().is_some_and(|buf| buf.len == self.used) {
            self.bufs = &self.bufs[1..];
            self.used = 0;
        }
    }

    /// Copies the next `len` bytes to `dst`; returns the number before a bad buffer, and the error of that one.
    ///
    /// # Safety
    /// `dst` is ours, with room for `len`; the buffers may be read, and may be bad.
    #[inline]
    unsafe fn take(&mut self, dst: *mut u8, len: usize) -> (usize, Result<()>) {
        let mut done = 0;
        while done < len {
            let Some(buf) = self.bufs.first() else { break };
            let n = (buf.len - self.used).min(len - done);
            // SAFETY: the caller's promise.
            if let Err(e) = unsafe { copy_in(dst.wrapping_add(done), buf.base.wrapping_add(self.used), n) } {
                return (done, Err(e));
            }
            done += n;
            self.skip(n);
        }
        (done, Ok(()))
    }
}

/// So many bytes are written through less memory than a block.
const FEW: usize = 512;

impl Session {
    /// Writes the caller's buffers. Fewer bytes than asked for if room, the size limit or the caller's memory end.
    ///
    /// Refused if the journal was closed meanwhile.
    ///
    /// # Safety
    /// The buffers may be read; they may be bad.
    pub unsafe fn write(&self, fds: &Descriptors, offset: u64, bufs: &[UserBuf]) -> Answer<usize> {
        // Cell and, through it, the block's entry are the first cache misses: start them now.
        self.arena.prefetch_cell(offset / BLOCK as u64, false);
        // SAFETY: the caller's promise.
        unsafe { self.write_to(fds, Some(offset), bufs) }.map(|(_, done)| done)
    }

    /// As [`write`](Self::write), at the end of the file; also returns that offset.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub unsafe fn append(&self, fds: &Descriptors, bufs: &[UserBuf]) -> Answer<(u64, usize)> {
        // SAFETY: the caller's promise.
        unsafe { self.write_to(fds, None, bufs) }
    }

    /// `at`: `None` is the end of the file. Inlined, so that its result goes through registers (see [`Error`]).
    ///
    /// # Safety
    /// As [`write`](Self::write).
    #[inline(always)]
    unsafe fn write_to(&self, fds: &Descriptors, at: Option<u64>, bufs: &[UserBuf]) -> Answer<(u64, usize)> {
        let mut cx = self.context(fds);
        let shared = cx.shared();
        let total = UserBuf::total(bufs).min(CALL_MAX);
        // By both, so that a program with few writes per epoch is not timed at each of them.
        let mine = shared.counts.mine();
        let turn = mine.writes() ^ shared.committed.load(Ordering::Relaxed);
        if is_time_to_ask(turn, total) {
            self.ask_for_exclusive_mode(fds);
        }
        let timer = Timer::begin(&shared.totals.write_times, turn.is_multiple_of(WRITES_TIMED));
        let _inside = self.enter_gate(&mut cx)?;
        self.check_change(cx)?;
        if let Some(offset) = at
            // SAFETY: the caller's promise.
            && let Some(done) = unsafe { self.defer(&cx, offset, bufs, mine) }
        {
            timer.end();
            return done.map(|done| (offset, done));
        }
        self.carry_out(&cx)?;

        // One thread at a time makes the file longer; the size is read again once no other can.
        let mut extending = None;
        let offset = match at {
            Some(offset) if offset.saturating_add(total as u64) <= shared.size() => offset,
            Some(offset) => {
                extending = Some(cx.lock_unless_exclusive(&shared.extending)?);
                offset
            }
            None => {
                extending = Some(cx.lock_unless_exclusive(&shared.extending)?);
                shared.size()
            }
        };
        if total == 0 {
            return Ok((offset, 0));
        }
        let total = match SIZE_MAX.checked_sub(offset) {
            None | Some(0) => return Err(Error::new(libc::EFBIG).into()),
            Some(room) => total.min(room.min(CALL_MAX as u64) as usize),
        };
        shared.make_dirty();
        if self.saves_images() {
            self.save_images(cx, offset, total as u64)?;
        }
        if extending.is_some() && offset > shared.size() {
            self.zero_gap(cx, shared.size(), offset)?;
        }
        let mut source = Source { bufs, used: 0 };
        let (done, result) = if self.keeps {
            // SAFETY: the caller's promise.
            unsafe { self.write_announced(&cx, offset, total, &mut source) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.write_blocks(&cx, offset, total, &mut source) }
        };
        if done > 0 {
            if extending.is_some() {
                shared.size.fetch_max(offset + done as u64, Ordering::AcqRel);
            }
            mine.wrote(1, done as u64);
        }
        self.touch(cx);
        timer.end();
        match result {
            Err(e) if done == 0 => Err(e.into()),
            _ => Ok((offset, done)),
        }
    }

    /// As [`write_blocks`](Self::write_blocks), for `on-kill = keep`: the bytes lie in the arena, recorded as a write
    /// under way, until the file has them and its size.
    ///
    /// # Safety
    /// As `write`.
    #[cold]
    unsafe fn write_announced(
        &self,
        cx: &Context<'_>,
        offset: u64,
        total: usize,
        source: &mut Source<'_>,
    ) -> (usize, Result<()>) {
        let mut done = 0;
        let call = match Calls::begin(cx.arena) {
            Ok(call) => call,
            Err(e) => return (0, Err(e)),
        };
        while done < total {
            let len = (total - done).min(MOST_AT_ONCE);
            let room = match call.room(len) {
                Ok(room) => room,
                Err(e) => return (done, Err(e)),
            };
            // SAFETY: our room for this many bytes; the source is the caller's promise.
            let (got, fault) = unsafe { source.take(room, len) };
            call.writes(offset + done as u64, got);
            let mut announced = Source { bufs: &[UserBuf { base: room, len: got }], used: 0 };
            // SAFETY: the room is ours.
            let (written, result) = unsafe { self.write_blocks(cx, offset + done as u64, got, &mut announced) };
            done += written;
            if written > 0 {
                // One thread at a time makes the file longer.
                cx.shared().size.fetch_max(offset + done as u64, Ordering::AcqRel);
            }
            call.done();
            if result.is_err() || fault.is_err() {
                return (done, result.and(fault));
            }
        }
        (done, Ok(()))
    }

    /// # Safety
    /// As `write`.
    #[inline]
    unsafe fn write_blocks(
        &self,
        cx: &Context<'_>,
        offset: u64,
        total: usize,
        source: &mut Source<'_>,
    ) -> (usize, Result<()>) {
        // SAFETY: the caller's promise.
        unsafe {
            if total <= FEW {
                self.write_few(cx, offset, total, source)
            } else {
                self.write_many(cx, offset, total, source)
            }
        }
    }

    /// A signal handler that writes a few bytes may have a stack of 8 KiB, of which the kernel has taken the half.
    ///
    /// # Safety
    /// As `write`. At most [`FEW`] bytes.
    #[inline(never)]
    unsafe fn write_few(
        &self,
        cx: &Context<'_>,
        offset: u64,
        total: usize,
        source: &mut Source<'_>,
    ) -> (usize, Result<()>) {
        /// With the rest of the first and the last granule.
        #[repr(C, align(64))]
        struct Few([u8; FEW + 2 * GRANULE]);
        let mut buf = core::mem::MaybeUninit::<Few>::uninit();
        let buf = buf.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's promise. Nothing but the granules that a part touches is used of a block.
        unsafe { self.write_through(cx, offset, total, source, |start| buf.wrapping_sub(start / GRANULE * GRANULE)) }
    }

    /// # Safety
    /// As `write`.
    #[inline(never)]
    unsafe fn write_many(
        &self,
        cx: &Context<'_>,
        offset: u64,
        total: usize,
        source: &mut Source<'_>,
    ) -> (usize, Result<()>) {
        let mut buf = BlockBuf::new();
        let buf = buf.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's promise.
        unsafe { self.write_through(cx, offset, total, source, |_| buf) }
    }

    /// `buf_of`: where a block would begin of which the bytes from here on are written. There is room for the granules
    /// that they touch.
    ///
    /// # Safety
    /// As `write`.
    #[inline(always)]
    unsafe fn write_through(
        &self,
        cx: &Context<'_>,
        offset: u64,
        total: usize,
        source: &mut Source<'_>,
        buf_of: impl Fn(usize) -> *mut u8,
    ) -> (usize, Result<()>) {
        let mut done = 0;
        while done < total {
            let at = offset + done as u64;
            let (block, start) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let want = (total - done).min(BLOCK - start);
            let buf = buf_of(start);
            if cx.exclusive
                && start.is_multiple_of(GRANULE)
                && want.is_multiple_of(GRANULE)
                && self.engine.takes_callers_memory(want == BLOCK)
                && let Some(direct) = source.in_one(want)
                && source.is_readable(want)
            {
                let part = (start, start + want);
                match self.engine.write_callers(cx, block, part, direct.wrapping_sub(start)) {
                    Ok(true) => {
                        source.skip(want);
                        done += want;
                        continue;
                    }
                    Ok(false) => {}
                    Err(e) => return (done, Err(e)),
                }
            }
            // While the bytes are copied, the cache gets what this block, or the next one, is going to need.
            if done == 0 {
                self.engine.prefetch_for(cx, block, (start, start + want));
            }
            if total - done - want >= BLOCK {
                self.engine.prefetch_for(cx, block + 1, (0, BLOCK));
            }
            // SAFETY: `start + want` is within the buffer; the source is the caller's promise.
            let (got, fault) = unsafe { source.take(buf.wrapping_add(start), want) };
            if got > 0
                && let Err(e) = self.engine.write_block(cx, block, start, start + got, buf)
            {
                return (done, Err(e));
            }
            done += got;
            if fault.is_err() {
                return (done, fault);
            }
        }
        (done, Ok(()))
    }

    /// Checks that the file still takes writes.
    #[inline]
    pub(in crate::file) fn check(&self, cx: Context<'_>) -> Answer<()> {
        let shared = cx.shared();
        if shared.closed.load(Ordering::Acquire) != 0 {
            return Err(Refusal::session_ended());
        }
        // After `closed`, which the next session of the arena opens last.
        is_current(cx)?;
        if shared.poisoned.load(Ordering::Acquire) != 0 {
            return Err(Error::new(libc::EIO).into());
        }
        Ok(())
    }

    /// Checks that the file takes a change of this thread, without a follow-up. Inside the gate, or with it closed.
    #[inline]
    pub(in crate::file) fn check_change(&self, cx: Context<'_>) -> Answer<()> {
        self.check(cx)?;
        if cx.shared().follow_up.load(Ordering::Relaxed) != 0 && !is_doing() {
            return Err(Refusal::needs_follow_up());
        }
        Ok(())
    }

    /// A writer is done: sets the time for `stat`.
    #[inline]
    pub(in crate::file) fn touch(&self, cx: Context<'_>) {
        let now = crate::sys::coarse_now();
        let shared = cx.shared();
        shared.modified_at(now);
        if cx.home.is_stamped_by_writes() { shared.leave_now() } else { shared.leave_at(now) }
    }
}
