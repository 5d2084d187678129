//! The shadow that all members of a file share: a store in one process's map shows in all of them at once, and
//! ownership may change while the file is mapped. It lies in `/dev/shm`, named by the control page. Without room
//! there, a shadow belongs to one process, and no other process can use the file meanwhile.
//!
//! While it exists, it has the file's present bytes: committed and uncommitted ones of all processes, and stores that
//! were not taken yet. So readers read the shadow, and the owner changes both. It goes with the last member.
//!
//! When a member dies, the shadow goes back to the file without that member's current tenure, unless another process
//! may store through a map. Then it is unknown which process stored a byte: all contents stay, as on a plain file,
//! and the next SYNC finds them. In a group they go nevertheless: what stays would be committed without the dead
//! process's changes of other files.

use super::{ranges, switch_maps};
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::{AtomicFile, PLAIN};
use crate::file::descriptors::shared_memory;
use crate::file::session::Session;
use crate::file::state::shadow_memory::{Shadow, WORDS};
use crate::file::state::shadow_pages::{PIECE, check_size, next_data, size_limit};
use crate::index::{KERNELS, STORES};
use crate::rule::{Rule, holds};
use crate::settings::OnKill;
use crate::sys::internal::undisturbed;
use crate::sys::{read_at, shm, write_at};
use core::sync::atomic::Ordering;
use rustix::time::Timespec;

/// Bytes left free in `/dev/shm`, besides the file's size again: for its growth, arenas and hand-over images. Without
/// room a store would be a SIGBUS; if there is little from the beginning, memory of the process alone is better.
const SPARE: u64 = 64 << 20;
/// Looks whether the maps of other processes have followed, until that is given up, and the longest sleep between
/// two: 20 seconds in all.
const LOOKS: u32 = 2000;
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// A shorter sleep between the first looks whether a dead process's locks are free, and their number: on a busy
/// machine its end may take long.
const SOON_LOOKS: u32 = 500;
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };

fn has_room(size: u64) -> bool {
    rustix::fs::statvfs(shm::folder())
        .is_ok_and(|there| there.f_bavail.saturating_mul(there.f_frsize) >= 2 * size + SPARE)
}

/// Changes the shadow where it differs from what `read` returns, below `size`. Other threads may be reading it.
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
        if !hole && shadow.differing(at, piece)? != [0; WORDS] {
            write_at(shadow.memory()?, at, piece)?;
        }
        at = end;
    }
    Ok(())
}

impl AtomicFile {
    /// Whether the shadow is one that processes share.
    pub(in crate::file) fn has_shared_shadow(&self) -> bool {
        let number = self.ownership.membership.shadow();
        number.is_some() && self.shadow.get().is_some_and(|shadow| shadow.number() == number)
    }

    /// Makes an empty shadow, shared if there is room. Only the owner calls it.
    pub(super) fn new_shadow(&self, size: u64) -> Result<&Shadow> {
        let made = match self.new_shared(size) {
            Ok(made) => made,
            Err(e) if e.errno() == libc::ENOMEM => return Err(e),
            Err(_) => Shadow::own(size, self.map_limit())?,
        };
        Ok(self.shadow.put(made, &self.shadowed, |_| false))
    }

