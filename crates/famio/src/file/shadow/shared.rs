//! A shadow that all processes share which have the file open: what one stores in its map all see at once, and the turn may
//! change hands while the file is mapped. It lies in `/dev/shm`, named by the file's control file; without room there a shadow is the
//! process's own, and nobody else can use the file meanwhile.
//!
//! While it is there it has the file's bytes as they are now: what is committed, what is open, by whomever, and what was stored
//! in maps and is not taken yet. So whoever reads the file reads the shadow, and who changes it, with the turn, changes both. It
//! goes with the last process.
//!
//! When somebody has died, it goes back to what the file has without the dead one's current tenure. Not if another process may
//! store through a map: whose store a byte is, cannot be told then, and the program that shares memory with one that dies has to
//! cope with that by itself, as on a plain file. All that it holds stays, and is found by the next SYNC.

use super::{ranges, sides};
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::{AtomicFile, PLAIN};
use crate::file::descriptors::shared_memory;
use crate::file::parts::shadow_memory::Shadow;
use crate::file::parts::shadow_pages::{PIECE, check_size, next_data, size_limit};
use crate::file::session::Session;
use crate::index::{KERNELS, STORES};
use crate::rule::{Rule, holds};
use crate::settings::OnKill;
use crate::sys::{read_at, shm, write_at};
use core::sync::atomic::Ordering;
use rustix::time::Timespec;

/// What is left free in `/dev/shm`, in bytes, besides as much again as the file has: for its growth, arenas, and what travels. Without
/// room a store is a SIGBUS; where there is little from the beginning, memory of the process's own is better.
const SPARE: u64 = 64 << 20;
/// Looks at whether the others' maps follow, before that is given up, and how long one sleeps at most between two: 20 seconds.
const LOOKS: u32 = 2000;
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Between two looks at whether what a dead process had is free, and how many there are before one is more patient: its end may
/// take long on a machine that has much to do.
const SOON_LOOKS: u32 = 500;
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };

fn has_room(size: u64) -> bool {
    rustix::fs::statvfs(shm::folder())
        .is_ok_and(|there| there.f_bavail.saturating_mul(there.f_frsize) >= 2 * size + SPARE)
}

/// The shadow has what `read` gives, below `size`: where it differs, it is changed. Somebody may be looking at it.
fn show(shadow: &Shadow, size: u64, read: impl Fn(u64, &mut [u8]) -> Result<()>) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let piece = &mut piece[..PIECE.min((size - at) as usize)];
        piece.fill(0);
        read(at, piece)?;
        let end = at + piece.len() as u64;
        let hole =
            piece.iter().all(|&byte| byte == 0) && next_data(shadow.memory()?, at)?.is_none_or(|data| data >= end);
        // SAFETY: below the shadow's size, which only who has the turn changes; compared by libc, as raw memory.
        let is = |there: *mut u8| unsafe { libc::memcmp(there.cast(), piece.as_ptr().cast(), piece.len()) } == 0;
        if !hole && !is(shadow.at(at, piece.len())?) {
            write_at(shadow.memory()?, at, piece)?;
        }
        at = end;
    }
    Ok(())
}

impl AtomicFile {
    /// Whether the shadow is one that processes share.
    pub(in crate::file) fn has_shared_shadow(&self) -> bool {
        let number = self.turns.door.shadow();
        number.is_some() && self.shadow.get().is_some_and(|shadow| shadow.number() == number)
    }

    /// An empty shadow, which can be shared where there is room for that. By who has the turn.
    pub(super) fn new_shadow(&self, size: u64) -> Result<&Shadow> {
        let made = match self.new_shared(size) {
            Ok(made) => made,
            Err(e) if e.errno() == libc::ENOMEM => return Err(e),
            Err(_) => Shadow::own(size, self.map_limit())?,
        };
        Ok(self.shadow.put(made, &self.shadowed, |_| false))
    }

    /// As [`new_shadow`](Self::new_shadow); of a file that takes too much memory, one that leaves the bytes in the file. The process stays
    /// the owner as long as the file is mapped.
    pub(super) fn new_shadow_or_cow(&self, size: u64) -> Result<&Shadow> {
        match check_size(size, self.map_limit()) {
            Ok(()) if self.map_limit() != 0 => self.new_shadow(size),
            fits => {
                let made = Shadow::cow(size).map_err(|e| fits.err().unwrap_or(e))?;
                Ok(self.shadow.put(made, &self.shadowed, |_| false))
            }
        }
    }

    fn new_shared(&self, size: u64) -> Result<Shadow> {
        check_size(size, self.map_limit())?;
        if crate::pmem::Lab::current().own_shadow || !has_room(size) {
            return Err(Error::new(libc::ENOSPC));
        }
        let door = &self.turns.door;
        let number = door.begin_shadow();
        let memory = shared_memory::make(&self.fds, door, &door.shadow_path(number))?;
        rustix::fs::ftruncate(&memory, size)?;
        let shared = door.shared_size()?;
        shared.word().store(size, Ordering::Release);
        Shadow::shared(memory, shared, number, self.map_limit())
    }

