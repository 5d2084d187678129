//! Writes that are atomic and durable by themselves: with `atomicity = write`, and of descriptors and calls that ask
//! for it (`O_DSYNC`, `RWF_DSYNC`, `RWF_ATOMIC`). Such a write is a transaction, so that it is in an epoch as a whole
//! or not at all; a SYNC follows, of the whole file.
//!
//! One SYNC serves several threads: before it, a thread lets other threads finish such writes that have begun.

use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::{ATTACHED, AtomicFile, GROWING, PLAIN};
use crate::file::session::CALL_MAX;
use crate::file::transaction::{AT_END, WriteSet};
use crate::index::BLOCK;
use crate::settings::Atomicity;
use core::sync::atomic::Ordering;

/// What may become of such a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// If there is no room for all of it, or the caller's memory ends, a shorter one is made, as by the kernel.
    Shorter,
    /// All of it, or an error and nothing.
    All,
    /// As `All`; also an error if the file is the kernel's.
    Protected,
}

impl AtomicFile {
    /// Whether each call that changes the file is committed by itself.
    #[inline]
    pub fn is_write_atomic(&self) -> bool {
        self.settings.atomicity == Atomicity::Write
    }

    /// The most bytes of a write with [`Whole::Protected`]: a power of two.
    pub fn most_at_once(&self) -> u32 {
        const MOST: u64 = 1 << 20;
        let most = MOST.min(self.settings.journal_limit / 4).max(BLOCK as u64);
        1 << most.ilog2()
    }

    /// Writes `bufs` at `at`, or at the end of the file: in one epoch, durable on return. Returns the offset, and the
    /// number of bytes.
    ///
    /// # Errors
    /// As [`write`](Self::write) and [`sync`](Self::sync); after errors of a write nothing was changed.
    ///
    /// # Safety
    /// The buffers may be read; bad ones are an error, not a crash.
    pub unsafe fn write_atomically(&self, at: Option<u64>, bufs: &[UserBuf], whole: Whole) -> Result<(u64, usize)> {
        Self::may_lock()?;
        if UserBuf::total(bufs) == 0 {
            return Ok((at.unwrap_or_else(|| self.size()), 0));
        }
        if !self.takes_a_flush() {
            // SAFETY: the caller's promise.
            let (place, is_durable) = unsafe { self.put_whole(at, bufs, whole, true) }?;
            if !is_durable {
                self.sync()?;
            }
            return Ok(place);
        }
        let announced = self.arrivals.announce();
        let is_alone = !self.arrivals.has_others();
        // SAFETY: the caller's promise.
        let (place, is_durable) = unsafe { self.put_whole(at, bufs, whole, is_alone) }?;
        drop(announced);
        if !is_durable {
            // A commit that ends from here on includes this write: it began when no thread was writing any more.
            let ended = self.ownership.commits();
            self.arrivals.wait_for_others();
            self.sync_unless(|| self.ownership.commits() != ended)?;
        }
        Ok(place)
    }

    /// Whether a SYNC waits for a disk.
    fn takes_a_flush(&self) -> bool {
        self.with_session(|session| !session.engine.commits_in_memory()).unwrap_or(true)
    }

    /// `at_once`: no other thread writes, so that the SYNC may be part of it. Also returns whether it was.
    ///
    /// # Safety
    /// As [`write_atomically`](Self::write_atomically).
    unsafe fn put_whole(
        &self,
        at: Option<u64>,
        bufs: &[UserBuf],
        whole: Whole,
        at_once: bool,
    ) -> Result<((u64, usize), bool)> {
        if whole == Whole::Shorter && lies_in_a_block(at, bufs) {
            // Such a write is one step anyway.
            // SAFETY: the caller's promise.
            return unsafe { self.put(at, bufs) }.map(|place| (place, false));
        }
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { self.grow_whole(at, bufs, whole) } {
            return done.map(|place| (place, false));
        }
        let mut most = UserBuf::total(bufs);
        if most > CALL_MAX {
            if whole != Whole::Shorter {
                return Err(Error::with(libc::EFBIG, format!("one write of {most} bytes: at most {CALL_MAX}")));
            }
            most = CALL_MAX;
        }
        // A SYNC of a group may want room that this file cannot give: then the transaction is not to be made again.
        let at_once = at_once && self.settings.group.is_none();
        let mut is_synced = false;
        loop {
            let mut set = WriteSet::default();
            let offset = at.unwrap_or(AT_END);
            // SAFETY: the caller's promise.
            let len = unsafe { set.write_vector(offset, bufs, most, whole == Whole::Shorter) };
            match len.and_then(|len| self.commit_transaction(&set, None, at_once).map(|()| len)) {
                Ok(len) => return Ok(((set.place(offset), len), at_once)),
                Err(_) if self.is_demoted() && whole != Whole::Protected => {
                    // SAFETY: the caller's promise.
                    return unsafe { self.put(at, bufs) }.map(|place| (place, false));
                }
                // Uncommitted bytes take room, too, and have to be committed anyway.
                Err(e) if is_of_room(&e) && !is_synced && self.is_attached() => {
                    self.sync()?;
                    is_synced = true;
                }
                Err(e) if whole == Whole::Shorter && is_of_room(&e) && most > BLOCK && self.is_attached() => {
                    most = (most / 2) & !(BLOCK - 1);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether it has a journal, which may have room.
    fn is_attached(&self) -> bool {
        self.state.load(Ordering::Acquire) == ATTACHED
    }

    /// Writes as any write.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    unsafe fn put(&self, at: Option<u64>, bufs: &[UserBuf]) -> Result<(u64, usize)> {
        // SAFETY: the caller's promise.
        unsafe {
            match at {
                Some(at) => self.write(at, bufs).map(|len| (at, len)),
                None => self.append(bufs),
            }
        }
    }

    /// Writes to a growing file. `None`: this needs a session.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    unsafe fn grow_whole(&self, at: Option<u64>, bufs: &[UserBuf], whole: Whole) -> Option<Result<(u64, usize)>> {
        if ![PLAIN, GROWING].contains(&self.state.load(Ordering::Acquire)) {
            return None;
        }
        if whole != Whole::Shorter {
            return self.append_growing(at, bufs);
        }
        // SAFETY: the caller's promise.
        unsafe { self.write_growing(at, bufs) }
    }
}

fn lies_in_a_block(at: Option<u64>, bufs: &[UserBuf]) -> bool {
    at.is_some_and(|at| at as usize % BLOCK + UserBuf::total(bufs) <= BLOCK)
}

/// No room for everything: there may be some for less.
fn is_of_room(error: &Error) -> bool {
    error.is_full() || error.errno() == libc::ENOMEM
}