    /// As [`new_shadow`](Self::new_shadow); if the file takes too much memory, makes a shadow that leaves the bytes
    /// in the file. Then the process stays the owner while the file is mapped.
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
        if crate::pmem::TestHooks::current().own_shadow || !has_room(size) {
            return Err(Error::new(libc::ENOSPC));
        }
        let membership = &self.ownership.membership;
        let number = membership.begin_shadow();
        let memory = shared_memory::make(&self.fds, membership, &membership.shadow_path(number))?;
        rustix::fs::ftruncate(&memory, size)?;
        let shared = membership.shared_size()?;
        shared.word().store(size, Ordering::Release);
        Shadow::shared(memory, shared, number, self.map_limit())
    }

    /// The shadow, which has all bytes, is shared with all members from now on. Only the owner calls it.
    pub(in crate::file) fn share_shadow(&self) {
        let membership = &self.ownership.membership;
        let Some(number) = self.shadow().and_then(Shadow::number) else { return };
        // Not a shadow that went when this process was detached.
        if membership.shadow().is_none() && membership.has_begun_shadow(number) {
            membership.set_shadow();
            crate::file::base::background_wakeup::watch_members(); // there is something to watch now
        }
    }

    /// The shared shadow, if there is one; otherwise this process's own.
    ///
    /// # Errors
    /// There is no memory for it, or no permission.
    pub(in crate::file) fn join_shadow(&self) -> Result<Option<&Shadow>> {
        let membership = &self.ownership.membership;
        while let Some(number) = membership.shadow() {
            if let Some(shadow) = self.shadow().filter(|shadow| shadow.number() == Some(number)) {
                return Ok(Some(shadow));
            }
            let joined = shared_memory::open(&self.fds, &membership.shadow_path(number))
                .and_then(|memory| Shadow::shared(memory, membership.shared_size()?, number, self.map_limit()));
            match joined {
                Ok(made) => {
                    let shadow = self.shadow.put(made, &self.shadowed, |there| there.number() == Some(number));
                    shadow.filled.store(true, Ordering::Release);
                }
                // It has gone meanwhile.
                Err(_) if membership.shadow() != Some(number) => {}
                Err(e) => {
                    let what = "the memory in which other processes have it mapped can't be used";
                    return Err(e.context(format_args!("{}: {what}", self.path.to_string_lossy())));
                }
            }
        }
        Ok(self.shadow())
    }

    /// The size of the shared shadow.
    pub(in crate::file) fn shared_size(&self) -> Option<u64> {
        self.look_after_dead().and_then(|()| self.join_shadow()).ok().flatten().map(Shadow::size)
    }

    /// Called by the background: others are about to change the file, and wait until maps of the kernel's file are
    /// maps of the shadow. Returns whether to look again soon.
    pub(in crate::file) fn monitor_maps(&self) -> bool {
        if !self.are_maps_waited_for() {
            return false;
        }
        if self.ownership.has_kernel_map_in_progress() {
            return true; // a map is being made
        }
        let state = self.ownership.membership.state();
        match self.kernels_maps_to_shadow() {
            Ok(()) => self.ownership.membership.announce_change(),
            // The other process gives up.
            Err(_) => self.ownership.cannot_repair(state),
        }
        false
    }

    /// Whether another process waits until maps of the kernel's file are maps of the shadow.
    pub(in crate::file) fn are_maps_waited_for(&self) -> bool {
        let membership = &self.ownership.membership;
        membership.has_maps(KERNELS)
            && membership.shadow().is_some()
            && !self.ownership.is_unrepairable(membership.state())
            && !self.is_demoted()
    }

    pub(super) fn kernels_maps_to_shadow(&self) -> Result<()> {
        if self.is_demoted() {
            return Ok(()); // the shadow shows nothing any more
        }
        let Some(shadow) = self.join_shadow()? else { return Ok(()) };
        match shadow.cow_maps() {
            Some(cow) => self.make_maps_private(shadow, cow)?,
            None => switch_maps::replace(self.key(), |writable| shadow.descriptor(writable))?,
        }
        self.ownership.membership.set_maps(KERNELS, false);
        Ok(())
    }

    /// A session has begun, and no thread is inside yet: if other processes map the file, their maps have to be of a
    /// shadow that follows it. This process's maps are already.
    ///
    /// # Errors
    /// `EBUSY`: another process's maps do not follow, or there is no room.
    pub(in crate::file) fn share_with_maps(&self, session: &Session) -> Result<()> {
        let membership = &self.ownership.membership;
        self.share_shadow();
        if !membership.others_map(KERNELS) {
            return Ok(());
        }
        let size = session.arena.shared().size();
        if self.shadow().is_none_or(|shadow| shadow.cow_maps().is_some()) && check_size(size, self.map_limit()).is_err()
        {
            return Ok(()); // they stay maps of the kernel's file, and show what checkpoints write
        }
        if self.shadow().is_none() {
            let shadow = self.new_shadow(size)?;
            self.fill_from(shadow, session)?;
            shadow.filled.store(true, Ordering::Release);
            self.share_shadow();
        }
        for _ in 0..LOOKS {
            let count = membership.change_count();
            if !membership.others_map(KERNELS) {
                return Ok(());
            }
            if membership.shadow().is_none() {
                break;
            }
            membership.wait_for_change(count, PATIENCE);
            undisturbed::renew();
        }
        Err(self.in_use())
    }

    /// For a process that cannot begin a session and maps what others have written: makes the shared shadow, from the
    /// committed bytes and the hand-over image.
    ///
    /// # Errors
    /// `EBUSY`: the owner does not hand over. `ENOMEM`, `ENOSPC`: there is no room.
    pub(super) fn share_as_reader(&self) -> Result<Option<&Shadow>> {
        let mut inner = self.inner();
        self.acquire_ownership(&mut inner)?;
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
            self.release_owner_lock(&mut inner);
        }
        drop(inner);
        made.and_then(|()| self.join_shadow())
    }

    /// For the owner, without a session: undoes changes of dead processes in the shadow.
    pub(in crate::file) fn mend_shadow(&self) -> Result<()> {
        let membership = &self.ownership.membership;
        if membership.shadow().is_none() || !holds(Rule::MapsAreFilledAnew) {
            return Ok(());
        }
        let Some(shadow) = self.join_shadow()? else { return Ok(()) };
        if membership.anybody_stores() && self.settings.group.is_none() {
            membership.leave_unknown_stores();
            return Ok(());
        }
        self.refill(shadow)
    }

    /// In a session, under the lock: undoes a dead process's stores in the shadow, or leaves them for the next SYNC.
    pub(in crate::file) fn leave_dead_stores(&self, shadow: &Shadow) -> Result<()> {
        let membership = &self.ownership.membership;
        if membership.anybody_stores() || self.settings.on_kill == OnKill::Keep {
            membership.leave_unknown_stores();
        } else {
            let size = self.size();
            shadow.resize(size)?;
            // SAFETY: our piece.
            show(shadow, size, |at, piece| unsafe { self.read_file(at, &[UserBuf::of(piece)]) }.map(drop))?;
        }
        membership.forget_dead_stores();
        Ok(())
    }

    /// Makes the shadow equal to the committed bytes with the hand-over image. For the owner, without a session.
    fn refill(&self, shadow: &Shadow) -> Result<()> {
        let epoch = self.ownership.hand_over_image(&self.fds)?;
        self.fds.with(false, |fd| {
            let committed = rustix::fs::fstat(fd)?.st_size as u64;
            let size = epoch.size(committed);
            check_size(size, self.map_limit().max(size_limit()).max(shadow.size()))?;
            shadow.resize(size)?;
            show(shadow, size, |at, piece| {
                read_at(fd, at, piece)?;
                epoch.show(at, piece, committed);
                Ok(())
            })
        })
    }

    /// Before this process reads the shared shadow, or changes what is guarded by its lock: undoes what a dead
    /// process has done to it.
    #[inline]
    pub(crate) fn look_after_dead(&self) -> Result<()> {
        if self.ownership.membership.shadow().is_some() && self.ownership.membership.has_dead() {
            return self.reap_dead_mappers();
        }
        Ok(())
    }

    #[cold]
    fn reap_dead_mappers(&self) -> Result<()> {
        let membership = &self.ownership.membership;
        Self::may_lock()?;
        self.become_member()?; // a detached process cannot tell which members are dead
        for look in 0..LOOKS {
            if !membership.has_dead() {
                return Ok(());
            }
            if self.state.load(Ordering::Acquire) != PLAIN {
                self.roll_back_dead()?; // this may have ended the session
                if self.state.load(Ordering::Acquire) != PLAIN {
                    return if membership.has_dead_stores() { self.take_stores() } else { Ok(()) };
                }
            }
            let count = membership.change_count();
            let mut inner = self.inner();
            if inner.owner_lock.is_some() {
                if self.state.load(Ordering::Acquire) == PLAIN {
                    if inner.unsent.is_none() {
                        return self.recover_and_roll_back(&mut inner); // ownership stays, between two sessions
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
            // The dead process's owner lock may not be free yet; or another process has it, and puts that in order.
            membership.request_ownership_of_any();
            membership.wait_for_change(count, if look < SOON_LOOKS { SOON } else { PATIENCE });
            undisturbed::renew();
        }
        Err(self.in_use())
    }

    /// Publishes on the control page which kinds of maps this process has: they have changed.
    pub(super) fn publish_maps(&self) {
        let membership = &self.ownership.membership;
        // One thread at a time: an older state must not be published after a newer one.
        let publishing = self.shadow.publishing.lock();
        let kernels = self.ownership.has_kernel_map_in_progress() || ranges::has(self.key(), |range| !range.shadow);
        let other_kernels = membership.has_maps(KERNELS) != kernels;
        if other_kernels {
            membership.set_maps(KERNELS, kernels);
        }
        // Stores of maps that are gone are found by the process that stored them, or by all when it detaches.
        let stores = ranges::has(self.key(), |range| range.shadow && range.changes()) || ranges::has_gone(self.key());
        let other_stores = membership.has_maps(STORES) != stores;
        if other_stores {
            membership.set_maps(STORES, stores);
        }
        drop(publishing);
        if other_kernels {
            membership.announce_change();
        }
        if other_stores {
            self.register_for_death_notice();
        }
    }
}
