//! The checkpoint: committed granules are written from the buffers to the file, through the page cache. One
//! `fdatasync` of the file ends a pass, after which the journal up to the beginning of the pass can be reused.

use super::Records;
use super::checkpointing::{BlocksToRelog, Checkpointing, WRITERS_HELP_FROM};
use super::state::State;
use crate::error::{Error, Result};
use crate::file::base::quiet::is_quiet;
use crate::file::engine::context::{Context, restore_times};
use crate::index::BLOCK;
use crate::pmem::TestHooks;
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;
use rustix::thread::nanosleep;
use rustix::time::Timespec;

/// Blocks per round.
const ROUND: usize = 64;

impl Records {
    /// A commit of `blocks` is durable. Returns the epoch up to which the journal can be released.
    pub(super) fn note_commit(&self, cx: Context<'_>, blocks: &mut Vec<u64>) -> Option<u64> {
        let mut checkpointing = self.checkpointing.lock(cx);
        checkpointing.waiting.append(blocks);
        checkpointing.overwritten = false;
        checkpointing.finished.take()
    }

    /// One round: some blocks of a pass. Returns whether anything was done; does nothing while another thread is at
    /// it.
    pub(super) fn checkpoint_round(&self, cx: Context<'_>) -> Result<bool> {
        let used = cx.shared().used.load(Ordering::Relaxed) * BLOCK as u64;
        let may_wait = used < WRITERS_HELP_FROM / 2 && cx.shared().totals.is_held();
        self.checkpointing.try_lock(cx).map_or(Ok(false), |mut checkpointing| {
            if may_wait && !checkpointing.under_way { Ok(false) } else { self.round(cx, &mut checkpointing, false) }
        })
    }

    /// Committed granules above the open epoch's cut must not be written after it, and it is not committed.
    pub(super) fn waits_for_cut(&self, cx: Context<'_>) -> bool {
        self.is_cut(cx) && holds(Rule::CheckpointWaitsForCut)
    }

    /// `everything`: including what a write cache would keep.
    pub(super) fn round(&self, cx: Context<'_>, checkpointing: &mut Checkpointing, everything: bool) -> Result<bool> {
        if self.waits_for_cut(cx) {
            return Ok(false);
        }
        // Also in the middle of a pass: a cut may have been committed since it began, and the file must be cut before
        // anything is written above.
        if holds(Rule::PassCutsFirst) {
            checkpointing.was_cut |= self.apply_cut(cx)?;
        }
        self.begin_pass(cx, checkpointing, everything);
        if checkpointing.queue.is_empty() {
            return Ok(false);
        }
        let mut left = TestHooks::current().blocks_a_round.unwrap_or(ROUND);
        let whole = left;
        // A SYNC, or a process that is to own the session, does not wait for the rest of a round.
        while left > 0 && !checkpointing.queue.is_empty() && (left == whole || !cx.shared().gate.is_closing()) {
            // A block that could not be written stays: a pass without it would release its journal.
            let queue = core::mem::take(&mut checkpointing.queue);
            let next = queue.iter().rev().copied().take(left);
            let done = self.checkpoint_run(cx, next, checkpointing, false);
            checkpointing.queue = queue;
            let done = done?;
            checkpointing.queue.truncate(checkpointing.queue.len() - done);
            left -= done;
        }
        Ok(true)
    }

    /// The journal is full: writes everything that is committed to the file, to free all of it. Returns whether there
    /// was any. The caller holds no block lock.
    pub(super) fn make_room(&self, cx: Context<'_>) -> Result<bool> {
        // The rest of the journal's last segment may be all that it has.
        let had_early = self.has_early.load(Ordering::Relaxed);
        self.settle_early(cx)?;
        let any = self.checkpoint_what_can_be(cx)? || had_early;
        Ok(self.force(cx)? || any)
    }

