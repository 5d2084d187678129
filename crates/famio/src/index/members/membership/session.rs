//! What the control page says of the session: whether there is one, who owns it, and where its arena is.

use super::Membership;
use crate::error::Result;
use crate::index::members::control::Owner;
use crate::index::members::control_page::{CHANGE, END_WANTED, HAS_OWNED, SESSION, UNOWNED};
use crate::sys::InternalFd;
use core::sync::atomic::Ordering;
use rustix::fs::{CWD, Mode, OFlags};

impl Membership {
    /// The number of the session's arena; 0: there is none yet.
    #[inline]
    pub fn arena(&self) -> u64 {
        self.page().arena.load(Ordering::Acquire)
    }

    /// Opens an arena for reading.
    pub fn open_arena(&self, number: u64) -> Result<InternalFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(crate::sys::openat(CWD, &*self.path(number, "arena"), flags, Mode::empty())?)
    }

    /// Opens an arena for an owner.
    pub fn open_arena_to_own(&self, number: u64) -> Result<InternalFd> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(crate::sys::internal::open(CWD, &*self.path(number, "arena"), flags, Mode::empty())?)
    }

    /// Records this process as the owner: for messages, and so that its slot stays its own if it is killed.
    pub fn set_owner(&self) {
        self.page().members[self.place() as usize].roles.fetch_or(HAS_OWNED, Ordering::AcqRel);
        self.page().owner.store(Owner::me().word(), Ordering::Relaxed);
    }

    /// Whether this process has been the owner, so that something uncommitted may be its own.
    #[inline]
    pub fn has_owned(&self) -> bool {
        self.has_attached() && self.own_slot().roles.load(Ordering::Acquire) & HAS_OWNED != 0
    }

    /// Whether all processes of the last session were killed, so that no member has their uncommitted changes.
    pub fn were_all_killed(&self) -> bool {
        self.page().all_killed.load(Ordering::Acquire) != 0
    }

    /// This process cannot attach to the sessions of others: from now on a session ends when the owner changes.
    pub fn set_no_hand_over(&self) {
        self.page().no_hand_over.store(1, Ordering::Release);
    }

    /// This process waits but cannot own the session: its owner is to end it instead of handing it over.
    pub fn ask_for_end(&self) {
        let _ = self.page().no_hand_over.compare_exchange(0, END_WANTED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The session that a process waited for has ended, or there is none.
    pub fn note_end(&self) {
        let _ = self.page().no_hand_over.compare_exchange(END_WANTED, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether the session is to end instead of being handed over (see [`set_no_hand_over`](Self::set_no_hand_over),
    /// [`ask_for_end`](Self::ask_for_end)).
    pub fn is_without_hand_over(&self) -> bool {
        self.page().no_hand_over.load(Ordering::Acquire) != 0
    }

    /// Sets whether another process reads along in the session.
    pub fn set_read_along(&self, is: bool) {
        self.page().read_along.store(is.into(), Ordering::Release);
    }

    /// Whether a process reads along, or did since ownership was acquired.
    #[inline]
    pub fn is_read_along(&self) -> bool {
        self.page().read_along.load(Ordering::Acquire) != 0
    }

    /// Records that this process has a session, or no longer has it. Only the owner calls it.
    pub fn set_session(&self, there: bool) {
        let holder = if there { self.place.load(Ordering::Acquire) + 1 } else { 0 };
        self.page().holder.store(holder, Ordering::Release);
        self.page().all_killed.store(0, Ordering::Release);
        self.change(SESSION | UNOWNED, if there { SESSION } else { 0 });
        self.announce_change(); // watchers are to watch this process, readers to look again
    }

    /// Announces that this process, which alone has the growing file open, begins a session; or that it has begun.
    pub fn set_grows_no_more(&self, is: bool) {
        self.page().grows_no_more.store(is.into(), Ordering::SeqCst);
    }

    /// The session goes on without an owner (`is`), or this process owns it again. Members that read along in it go
    /// on.
    pub fn set_unowned(&self, is: bool) {
        let holder = &self.page().holder;
        // A session that is not unowned has a holder at every moment at which this process may be killed.
        if !is {
            holder.store(self.place.load(Ordering::Acquire) + 1, Ordering::Release);
        }
        self.change(SESSION | UNOWNED, if is { SESSION | UNOWNED } else { SESSION });
        if is {
            holder.store(0, Ordering::Release);
        }
    }

    /// The place of the session's owner, if it lives as far as is known.
    pub fn living_owner(&self) -> Option<u32> {
        let (place, life) = self.holding().filter(|_| !self.has_unowned())?;
        (!life.is_over()).then_some(place as u32)
    }

    /// Whether there is a session without an owner.
    pub fn has_unowned(&self) -> bool {
        self.state() & (SESSION | UNOWNED) == SESSION | UNOWNED
    }

    pub(super) fn change(&self, bits: u64, to: u64) {
        let next = self.state() & !bits | to;
        self.page().state.store(next.wrapping_add(CHANGE), Ordering::SeqCst);
    }
}
