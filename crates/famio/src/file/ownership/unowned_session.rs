//! A session's part of a hand-over: what its owner puts into the arena as it leaves, and what the next owner takes from
//! there.

use crate::error::{Error, Result};
use crate::file::engine::context::{Context, Words, restore_times};
use crate::file::session::Session;
use crate::file::session::closed_gate::ClosedGate;
use crate::file::state::hand_over_image::MOST;
use crate::index::{Exact, LONG, SHORT, SLOTS, Stuck, follow_up, images, lease};
use core::sync::atomic::Ordering;

/// Words for which the first hand-over makes room.
const ROOM: usize = 1024;

impl Session {
    /// Leaves the session to its next owner, in whatever process. False: that is impossible now, and the session goes
    /// on. `exact`: the epoch that the file has, which has to be all that there is; the next owner finds that noted.
    ///
    /// # Errors
    /// `EIO`: a flush failed earlier. `EDEADLK`: a writer is stuck.
    pub(super) fn leave_unowned(&self, fds: &crate::file::Descriptors, exact: Option<u64>) -> Result<bool> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let _closed = self.close_gate(fds)?;
        self.check(cx)?;
        let is_open = shared.dirty.load(Ordering::Acquire) != 0;
        if shared.lease.load(Ordering::Acquire) == lease::HELD
            || is_open && shared.images.load(Ordering::Acquire) != images::ALL
            // A larger epoch would not fit into a hand-over image if one of its writers is killed.
            || is_open && shared.counts.sums().bytes > MOST
        {
            return Ok(false);
        }
        let exact = match exact {
            None => None,
            Some(committed) => match self.exact(cx, committed)? {
                None => return Ok(false),
                exact => exact,
            },
        };
        let mut words = self.home.state().to_vec();
        if !self.engine.leave_state(cx, &mut words)? {
            return Ok(false);
        }
        let left = self.leave_words(&words);
        // Last: the words themselves may have found no room.
        if left.is_err() || !self.arena.can_be_attached() {
            let mut words = Words(&words);
            let _home: [u64; 4] = words.next()?;
            self.engine.take_state(cx, &mut words)?;
            return left.map(|()| false);
        }
        self.may_be_exclusive.store(false, Ordering::Release);
        shared.gate.grant(self.me, false);
        // From here on its writers may be killed while others go on.
        shared.follow_up.fetch_or(if is_open { follow_up::OTHERS } else { 0 }, Ordering::AcqRel);
        if !is_open {
            shared.images.store(images::ALL, Ordering::Release);
        }
        shared.has_left.store(1, Ordering::Release);
        if let Some(exact) = exact {
            shared.set_exact_file(exact, shared.generation.load(Ordering::Acquire) + 1);
        }
        self.arena.leave();
        // A call that enters now sees that the session is not this process's any more.
        shared.generation.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }

    /// The file, if it is exactly what epoch `committed` has left, and nothing has come since. The gate is closed.
    fn exact(&self, cx: Context<'_>, committed: u64) -> Result<Option<Exact>> {
        let shared = cx.shared();
        let size = shared.size();
        if shared.committed() != committed
            || shared.dirty.load(Ordering::Acquire) != 0
            || shared.committed_size.load(Ordering::Acquire) != size
            || self.engine.is_waiting(cx)
        {
            return Ok(None);
        }
        cx.fds.with(true, |fd| {
            let stat = rustix::fs::fstat(fd)?;
            let expected = size.max(cx.home.preallocated()).next_multiple_of(stat.st_blksize.max(512) as u64);
            if stat.st_size as u64 == size && stat.st_blocks as u64 * 512 > expected {
                // Frees reserved room: the session's end changes nothing any more.
                shared.physical_next.store(size, Ordering::Release);
                rustix::fs::ftruncate(fd, size)?;
                cx.home.forget_reserved(size);
                cx.home.preallocate_again(fd, size);
            }
            restore_times(shared, fd); // other programs see them from now on
            let stat = rustix::fs::fstat(fd)?;
            // Of whole seconds, one may have two changes.
            Ok((stat.st_size as u64 == size && stat.st_ctime_nsec != 0).then(|| Exact::of(&stat)))
        })
    }

    fn leave_words(&self, words: &[u64]) -> Result<()> {
        let shared = self.arena.shared();
        if shared.left_room.load(Ordering::Acquire) < words.len() as u64 {
            let room = words.len().next_power_of_two().max(ROOM);
            shared.left.store(self.arena.allocate(room * 8)?, Ordering::Release);
            shared.left_room.store(room as u64, Ordering::Release);
        }
        let to = self.arena.bytes(shared.left.load(Ordering::Acquire), words.len() * 8).ok_or(Error::new(libc::EIO))?;
        // SAFETY: in the arena's mapping, for this owner alone; aligned, as all that the arena hands out.
        unsafe { to.cast::<u64>().copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        shared.left_words.store(words.len() as u64, Ordering::Release);
        Ok(())
    }

    fn left_words(&self) -> Result<Vec<u64>> {
        let shared = self.arena.shared();
        let damaged = || Error::with(libc::EIO, "the shared index is damaged: the state that the last owner left");
        let count = shared.left_words.load(Ordering::Acquire).min(shared.left_room.load(Ordering::Acquire)) as usize;
        let len = count.checked_mul(8).ok_or_else(damaged)?;
        let from = self.arena.bytes(shared.left.load(Ordering::Acquire), len).ok_or_else(damaged)?;
        let mut words = vec![0; count];
        // SAFETY: in the arena's mapping; only an owner changes it, and this process is the owner.
        unsafe { words.as_mut_ptr().copy_from_nonoverlapping(from.cast::<u64>(), count) };
        Ok(words)
    }

    /// Closes the gate. Does not wait for processes that were killed while they entered a session that was not theirs
    /// any more.
    pub(in crate::file) fn close_gate_past_dead(&self) -> Result<ClosedGate<'_>> {
        let shared = self.arena.shared();
        let closed = match shared.gate.close(self.me, &shared.entered, &SHORT) {
            Err(Stuck) => {
                self.remove_dead_from_gate();
                shared.gate.close(self.me, &shared.entered, &LONG)?
            }
            Ok(closed) => closed,
        };
        Ok(ClosedGate::new(shared, closed))
    }

    /// Whether a thread of the process in that slot is inside.
    pub(in crate::file) fn is_inside(&self, place: u32) -> bool {
        let shared = self.arena.shared();
        shared.gate.is_held_by(place, &shared.entered)
    }

    /// Removes killed processes from the gate.
    pub(in crate::file) fn remove_dead_from_gate(&self) {
        let shared = self.arena.shared();
        for place in 0..SLOTS as u32 {
            if place != self.me && shared.gate.is_held_by(place, &shared.entered) && !self.imaging.is_there(place) {
                shared.gate.remove_dead(place, &shared.entered);
                shared.leave_now(); // its last change is ours
            }
        }
    }

    /// Another program has changed the file since everything committed was in it: what is there is the file from now on.
    /// The gate is closed.
    pub(super) fn take_file_as_it_is(&self, fds: &crate::file::Descriptors) -> Result<()> {
        let shared = self.arena.shared();
        let size = fds.stat()?.st_size as u64;
        // Not `physical`: after a kill, recovery has to see that another program has changed the file.
        shared.size.store(size, Ordering::Release);
        shared.committed_size.store(size, Ordering::Release);
        shared.modified.iter().for_each(|word| word.store(0, Ordering::Release)); // its time stays, too
        Ok(())
    }

    /// Continues where the last owner has left the session. This process has the owner lock. No thread enters until
    /// the result is dropped.
    pub(super) fn take_over(&self, fds: &crate::file::Descriptors) -> Result<ClosedGate<'_>> {
        let shared = self.arena.shared();
        let closed = self.close_gate_past_dead()?;
        self.may_be_exclusive.store(false, Ordering::Release);
        shared.forget_exact_file();
        let generation = shared.generation.fetch_add(1, Ordering::AcqRel) + 1;
        self.generation.store(generation, Ordering::Release);
        let words = self.left_words()?;
        let mut words = Words(&words);
        self.home.set_state(shared, fds, words.next()?)?;
        self.engine.take_state(self.context(fds), &mut words)?;
        shared.gate.begin_owner();
        Ok(closed)
    }
}
