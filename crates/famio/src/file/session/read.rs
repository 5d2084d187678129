//! Reads an attached file: written blocks by their cells, the rest directly from the file's mapping.

use super::{CALL_MAX, Session};
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::engine::context::{Context, Part};
use crate::file::{Descriptors, UserBuf};
use crate::index::{BLOCK, Cell};
use core::sync::atomic::{Ordering, fence};

impl Session {
    /// Reads into the caller's buffers at `offset`; fewer bytes at the end of the file, or if a buffer is bad.
    ///
    /// # Safety
    /// The buffers may be overwritten; they may be bad.
    pub unsafe fn read(&self, fds: &Descriptors, offset: u64, bufs: &[UserBuf]) -> Answer<usize> {
        let cx = self.context(fds);
        self.join_for(cx, offset, UserBuf::total(bufs))?;
        cx.shared().counts.mine().read();
        // Usually no transaction is being copied; a loop here would keep all of this on the stack for another turn.
        let transactions = cx.shared().transactions.load(Ordering::Acquire);
        if transactions & 1 == 0 {
            // SAFETY: the caller's promise.
            let read = unsafe { self.read_all(cx, offset, bufs) };
            if self.is_whole(cx, transactions)? {
                return read;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.read_again(cx, offset, bufs) }
    }

    /// # Safety
    /// As [`read`](Self::read).
    #[cold]
    unsafe fn read_again(&self, cx: Context<'_>, offset: u64, bufs: &[UserBuf]) -> Answer<usize> {
        let mut attempt = 0;
        loop {
            let begun = self.applied(cx, &mut attempt)?;
            // SAFETY: the caller's promise.
            let read = unsafe { self.read_all(cx, offset, bufs) };
            if self.is_whole(cx, begun)? {
                return read;
            }
        }
    }

    /// As [`read`](Self::read), but may return a part of a transaction that is being copied meanwhile.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    #[inline]
    unsafe fn read_all(&self, cx: Context<'_>, offset: u64, bufs: &[UserBuf]) -> Answer<usize> {
        let mut room = CALL_MAX.min(cx.shared().size().saturating_sub(offset).min(CALL_MAX as u64) as usize);
        if let [buf] = bufs {
            let len = buf.len.min(room);
            self.home.touch(cx.shared(), offset, len);
            // SAFETY: the caller's promise.
            return match unsafe { self.read_range(cx, offset, buf.base, len) } {
                (done, Err(refusal)) if done == 0 || refusal.is_session_ended() => Err(refusal),
                (done, _) => Ok(done),
            };
        }
        let asked = UserBuf::total(bufs);
        self.home.touch(cx.shared(), offset, asked.min(room));
        let mut done = 0;
        for buf in bufs {
            let len = buf.len.min(room);
            // SAFETY: the caller's promise.
            let (read, result) = unsafe { self.read_range(cx, offset + done as u64, buf.base, len) };
            done += read;
            room -= read;
            match result {
                // The session has ended: everything is read again in the next.
                Err(refusal) if done == 0 || refusal.is_session_ended() => return Err(refusal),
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(done)
    }

    /// # Safety
    /// As `read`.
    unsafe fn read_range(&self, cx: Context<'_>, offset: u64, dst: *mut u8, len: usize) -> (usize, Answer<()>) {
        let index = cx.index();
        let (mut done, mut again) = (0, 8);
        while done < len {
            let at = offset + done as u64;
            let (block, start) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let dst = dst.wrapping_add(done);
            let left = len - done;
            let (n, result) = match index.lookup(block) {
                Some(cell) => {
                    let n = left.min(BLOCK - start);
                    // SAFETY: the caller's promise.
                    (n, unsafe { self.read_block(cx, cell, Part { block, start, dst, len: n }) })
                }
                None => {
                    let blocks = (start + left).div_ceil(BLOCK) as u64;
                    let n = left.min((index.absent_run(block, blocks) as usize * BLOCK).saturating_sub(start).max(1));
                    // SAFETY: the caller's promise.
                    let read = unsafe { self.home_read(cx, at, dst, n) };
                    if !index.is_absent(block, (start + n).div_ceil(BLOCK) as u64) {
                        continue; // written for the first time meanwhile: the file itself may have changed
                    }
                    (n, read)
                }
            };
            match result {
                Ok(()) => done += n,
                // A checkpoint cut the file meanwhile: above its new end there are zeros.
                Err(refusal)
                    if refusal.is_error(libc::EIO) && again > 0 && self.engine.readable(cx) < at + n as u64 =>
                {
                    again -= 1
                }
                // A rollback has ended the session, and cut the file.
                Err(refusal) if refusal.is_error(libc::EIO) => {
                    let is_over = cx.shared().closed.load(Ordering::Acquire) != 0 || is_current(cx).is_err();
                    return (done, Err(if is_over { Refusal::session_ended() } else { refusal }));
                }
                Err(refusal) => return (done, Err(refusal)),
            }
        }
        (done, Ok(()))
    }

    /// Reads from one block without a lock: again until no writer came in between.
    ///
    /// # Safety
    /// As `read`.
    unsafe fn read_block(&self, cx: Context<'_>, cell: &Cell, part: Part) -> Answer<()> {
        let mut attempt = 0;
        loop {
            if let Some(seen) = cell.begin_read() {
                is_current(cx)?; // otherwise the cell belongs to another journal
                // In exclusive mode, a sequence number says nothing about the block's bytes.
                if !cx.shared().gate.is_joined(cx.me) {
                    self.join(cx)?;
                    continue;
                }
                // SAFETY: the caller's promise.
                let copied = unsafe { self.engine.copy_block(cx, cell, part) };
                let joined = cx.shared().gate.is_joined(cx.me);
                if joined && cell.still(seen) {
                    return copied.map_err(Refusal::from);
                }
                if !joined {
                    self.join(cx)?;
                }
            }
            attempt += 1;
            cx.wait_for_writer(cell, attempt)?;
        }
    }

    /// # Safety
    /// As `read`.
    unsafe fn home_read(&self, cx: Context<'_>, at: u64, dst: *mut u8, len: usize) -> Answer<()> {
        // SAFETY: the caller's promise.
        let read = unsafe { cx.read_home(at, dst, len, self.engine.readable(cx)) };
        fence(Ordering::Acquire);
        // The engine's bound was this session's: a later session may have cut the file.
        is_current(cx).and(read.map_err(Refusal::from))
    }
}

/// Checks that the arena is still this session's: no other one has begun.
#[inline]
pub(in crate::file) fn is_current(cx: Context<'_>) -> Answer<()> {
    let same = cx.shared().generation.load(Ordering::Acquire) == cx.generation;
    if same { Ok(()) } else { Err(Refusal::session_ended()) }
}
