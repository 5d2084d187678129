//! The write-behind buffer: the last whole block that a thread in exclusive mode has written stays in the arena until
//! that thread's next call.
//!
//! A random write of a page waits for the block's cell, which says where the bytes go and is not in the cache. One
//! call later it is, and the copy overlaps with the next wait. The price is a second copy, within the cache.
//!
//! A deferred block is part of the open epoch, and is lost with it. Any other thread that enters the file, or closes
//! the gate, first carries it out. That cannot fail for want of anything: it needs no entry, no room, and no caller's
//! memory.

use super::Session;
use super::read::is_current;
use crate::error::{Error, Result};
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::engine::context::Context;
use crate::file::engine::home::copy_in;
use crate::file::{Descriptors, UserBuf};
use crate::index::{Arena, BLOCK, Closed, CountsLine, Inside, LONG, PLACE, PutOff, SHORT};
use crate::pmem::LINE;
use core::sync::atomic::{AtomicU64, Ordering};

/// Two buffers, since the next block arrives before the last one leaves. A block has the same offset in a cache line
/// as in the caller's memory: a copy between different offsets takes twice the loads.
#[repr(C, align(64))]
struct Places([[AtomicU64; PLACE / 8]; 2]);

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

    /// Defers a write of one whole block, if possible, and counts it in `mine`, the thread's counts. `None`: nothing
    /// was done. Inside the gate.
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
        let [UserBuf { base, len: BLOCK }] = *bufs else { return None };
        let (block, shared) = (offset / BLOCK as u64, cx.shared());
        let inside = offset.checked_add(BLOCK as u64).is_some_and(|end| end <= shared.size());
        if !cx.exclusive || !inside || !offset.is_multiple_of(BLOCK as u64) || !self.engine.can_defer(cx, block) {
            return None;
        }
        let (last, place) = (shared.deferred.last(), shared.deferred.free_place());
        if let Some(last) = last {
            self.engine.prefetch_for(cx, last.block);
        }
        let shift = base as usize % LINE;
        let stored = self.place(place, shift).and_then(|bytes| {
            // SAFETY: that buffer is empty, and only this thread uses it now; the source is guarded.
            unsafe { copy_in(bytes, base, BLOCK) }
        });
        let ready = match last {
            // Replaced, unless the new bytes are bad.
            Some(last) if last.block == block => stored.map_err(Refusal::from),
            _ => stored.map_err(Refusal::from).and_then(|()| self.carry_out(cx)),
        };
        if let Err(e) = ready {
            return Some(Err(e));
        }
        shared.make_dirty();
        shared.deferred.put(PutOff { block, place, shift });
        mine.wrote(1, BLOCK as u64);
        self.touch(*cx);
        Some(Ok(BLOCK))
    }

    /// Makes sure that nothing is deferred. Inside the gate, or with it closed by this thread.
    #[inline]
    pub(in crate::file) fn carry_out(&self, cx: &Context<'_>) -> Answer<()> {
        let shared = cx.shared();
        if !shared.deferred.is_any() {
            return Ok(());
        }
        is_current(*cx)?; // otherwise it is the next session's
        shared.deferred.carry_out(cx.exclusive, |what| {
            let written =
                self.place(what.place, what.shift).and_then(|bytes| self.engine.write_deferred(cx, what.block, bytes));
            // The program was told that the block is written.
            written.inspect_err(|_| shared.poisoned.store(1, Ordering::Release))
        })?;
        // Its page fault may have changed the file's time now, long after the call that deferred it.
        shared.leave_at(crate::sys::coarse_now());
        Ok(())
    }

    /// Enters as a writer. Nothing is deferred then, except by this thread in exclusive mode.
    #[inline]
    pub(in crate::file) fn go_in<'a>(&'a self, cx: &mut Context<'a>) -> Answer<Inside<'a>> {
        let shared = self.arena.shared();
        let inside = match shared.gate.enter(cx.me, &shared.entered, &SHORT) {
            Err(e) if e.errno() == libc::EDEADLK => {
                self.strike_the_gone();
                shared.gate.enter(cx.me, &shared.entered, &LONG)?
            }
            inside => inside?,
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

    #[cold]
    fn show_deferred(&self, fds: &Descriptors) -> Answer<()> {
        if crate::thread::current().locks_held.get() > 0 {
            return Err(Error::new(libc::EDEADLK).into()); // a signal handler, which may have interrupted just this
        }
        let mut cx = self.context(fds);
        let _inside = self.go_in(&mut cx)?;
        self.carry_out(&cx)
    }

    /// Closes the gate; nothing is deferred then.
    pub(in crate::file) fn close_gate(&self, fds: &Descriptors) -> Answer<Closed<'_>> {
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
    pub(in crate::file) fn close_shown(&self, fds: &Descriptors) -> Answer<Closed<'_>> {
        let closed = self.close_but_for_the_gone()?;
        self.carry_out(&self.context(fds))?;
        Ok(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Access, AtomicFile};
    use crate::{PolicyChoice, Settings};
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd};
    use std::sync::Arc;

    const BLOCKS: u8 = 4;

    struct Opened {
        path: String,
        file: File,
        atomic: Arc<AtomicFile>,
    }

    impl Opened {
        /// A file of four blocks, each with an entry, and this thread in exclusive mode.
        fn new(name: &str) -> Self {
            let path = format!("/dev/shm/famio-deferred-{}-{name}", std::process::id());
            std::fs::write(&path, vec![0; usize::from(BLOCKS) * BLOCK]).unwrap();
            let file = File::options().read(true).write(true).open(&path).unwrap();
            let settings = Settings { policy: PolicyChoice::Alternate, ..Settings::default() };
            let name = std::ffi::CString::new(path.clone()).unwrap();
            let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &settings).unwrap();
            let opened = Self { path, file, atomic };
            opened.own(1);
            opened
        }

        /// Writes all blocks three times, from value `first` on.
        fn own(&self, first: u8) {
            loop {
                self.write(0, first);
                self.atomic.sync().unwrap();
                if self.atomic.has_lease() {
                    break;
                }
                self.atomic.ask_for_lease();
            }
            for round in first..first + 3 {
                (0..BLOCKS).for_each(|block| self.write(block.into(), round));
                self.atomic.sync().unwrap();
            }
        }

        fn write(&self, block: u64, value: u8) {
            let mut bytes = [value; BLOCK];
            let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
            // SAFETY: a live buffer.
            assert_eq!(unsafe { self.atomic.write(block * BLOCK as u64, &buf) }.unwrap(), BLOCK);
        }

        /// Writes a block so that it is deferred: again if the background has carried it out before this thread ran
        /// on.
        #[track_caller]
        fn put_off(&self, block: u64, value: u8) {
            let is_put_off = |round| {
                if round > 0 {
                    self.atomic.sync().unwrap(); // exclusive mode again after some SYNCs
                }
                self.write(block, value);
                self.deferred() == Some(block)
            };
            assert!((0..1000).any(is_put_off), "{:?}", self.deferred());
        }

        fn read(&self, block: u64) -> u8 {
            let mut bytes = [0; BLOCK];
            let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
            // SAFETY: a live buffer.
            assert_eq!(unsafe { self.atomic.read(block * BLOCK as u64, &buf) }.unwrap(), BLOCK);
            assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a mix");
            bytes[0]
        }

        fn deferred(&self) -> Option<u64> {
            self.atomic.with_session(|session| session.arena.shared().deferred.last()).flatten().map(|what| what.block)
        }
    }

    impl Drop for Opened {
        fn drop(&mut self) {
            self.atomic.remove_descriptor(self.file.as_raw_fd()).unwrap();
            std::fs::remove_file(&self.path).unwrap();
        }
    }

    #[test]
    fn a_whole_block_is_put_off_until_the_next_call() {
        let opened = Opened::new("next");
        opened.put_off(1, 10);
        opened.put_off(2, 20);
        opened.put_off(2, 21); // replaces it
        assert_eq!((opened.read(1), opened.read(2), opened.read(3)), (10, 21, 3));
        assert_eq!(opened.deferred(), None);
        opened.write(3, 30);
        opened.atomic.sync().unwrap();
        assert_eq!((opened.deferred(), opened.read(3)), (None, 30));
    }

    /// A process that was killed long after its last write, but soon after the SYNC that carried it out, had an outsider
    /// to blame.
    #[test]
    fn the_time_of_the_last_change_is_that_of_carrying_it_out() {
        let opened = Opened::new("time");
        opened.put_off(1, 10);
        let set = |session: &Session| {
            session.arena.shared().leave_at(libc::timespec { tv_sec: 1, tv_nsec: 0 });
        };
        opened.atomic.with_session(set).unwrap();
        opened.atomic.sync().unwrap();
        let touched = opened.atomic.with_session(|session| session.arena.shared().touched.load(Ordering::Relaxed));
        assert!(touched.unwrap() > 1_000_000_000, "{touched:?}");
    }

    #[test]
    fn others_see_it_and_write_over_it() {
        let opened = Opened::new("others");
        opened.write(1, 10);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(opened.read(1), 10));
        });
        for round in 11..40 {
            while opened.deferred().is_none() {
                opened.write(0, round); // exclusive mode again after some SYNCs
                opened.atomic.sync().unwrap();
                opened.write(1, round);
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    opened.write(1, 100 + round);
                    assert_eq!(opened.read(1), 100 + round);
                });
            });
            assert_eq!(opened.read(1), 100 + round);
        }
    }

    #[test]
    fn bytes_that_lie_anywhere_in_the_callers_memory_arrive() {
        let opened = Opened::new("anywhere");
        let mut bytes: Vec<u8> = (0..BLOCK + 128).map(|i| (i * 7 + i / 256) as u8).collect();
        for shift in 0..128 {
            let block = shift as u64 % u64::from(BLOCKS);
            let buf = [UserBuf { base: bytes[shift..].as_mut_ptr(), len: BLOCK }];
            // SAFETY: a live buffer.
            assert_eq!(unsafe { opened.atomic.write(block * BLOCK as u64, &buf) }.unwrap(), BLOCK);
            assert_eq!(opened.deferred(), Some(block));
            let mut read = [0; BLOCK];
            let buf = [UserBuf { base: read.as_mut_ptr(), len: BLOCK }];
            // SAFETY: a live buffer.
            assert_eq!(unsafe { opened.atomic.read(block * BLOCK as u64, &buf) }.unwrap(), BLOCK);
            assert!(read == bytes[shift..shift + BLOCK], "shift {shift}");
        }
    }

    #[test]
    fn a_bad_buffer_leaves_what_was_put_off() {
        let opened = Opened::new("bad");
        opened.write(1, 10);
        // SAFETY: two pages of our own, the second of which is taken away again.
        let pages = unsafe {
            let pages = libc::mmap(core::ptr::null_mut(), 8192, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            libc::munmap(pages.byte_add(4096), 4096);
            pages.cast::<u8>()
        };
        for (block, from) in [(1, 2048), (2, 2048), (1, 4096)] {
            let buf = [UserBuf { base: pages.wrapping_add(from), len: BLOCK }];
            // SAFETY: bad memory is an error.
            let result = unsafe { opened.atomic.write(block * BLOCK as u64, &buf) };
            assert_eq!(result.unwrap_err().errno(), libc::EFAULT);
            assert_eq!(opened.deferred(), Some(1));
        }
        assert_eq!((opened.read(1), opened.read(2)), (10, 3));
        // SAFETY: ours.
        unsafe { libc::munmap(pages.cast(), 4096) };
    }

    #[test]
    fn it_is_part_of_what_a_cut_cuts_and_what_is_closed() {
        let opened = Opened::new("cut");
        opened.write(2, 20);
        opened.write(3, 30);
        opened.atomic.set_size(3 * BLOCK as u64 + 100).unwrap();
        opened.atomic.set_size(4 * BLOCK as u64).unwrap();
        let mut bytes = [1; BLOCK];
        let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
        // SAFETY: a live buffer.
        assert_eq!(unsafe { opened.atomic.read(3 * BLOCK as u64, &buf) }.unwrap(), BLOCK);
        assert!(bytes[..100] == [30; 100] && bytes[100..].iter().all(|&byte| byte == 0));
        opened.atomic.set_size(BLOCK as u64).unwrap();
        opened.write(1, 20); // makes the file longer
        assert_eq!((opened.deferred(), opened.atomic.size()), (None, 2 * BLOCK as u64));
        opened.write(0, 40);
        opened.atomic.sync().unwrap();
        opened.write(1, 50);
        let path = opened.path.clone();
        opened.atomic.demote().unwrap();
        let file = std::fs::read(path).unwrap();
        assert!(file[..BLOCK] == [40; BLOCK] && file[BLOCK..2 * BLOCK] == [50; BLOCK] && file.len() == 2 * BLOCK);
    }

    /// Bytes of a block that was cut off are not seen again, wherever they were stored.
    #[test]
    fn what_grew_was_written_whole_and_cut_is_zeros() {
        let opened = Opened::new("grown");
        let size = (u64::from(BLOCKS) + 1) * BLOCK as u64;
        opened.atomic.set_size(size).unwrap();
        opened.atomic.sync().unwrap();
        let block = u64::from(BLOCKS);
        // Its entry comes from a small write, to the log and then back to the file.
        for _ in 0..2 {
            let mut bytes = [9; 100];
            let buf = [UserBuf { base: bytes.as_mut_ptr(), len: bytes.len() }];
            // SAFETY: a live buffer.
            assert_eq!(unsafe { opened.atomic.write(block * BLOCK as u64, &buf) }.unwrap(), bytes.len());
            opened.atomic.sync().unwrap();
        }
        for round in 0..4 {
            opened.write(block, 50 + round);
            opened.write(0, round);
            opened.atomic.sync().unwrap();
        }
        opened.atomic.set_size(size - BLOCK as u64).unwrap();
        opened.atomic.set_size(size).unwrap();
        assert_eq!(opened.read(block), 0);
    }

    /// A reader that still has the last session, with the same arena.
    #[test]
    fn who_comes_by_an_old_session_leaves_it_alone() {
        let opened = Opened::new("old");
        let (to_thread, go_on) = std::sync::mpsc::channel::<()>();
        let (to_test, is_in) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let opened = &opened;
            let reader = scope.spawn(move || {
                let old = opened.atomic.session().unwrap();
                to_test.send(()).unwrap();
                go_on.recv().unwrap();
                let mut bytes = [0; BLOCK];
                let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
                // SAFETY: a live buffer.
                let read = unsafe { old.read(&opened.atomic.fds, BLOCK as u64, &buf) };
                // SAFETY: as above.
                let written = unsafe { old.write(&opened.atomic.fds, 2 * BLOCK as u64, &buf) };
                [read, written].map(|result| result.unwrap_err().is_session_ended())
            });
            is_in.recv().unwrap();
            opened.atomic.checkpoint().unwrap();
            opened.own(4);
            opened.put_off(1, 10);
            to_thread.send(()).unwrap();
            assert_eq!(reader.join().unwrap(), [true; 2]);
        });
        assert_eq!((opened.read(1), opened.read(2)), (10, 6));
        opened.atomic.sync().unwrap();
        assert_eq!((opened.read(1), opened.read(2)), (10, 6));
    }

    /// A signal handler that interrupted a call of this thread does not enter and leave below it.
    #[test]
    fn a_handler_in_a_call_does_not_carry_it_out() {
        let opened = Opened::new("handler");
        opened.write(1, 10);
        let held = crate::thread::Held::of_file();
        let mut bytes = [0; BLOCK];
        let buf = [UserBuf { base: bytes.as_mut_ptr(), len: BLOCK }];
        // SAFETY: a live buffer.
        let read = unsafe { opened.atomic.read(BLOCK as u64, &buf) };
        assert_eq!((read.unwrap_err().errno(), opened.deferred()), (libc::EDEADLK, Some(1)));
        drop(held);
        assert_eq!(opened.read(1), 10);
    }
}