    /// From now on the shadow, which has all bytes, is everybody's. By who has the turn.
    pub(in crate::file) fn share_shadow(&self) {
        let door = &self.turns.door;
        let Some(number) = self.shadow().and_then(Shadow::number) else { return };
        // Not one that went when this process had left the door.
        if door.shadow().is_none() && door.has_begun_shadow(number) {
            door.set_shadow();
            crate::file::base::background_bell::look(); // what is there from now on to be watched
        }
    }

    /// The shadow that processes share, if there is one; else this process's own.
    ///
    /// # Errors
    /// It can't be had: there is no memory or no right.
    pub(in crate::file) fn join_shadow(&self) -> Result<Option<&Shadow>> {
        let door = &self.turns.door;
        while let Some(number) = door.shadow() {
            if let Some(shadow) = self.shadow().filter(|shadow| shadow.number() == Some(number)) {
                return Ok(Some(shadow));
            }
            let joined = shared_memory::open(&self.fds, &door.shadow_path(number))
                .and_then(|memory| Shadow::shared(memory, door.shared_size()?, number, self.map_limit()));
            match joined {
                Ok(made) => {
                    let shadow = self.shadow.put(made, &self.shadowed, |there| there.number() == Some(number));
                    shadow.filled.store(true, Ordering::Release);
                }
                // It went meanwhile.
                Err(_) if door.shadow() != Some(number) => {}
                Err(e) => {
                    let what = "the memory in which other processes have it mapped can't be used";
                    return Err(e.context(format_args!("{}: {what}", self.path.to_string_lossy())));
                }
            }
        }
        Ok(self.shadow())
    }

    /// The size that the shared shadow has.
    pub(in crate::file) fn shared_size(&self) -> Option<u64> {
        self.look_after_dead().and_then(|()| self.join_shadow()).ok().flatten().map(Shadow::size)
    }

    /// By the background: others are about to change the file, and wait until maps of the kernel's file are maps of the shadow.
    /// Whether it is to be looked at again soon.
    pub(in crate::file) fn mind_maps(&self) -> bool {
        if !self.are_maps_waited_for() {
            return false;
        }
        if self.turns.is_mapping() {
            return true; // one is being made
        }
        let state = self.turns.door.state();
        match self.kernels_maps_to_shadow() {
            Ok(()) => self.turns.door.give(),
            // The other one gives up.
            Err(_) => self.turns.leave_to_others(state),
        }
        false
    }

    /// Whether another process waits until maps of the kernel's file are maps of the shadow.
    pub(in crate::file) fn are_maps_waited_for(&self) -> bool {
        let door = &self.turns.door;
        door.has_maps(KERNELS) && door.shadow().is_some() && !self.turns.is_left_to_others(door.state())
    }

    pub(super) fn kernels_maps_to_shadow(&self) -> Result<()> {
        let Some(shadow) = self.join_shadow()? else { return Ok(()) };
        match shadow.cow_maps() {
            Some(cow) => self.make_maps_private(shadow, cow)?,
            None => sides::replace(self.key(), |writable| shadow.descriptor(writable))?,
        }
        self.turns.door.set_maps(KERNELS, false);
        Ok(())
    }

    /// A session has begun, and nobody is in it yet: if other processes map the file, their maps are of a shadow that follows it.
    /// Own maps have theirs by now.
    ///
    /// # Errors
    /// `EBUSY`: another process's maps do not follow, or there is no room.
    pub(in crate::file) fn share_with_maps(&self, session: &Session) -> Result<()> {
        let door = &self.turns.door;
        self.share_shadow();
        if !door.others_map(KERNELS) {
            return Ok(());
        }
        let size = session.arena.shared().size();
        if self.shadow().is_none_or(|shadow| shadow.cow_maps().is_some()) && check_size(size, self.map_limit()).is_err()
        {
            return Ok(()); // they stay maps of the kernel's file, and show what is settled
        }
        if self.shadow().is_none() {
            let shadow = self.new_shadow(size)?;
            self.fill_from(shadow, session)?;
            shadow.filled.store(true, Ordering::Release);
            self.share_shadow();
        }
        for _ in 0..LOOKS {
            let given = door.given();
            if !door.others_map(KERNELS) {
                return Ok(());
            }
            if door.shadow().is_none() {
                break;
            }
            door.wait(given, PATIENCE);
        }
        Err(self.in_use())
    }

