//! Acquiring ownership: at once, with an unowned session, or after waiting for the owner.

use super::waiting::Waiting;
use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, Inner};
use crate::file::state::ownership::{LOOKS, PATIENCE};
use crate::index::{MOVED, OwnerLock, SESSION, WriterState};
use crate::settings::OnKill;
use crate::sys::internal::undisturbed;
use crate::sys::{monotonic_now, shm};
use core::sync::atomic::Ordering;

/// Looks whether the owner leaves the session at the end of its call, before ownership is requested.
const MOMENTS: u32 = 10;

impl AtomicFile {
    /// Acquires ownership if this process does not have it, waiting for the owner. Then the file is as last
    /// committed; if a process has died meanwhile, the file is recovered.
    ///
    /// # Errors
    /// `EBUSY`: the owner does not hand over. Those of a recovery.
    pub(in crate::file) fn acquire_ownership(&self, inner: &mut Inner) -> Result<()> {
        self.wait_for_ownership(inner, false).map(drop)
    }

    /// As [`acquire_ownership`](Self::acquire_ownership), or together with a session that another process has left.
    /// Returns whether there is such a session.
    pub(in crate::file) fn acquire_ownership_or_session(&self, inner: &mut Inner) -> Result<bool> {
        // Another process's session in progress saves before-images, for which it may have to end midway.
        self.wait_for_ownership(inner, self.settings.on_kill != OnKill::Keep && self.settings.group.is_none())
    }

    /// Takes over an unowned session, if this process has owned it before. Returns whether it did.
    pub(in crate::file) fn take_unowned(&self, inner: &mut Inner) -> Result<bool> {
        let membership = &self.ownership.membership;
        if inner.left.is_none()
            || inner.owner_lock.is_some()
            || membership.is_without_hand_over()
            || !membership.is_attached()
        {
            return Ok(false);
        }
        if membership.state() & (SESSION | MOVED) != SESSION {
            return Ok(false);
        }
        self.acquire_ownership_or_session(inner)
    }

    fn has_acquired_ownership(&self) {
        let membership = &self.ownership.membership;
        let requests = membership.requests();
        // The last owner has woken one of the waiting processes. The requests of the others now wait for this owner.
        let seen = requests.wrapping_sub(membership.has_live_waiter().into());
        self.ownership.requests_seen.store(seen, Ordering::Relaxed);
        self.ownership.since.store(monotonic_now(), Ordering::Relaxed);
        self.ownership.is_owner.store(true, Ordering::Release);
        if !self.is_wanted.load(Ordering::Acquire) {
            crate::file::base::background_wakeup::start(); // it waits for requests only from now on
        }
    }