    /// The same, except for what the open epoch has overwritten.
    pub(super) fn checkpoint_what_can_be(&self, cx: Context<'_>) -> Result<bool> {
        let mut any = self.wait_for_others_flush(cx);
        // A pass may have been under way; later blocks take another one. Blocks that others are writing are left to
        // them.
        for _ in 0..2 {
            while self.round(cx, &mut self.checkpointing.lock(cx), true)? {}
            any |= self.end_pass(cx)? || self.wait_for_others_flush(cx);
        }
        Ok(any)
    }

    /// Waits for a pass whose blocks another thread has written and is making durable. Returns whether there was one:
    /// it may have freed space.
    pub(super) fn wait_for_others_flush(&self, cx: Context<'_>) -> bool {
        const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };
        let flushes = {
            let checkpointing = self.checkpointing.lock(cx);
            if !checkpointing.flushing {
                return false;
            }
            checkpointing.flushes
        };
        while self.checkpointing.lock(cx).flushes == flushes {
            let _ = nanosleep(&REST);
        }
        true
    }

    pub(super) fn begin_pass(&self, cx: Context<'_>, checkpointing: &mut Checkpointing, everything: bool) {
        if checkpointing.under_way || (checkpointing.waiting.is_empty() && !checkpointing.was_cut) {
            return;
        }
        let buffers = cx.shared().used.load(Ordering::Relaxed) * BLOCK as u64;
        // In a quiet moment everything is: no commit would log it again. So is what the pool needs for others.
        let everything = everything || is_quiet(cx.shared()) || self.live.limit().must_return() > 0;
        let fits = self.tier.as_ref().is_some_and(|tier| tier.has_room_for_all(buffers)) && !checkpointing.must_flush();
        if checkpointing.again.is_some() && fits && !everything {
            return; // the commits are at it
        }
        self.set_blocks_to_relog(checkpointing, None);
        let log = self.log.lock(cx);
        let target = self.tier.as_ref().filter(|_| !everything).and_then(|tier| tier.target(&log, buffers));
        let committed = log.committed();
        drop(log);
        if !holds(Rule::OverwrittenStays) {
            checkpointing.overwritten = false;
        }
        checkpointing.skipped = false;
        if let Some(target) = target.filter(|_| fits) {
            // Everything in use fits: what the journal has to give up is logged again at its end, instead of written to
            // the disk.
            let blocks = checkpointing.waiting.all().to_vec();
            self.set_blocks_to_relog(checkpointing, Some(BlocksToRelog { blocks, target }));
            return;
        }
        checkpointing.left_some = checkpointing.overwritten;
        (checkpointing.target, checkpointing.whole) = (target.unwrap_or(committed), target.is_none());
        checkpointing.queue = checkpointing.waiting.take();
        checkpointing.queue.reverse(); // taken from the end: in file order
        if target.is_some() {
            self.keep_later(cx, checkpointing, committed);
        }
        self.taken_up.store(self.appended.load(Ordering::Relaxed), Ordering::Relaxed);
        if target.is_some() && checkpointing.queue.is_empty() && !checkpointing.must_flush() {
            self.may_release(cx, checkpointing); // all of it was written again since
            return;
        }
        checkpointing.was_cut = false;
        checkpointing.unflushed = false;
        checkpointing.under_way = true;
    }

    /// Keeps those blocks of a pass in the write cache that need no epoch up to its target.
    fn keep_later(&self, cx: Context<'_>, checkpointing: &mut Checkpointing, committed: u64) {
        let (mut queue, mut waiting) = (Vec::new(), Vec::new());
        for &block in &checkpointing.queue {
            let Some(cell) = cx.index().lookup(block) else { continue };
            // Without its lock: a writer at the block makes it needed later, and lists it with its epoch.
            let state = State::of(cell, cx.shared().committed());
            if state.buffer.is_none() {
                continue;
            }
            // The open epoch has overwritten all committed granules of it, and may not be committed.
            checkpointing.overwritten |= state.since > committed && holds(Rule::OverwrittenWholeWaits);
            if state.since > checkpointing.target { waiting.push(block) } else { queue.push(block) }
        }
        checkpointing.queue = queue;
        checkpointing.waiting = waiting.into();
    }

    /// The pass has done its work, durably: the journal up to its target can be reused, now or after the next commit.
    fn may_release(&self, cx: Context<'_>, checkpointing: &mut Checkpointing) {
        if checkpointing.skipped {
            // The pass that takes up the waiting blocks releases more.
        } else if checkpointing.overwritten && holds(Rule::OverwrittenWaits) {
            checkpointing.finished = Some(checkpointing.target);
        } else {
            if checkpointing.whole && !checkpointing.left_some {
                self.in_file.fetch_max(checkpointing.target, Ordering::AcqRel);
            }
            self.release(cx, checkpointing.target);
        }
    }

    /// Everything up to `epoch` is durable in the file.
    pub(super) fn release(&self, cx: Context<'_>, epoch: u64) {
        self.released.store(self.taken_up.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut log = self.log.lock(cx);
        log.release(epoch);
        if let Some(tier) = &self.tier {
            tier.note(&log);
        }
    }

    /// Cuts the file by a committed cut before anything is stored above it. Returns whether there was one.
    pub(super) fn apply_cut(&self, cx: Context<'_>) -> Result<bool> {
        let shared = cx.shared();
        let low = shared.file_end.load(Ordering::Acquire);
        if low == u64::MAX {
            return Ok(false);
        }
        self.cut_file(cx, low)?;
        self.committed_cut.store(u64::MAX, Ordering::Relaxed);
        // A new cut may have come since: it stays.
        let _ = shared.file_end.compare_exchange(low, u64::MAX, Ordering::AcqRel, Ordering::Relaxed);
        Ok(true)
    }

    /// Cuts the file to `low`, if it is longer.
    pub(super) fn cut_file(&self, cx: Context<'_>, low: u64) -> Result<()> {
        let shared = cx.shared();
        if low < shared.physical.load(Ordering::Acquire) {
            shared.physical_next.store(low, Ordering::Release);
            cx.fds.with(true, |fd| {
                self.medium.ftruncate(fd, low)?;
                cx.home.preallocate_again(fd, low); // space that the program has preallocated since
                Ok(())
            })?;
            shared.physical.store(low, Ordering::Release);
        }
        let top = cx.home.forget_reserved(shared.physical.load(Ordering::Acquire));
        self.reserve_waiting(cx, low, top)
    }

    /// The file was cut at `low`, which freed the room reserved above. Blocks written there since have been promised
    /// room: reserves it again. After an error the cut has to be repeated.
    fn reserve_waiting(&self, cx: Context<'_>, low: u64, top: u64) -> Result<()> {
        cx.index().for_each(low / BLOCK as u64, top / BLOCK as u64, |block, cell| {
            // A writer at the block has reserved for it, before the cut or after.
            let _locked = cx.lock(cell)?;
            let start = block * BLOCK as u64;
            match State::of(cell, cx.shared().committed()).buffer {
                Some(_) => cx.home.reserve_again(cx.fds, start, start + BLOCK as u64),
                None => Ok(()),
            }
        })
    }

    /// Ends a pass whose blocks are all written: one `fdatasync` of the file, with no lock held and outside the gate.
    /// Then the journal up to the pass's beginning can go. Returns whether there was a pass to end.
    pub(super) fn end_pass(&self, cx: Context<'_>) -> Result<bool> {
        {
            let mut checkpointing = self.checkpointing.lock(cx);
            if !checkpointing.under_way || checkpointing.flushing || !checkpointing.queue.is_empty() {
                return Ok(false);
            }
            if cx.shared().poisoned.load(Ordering::Acquire) != 0 {
                // The kernel reports a failure once: another flush would succeed in spite of the loss.
                return Err(Error::with(libc::EIO, "an earlier flush failed: there are no more checkpoints"));
            }
            checkpointing.flushing = true;
            if !holds(Rule::PassFlushesBeforeTail) {
                self.may_release(cx, &mut checkpointing);
            }
        }
        let flushed = cx.fds.with_lasting(|fd| {
            restore_times(cx.shared(), fd); // other programs see these, and the pass's writes have changed them
            self.medium.fdatasync(fd)
        });
        let mut checkpointing = self.checkpointing.lock(cx);
        checkpointing.flushing = false;
        checkpointing.flushes += 1;
        flushed.map_err(|e| self.flush_failed(cx, &e))?;
        checkpointing.under_way = false;
        self.may_release(cx, &mut checkpointing);
        Ok(true)
    }

    /// The kernel may have dropped what it failed to write; the journal still has it, and keeps it.
    pub(super) fn flush_failed(&self, cx: Context<'_>, e: &Error) -> Error {
        cx.shared().poisoned.store(1, Ordering::Release);
        self.live.suspect();
        Error::with(libc::EIO, format!("a checkpoint failed ({e}): no more writes are taken"))
    }

    /// Writes everything to the file; the gate is closed and the epoch committed. The caller makes the file durable.
    pub(super) fn checkpoint_all(&self, cx: Context<'_>) -> Result<()> {
        let mut checkpointing = self.checkpointing.lock(cx);
        checkpointing.unflushed = true;
        self.apply_cut(cx)?;
        let mut blocks = core::mem::take(&mut checkpointing.queue);
        blocks.append(&mut checkpointing.waiting.take());
        blocks.sort_unstable();
        blocks.dedup();
        let mut done = 0;
        while done < blocks.len() {
            match self.checkpoint_run(cx, blocks[done..].iter().copied(), &mut checkpointing, true) {
                Ok(more) => done += more,
                Err(e) => {
                    // The file stays attached: the rest still has to be written to it, so the journal is needed.
                    checkpointing.waiting = blocks.split_off(done).into();
                    checkpointing.skipped = true;
                    return Err(e);
                }
            }
        }
        checkpointing.under_way = false;
        debug_assert_eq!(cx.shared().used.load(Ordering::Relaxed), 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Settings;
    use crate::error::Result;
    use crate::file::{Access, AtomicFile, UserBuf};
    use crate::journal::testing::{KERNEL, kernels_calls, kernels_memory};
    use crate::pmem::{Medium, TestHooks};
    use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

    /// The next flush fails, and later ones succeed: as the kernel reports a failure.
    static FAILS: AtomicBool = AtomicBool::new(false);

    struct Failing;

    // SAFETY: as the kernel's.
    unsafe impl Medium for Failing {
        kernels_memory!();
        kernels_calls!(fence pwritev fsync ftruncate);
        fn fdatasync(&self, fd: BorrowedFd<'_>) -> Result<()> {
            if FAILS.swap(false, Ordering::SeqCst) { Err(crate::Error::new(libc::EIO)) } else { KERNEL.fdatasync(fd) }
        }
    }

    /// Calls that write a file of the test, and the bytes of them all.
    static WRITES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

    struct Counting;

    // SAFETY: as the kernel's.
    unsafe impl Medium for Counting {
        kernels_memory!();
        kernels_calls!(fence fdatasync fsync ftruncate);
        fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> Result<()> {
            let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
            for (count, more) in WRITES.iter().zip([1, bytes as u64]) {
                count.fetch_add(more, Ordering::SeqCst);
            }
            KERNEL.pwritev(fd, bufs, offset)
        }
    }

    #[test]
    fn blocks_that_follow_each_other_are_written_by_one_call() {
        let folder = format!("checkpoint-runs-{}", std::process::id());
        std::fs::create_dir(&folder).unwrap();
        let path = format!("{folder}/file");
        let mut expected: Vec<u8> = (0..400 << 10).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &expected).unwrap();
        expected.resize(412 << 10, 0);
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let name = std::ffi::CString::new(path.clone()).unwrap();
        TestHooks { medium: Some(&Counting), still: true, ..TestHooks::default() }.enter();
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
        let write = |at: usize, bytes: &mut [u8]| {
            // SAFETY: the test's memory.
            unsafe { atomic.write(at as u64, &[UserBuf::of(bytes)]) }.unwrap();
        };
        let mut put = |at: usize, len: usize| {
            let mut bytes: Vec<u8> = (0..len).map(|i| (i * 7 + at) as u8 | 1).collect();
            write(at, &mut bytes);
            expected[at..at + len].copy_from_slice(&bytes);
        };
        put(0, 80 << 10); // two runs
        put(100 << 10, 9000); // two whole blocks, and a part of a third
        put(200 << 10, 4096);
        put(300 << 10, 64);
        // What lies between them comes from the file.
        for (block, granule) in [(80, 1), (80, 5), (80, 40), (81, 3), (90, 1), (90, 10)] {
            put(block * 4096 + granule * 64, 64);
        }
        // One by one: a kill within a write that makes the file longer would leave a size that nobody has set.
        put(400 << 10, 3 * 4096);
        atomic.sync().unwrap();
        write(90 * 4096 + 5 * 64, &mut [0; 64]); // uncommitted: its neighbours are written without it
        WRITES.iter().for_each(|count| count.store(0, Ordering::SeqCst));
        atomic.with_session(|session| {
            let cx = session.context(&atomic.fds);
            let closed = &cx.shared().gate.closed;
            closed.store(62, Ordering::SeqCst); // a thread waits for those inside
            assert!(session.engine.checkpoint_some(cx).unwrap());
            closed.store(0, Ordering::SeqCst);
            assert_eq!(WRITES[0].load(Ordering::SeqCst), 1);
            while session.engine.checkpoint_some(cx).unwrap() {}
        });
        let writes = WRITES.each_ref().map(|count| count.load(Ordering::SeqCst));
        let now = std::fs::read(&path).unwrap();
        atomic.remove_descriptor(file.as_raw_fd()).unwrap();
        TestHooks::default().enter();
        std::fs::remove_dir_all(&folder).unwrap();
        let bytes = (80 << 10) + 9000_u64.next_multiple_of(64) + 4096 + 64 + (64 - 1 + 4) * 64 + 2 * 64 + 3 * 4096;
        assert_eq!(writes, [5 + 1 + 2 + 3, bytes]);
        assert!(now == expected);
    }

    /// A thread that waited for room once tried again, and the journal dropped records that may not be in the file.
    #[test]
    fn a_flush_that_failed_is_not_tried_again() {
        let folder = format!("checkpoint-flush-{}", std::process::id());
        std::fs::create_dir(&folder).unwrap();
        let path = format!("{folder}/file");
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let name = std::ffi::CString::new(path.clone()).unwrap();
        TestHooks { medium: Some(&Failing), still: true, ..TestHooks::default() }.enter();
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
        // SAFETY: the test's memory.
        unsafe { atomic.write(0, &[UserBuf::of(&mut [1; 10_000])]) }.unwrap();
        atomic.sync().unwrap();
        let rounds = atomic.with_session(|session| {
            let cx = session.context(&atomic.fds);
            while session.engine.checkpoint_some(cx).unwrap() {}
            FAILS.store(true, Ordering::SeqCst);
            [session.engine.finish_checkpoint(cx), session.engine.finish_checkpoint(cx)]
        });
        FAILS.store(false, Ordering::SeqCst);
        let errors = rounds.unwrap().map(|round| round.err().map(|error| error.errno()));
        let _ = atomic.remove_descriptor(file.as_raw_fd()); // it fails as well
        TestHooks::default().enter();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(errors, [Some(libc::EIO); 2]);
    }
}