    /// For who can't begin a session, and maps what others have written: makes the shadow that all share, of what is committed and
    /// what travels.
    ///
    /// # Errors
    /// `EBUSY`: the turn is not given. `ENOMEM`, `ENOSPC`: there is no room.
    pub(super) fn share_as_reader(&self) -> Result<Option<&Shadow>> {
        let mut inner = self.inner();
        self.take_turn(&mut inner)?;
        let made = (|| {
            if self.join_shadow()?.is_none() {
                let shadow = self.new_shadow(self.kernels_size())?;
                self.refill(shadow)?;
                shadow.filled.store(true, Ordering::Release);
                self.share_shadow();
            }
            Ok(())
        })();
        if self.state.load(Ordering::Acquire) == PLAIN {
            self.release_claim(&mut inner);
        }
        drop(inner);
        made.and_then(|()| self.join_shadow())
    }

    /// With the turn, and without a session: somebody who died may have changed the shadow.
    pub(in crate::file) fn mend_shadow(&self) -> Result<()> {
        let door = &self.turns.door;
        if door.shadow().is_none() || !holds(Rule::MapsAreFilledAnew) {
            return Ok(());
        }
        let Some(shadow) = self.join_shadow()? else { return Ok(()) };
        if door.anybody_stores() {
            door.leave_unknown_stores();
            return Ok(());
        }
        self.refill(shadow)
    }

    /// In a session, under the lock: what somebody stored who died is undone in the shadow, or left to be found.
    pub(in crate::file) fn leave_dead_stores(&self, shadow: &Shadow) -> Result<()> {
        let door = &self.turns.door;
        if door.anybody_stores() || self.settings.on_kill == OnKill::Keep {
            door.leave_unknown_stores();
        } else {
            let size = self.size();
            shadow.resize(size)?;
            // SAFETY: the piece is ours.
            show(shadow, size, |at, piece| unsafe { self.read_file(at, &[UserBuf::of(piece)]) }.map(drop))?;
        }
        door.forget_dead_stores();
        Ok(())
    }

    /// The shadow has what is committed and what travels: where it differs, it is changed. With the turn, and without a session.
    fn refill(&self, shadow: &Shadow) -> Result<()> {
        let epoch = self.turns.travelling(&self.fds)?;
        self.fds.with(false, |fd| {
            let committed = rustix::fs::fstat(fd)?.st_size as u64;
            let size = epoch.size(committed);
            check_size(size, self.map_limit().max(size_limit()))?;
            shadow.resize(size)?;
            show(shadow, size, |at, piece| {
                read_at(fd, at, piece)?;
                epoch.show(at, piece, committed);
                Ok(())
            })
        })
    }

    /// Before this process looks at the shared shadow, or changes what it guards by a lock: what one who died has done to it is
    /// undone.
    #[inline]
    pub(crate) fn look_after_dead(&self) -> Result<()> {
        if self.turns.door.shadow().is_some() && self.turns.door.has_dead() {
            return self.bury_dead();
        }
        Ok(())
    }

    #[cold]
    fn bury_dead(&self) -> Result<()> {
        let door = &self.turns.door;
        Self::may_lock()?;
        self.arrive()?; // who has left the door can't tell who is dead
        for look in 0..LOOKS {
            if !door.has_dead() {
                return Ok(());
            }
            if self.state.load(Ordering::Acquire) != PLAIN {
                self.leave_dead_behind()?; // which may have ended the session
                if self.state.load(Ordering::Acquire) != PLAIN {
                    return if door.has_dead_stores() { self.take_stores() } else { Ok(()) };
                }
            }
            let given = door.given();
            let mut inner = self.inner();
            if inner.claim.is_some() {
                if self.state.load(Ordering::Acquire) == PLAIN {
                    if inner.kept.is_none() {
                        return self.recover_and_roll_back(&mut inner); // the turn goes on between two sessions
                    }
                    drop(inner);
                    self.session_for_write()?;
                }
                continue;
            }
            if self.recover_the_dead(&mut inner)? {
                return Ok(());
            }
            drop(inner);
            // Its claim may not be free yet; or another one has it, who puts that in order.
            door.ring();
            door.wait(given, if look < SOON_LOOKS { SOON } else { PATIENCE });
        }
        Err(self.in_use())
    }

    /// What this process has of maps has changed.
    pub(super) fn tell_of_maps(&self) {
        let door = &self.turns.door;
        // One after the other: what was seen before another thread's change is not to be said after it.
        let telling = self.shadow.telling.lock();
        let kernels = self.turns.is_mapping() || ranges::has(self.key(), |range| !range.shadow);
        let other_kernels = door.has_maps(KERNELS) != kernels;
        if other_kernels {
            door.set_maps(KERNELS, kernels);
        }
        // Stores of maps that are gone are found by who stored them, or by all when it leaves.
        let stores = ranges::has(self.key(), |range| range.shadow && range.stores) || ranges::has_gone(self.key());
        let other_stores = door.has_maps(STORES) != stores;
        if other_stores {
            door.set_maps(STORES, stores);
        }
        drop(telling);
        if other_kernels {
            door.give();
        }
        if other_stores {
            self.be_seen();
        }
    }
}