    fn wait_for_ownership(&self, inner: &mut Inner, may_take_session: bool) -> Result<bool> {
        if inner.owner_lock.is_some() {
            return Ok(false);
        }
        let membership = &self.ownership.membership;
        self.become_member()?;
        let asked = membership.change_count();
        let is_in_burst = self.ownership.burst.goes_on(monotonic_now());
        let (mut waited, mut moments) = (0, 0);
        let mut waiting = Waiting::new(membership);
        loop {
            let mut count = membership.release_count();
            if self.try_acquire_ownership(inner)? {
                if !membership.has_unowned() {
                    break;
                }
                let taken = if may_take_session { self.take_session_over(inner) } else { self.end_unowned(inner) };
                match taken {
                    Ok(true) if !may_take_session => continue, // the session has ended
                    // A dead member's changes are rolled back before the session is used. If another program has changed
                    // the file, a new session begins with what is there.
                    Ok(true)
                        if self.has_foreign_of(WriterState::Dead)
                            || self.ownership.is_file_changed.load(Ordering::Acquire) =>
                    {
                        self.ownership.is_owner.store(true, Ordering::Release);
                        if let Err(e) = self.end_with_arena(inner) {
                            self.give_up_unless_held(inner);
                            return Err(e);
                        }
                        continue;
                    }
                    Ok(true) => {
                        self.has_acquired_ownership();
                        if is_in_burst && moments > 0 {
                            self.ownership.burst.resume(monotonic_now());
                        }
                        return Ok(true);
                    }
                    Ok(false) if self.is_unowned_session_lost() => break,
                    // A member that can attach to the session has to end it.
                    Ok(false) => {
                        waiting.ask_any(); // whichever member that is
                        membership.ask_for_end();
                        self.give_up(inner, OwnerLock::leave);
                        count = membership.release_count(); // its own release does not end its wait
                    }
                    // It is left as by a killed process: recovery.
                    Err(_) if inner.session.is_none() && inner.unsent.is_none() && !membership.has_unowned() => break,
                    Err(e) => {
                        self.give_up_unless_held(inner);
                        return Err(e);
                    }
                }
            }
            // An owner that changes the file alternately with this process leaves the session at the end of its call.
            if moments < MOMENTS && membership.state() & SESSION != 0 && inner.left.is_some() {
                moments += 1;
                rustix::thread::sched_yield();
                undisturbed::renew();
                continue;
            }
            let look = (waited / PATIENCE.tv_nsec as u64).min(u64::from(LOOKS)) as u32;
            if look == LOOKS || self.ownership.is_refused(asked, look) {
                return Err(self.in_use());
            }
            let begun = monotonic_now();
            waiting.wait(count, |place| inner.left.as_ref().is_some_and(|left| left.is_inside(place)));
            // One that was stopped has not waited meanwhile.
            waited += (monotonic_now() - begun).min(2 * PATIENCE.tv_nsec as u64);
            undisturbed::renew();
        }
        membership.note_end();
        self.has_acquired_ownership();
        self.catch_up(inner)?;
        Ok(false)
    }

    /// Takes the owner lock if it is free. Returns whether it did.
    pub(in crate::file) fn try_acquire_ownership(&self, inner: &mut Inner) -> Result<bool> {
        let control = self.ownership.membership.control().ok_or(Error::new(libc::EBUSY))?;
        inner.owner_lock = OwnerLock::try_take(control)?;
        if inner.owner_lock.is_some() {
            self.ownership.membership.set_owner();
        }
        if inner.owner_lock.is_some() {
            inner.arena = None; // that of an earlier ownership
        }
        Ok(inner.owner_lock.is_some())
    }

    /// If the owner lock is free, its last holder may have died: puts in order what that left. Returns whether the
    /// lock was free. Not called by the owner.
    pub(in crate::file) fn recover_the_dead(&self, inner: &mut Inner) -> Result<bool> {
        let free = self.try_acquire_ownership(inner)?;
        if free && self.ownership.membership.has_unowned() {
            match self.end_unowned(inner) {
                Ok(true) => {}
                Ok(false) if self.is_unowned_session_lost() => self.catch_up(inner)?,
                // It could not end, and goes on here; or other members have to end it.
                _ if inner.session.is_some() || inner.unsent.is_some() || self.ownership.membership.has_unowned() => {
                    self.give_up_unless_held(inner);
                    return Ok(false);
                }
                _ => self.catch_up(inner)?,
            }
            self.release_owner_lock(inner);
            return Ok(true);
        }
        if free {
            self.catch_up(inner)?;
            self.release_owner_lock(inner);
        }
        Ok(free)
    }

    pub(in crate::file) fn in_use(&self) -> Error {
        let owner = self.ownership.membership.control().and_then(|control| control.owner());
        let who = owner.map_or("another process".into(), |owner| owner.to_string());
        let path = self.path.to_string_lossy();
        let group = if self.settings.group.is_some() { "has changes of a group to commit, or " } else { "" };
        let what = "which has demoted or mapped it, or does not run, or";
        let room = format!("whose open epoch has no room in {}", shm::folder());
        Error::with(libc::EBUSY, format!("{path}: in use as an atomic file by {who}, {what} {group}{room}"))
    }
}
