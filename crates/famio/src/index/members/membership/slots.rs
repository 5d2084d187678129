//! The members of a file: each process has a slot on the control page, locked as long as the process lives. This
//! decides whether its writes in an open epoch stay or are rolled back.

use super::{Control, HAS_IMAGE, Lock, Membership, SESSION, is_locked, try_lock, unlock};
use crate::error::{Error, Result};
use crate::index::members::control::is_anybody;
use crate::index::members::control_page::{HAS_OWNED, MEMBERS, Member, SHADOW, STORES, place};
use crate::index::members::life::LIVES;
use core::sync::atomic::{Ordering, fence};

/// The process that wrote something in an open epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    /// Its slot.
    pub place: u32,
    /// Its number.
    pub id: u64,
    /// Its tenure at that time.
    pub tenure: u64,
}

/// What is known of a [`Writer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterState {
    /// Its tenure is over: the writes stay.
    Over,
    /// It lives; its death would roll the writes back.
    Open,
    /// It died in that tenure: the writes are rolled back.
    Dead,
}

impl Writer {
    /// For bytes that stay, whichever process dies.
    pub const NOBODY: Self = Self { place: u32::MAX, id: 0, tenure: 0 };
    /// For bytes that the death of their writer no longer rolls back.
    pub const EVERYBODY: Self = Self { place: u32::MAX, id: 1, tenure: 0 };
    /// For the process that moves a hand-over image from one control file to another.
    pub const CARRIER: Self = Self { place: u32::MAX, id: 2, tenure: 0 };

    /// The same process in its previous tenure.
    pub fn of_last_tenure(self) -> Self {
        Self { tenure: self.tenure.wrapping_sub(1), ..self }
    }
}

impl Membership {
    /// Takes a free slot. The caller makes sure that no other process attaches or detaches meanwhile.
    pub(super) fn take_slot(&self, control: &Control) -> Result<()> {
        let page = self.page();
        // The slot of a dead member stays taken while its writes may have to be rolled back (a hand-over image or a
        // session has them), and while its stores lie in the shadow, which is read until somebody notices the death.
        let not_checkpointed = |member: &Member| {
            let changes = member.roles.load(Ordering::Acquire) & HAS_OWNED != 0
                || member.maps.load(Ordering::Acquire) & STORES != 0;
            self.state() & (HAS_IMAGE | SESSION | SHADOW) != 0 && changes
        };
        let may_take = |member: &Member| member.id.load(Ordering::Acquire) == 0 || !not_checkpointed(member);
        // Looked at again when it is certain that its member is dead: that may have written until then.
        let is_taken = |at: usize| {
            try_lock(control, place(at as u32), Lock::Exclusive).unwrap_or(false) && {
                let may = may_take(&page.members[at]);
                if !may {
                    unlock(control, place(at as u32));
                }
                may
            }
        };
        let Some(place) = (0..MEMBERS).find(|&at| may_take(&page.members[at]) && is_taken(at)) else {
            let what = format!("{MEMBERS} processes have it open already ({})", control.path());
            return Err(Error::with(libc::EBUSY, what));
        };
        let id = self.number();
        page.members[place].id.store(0, Ordering::Release); // the last process here does not come to life again
        self.clear_kept_locks(place);
        page.places.fetch_max(place as u32 + 1, Ordering::AcqRel);
        page.members[place].life.reset();
        page.members[place].attached.store(0, Ordering::Relaxed);
        page.members[place].tenure.store(1, Ordering::Relaxed);
        page.members[place].roles.store(self.writes.load(Ordering::Acquire), Ordering::Relaxed);
        page.members[place].waits.store(0, Ordering::Relaxed);
        page.members[place].maps.store(self.maps.load(Ordering::Acquire), Ordering::Relaxed);
        page.members[place].id.store(id, Ordering::Release);
        self.place.store(place as u32, Ordering::Release);
        self.id.store(id, Ordering::Release);
        Ok(())
    }

    /// This process in its current tenure.
    pub fn me(&self) -> Writer {
        let (place, id) = (self.place.load(Ordering::Acquire), self.id.load(Ordering::Acquire));
        let tenure = self.page().members[place as usize].tenure.load(Ordering::Acquire);
        Writer { place, id, tenure }
    }

    /// Whether an attached process has such a number.
    pub(super) fn has(&self, is_selected: impl Fn(u64) -> bool) -> bool {
        let me = self.id.load(Ordering::Acquire);
        let ids = self.page().members.iter().map(|member| member.id.load(Ordering::Acquire)).enumerate();
        ids.filter(|&(_, id)| id != 0 && is_selected(id)).any(|(place, id)| id == me || self.lives(place))
    }

    /// The writes of this process until now stay, even if it dies.
    pub fn end_tenure(&self) {
        let here = self.control.lock();
        if here.is_some() {
            let place = self.place.load(Ordering::Acquire) as usize;
            self.page().members[place].tenure.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Another process has written over what `writer` wrote, or beyond it: those writes stay.
    pub fn end_tenure_of(&self, writer: Writer) {
        if let Some(member) = self.page().members.get(writer.place as usize)
            && member.id.load(Ordering::Acquire) == writer.id
        {
            let (now, next) = (writer.tenure, writer.tenure + 1);
            let _ = member.tenure.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// What becomes of the writes of `writer`.
    pub fn writer_state(&self, writer: Writer) -> WriterState {
        let Some(member) = self.page().members.get(writer.place as usize) else { return WriterState::Over };
        let same =
            || member.id.load(Ordering::Acquire) == writer.id && member.tenure.load(Ordering::Acquire) == writer.tenure;
        match same() {
            false => WriterState::Over,
            true if writer.id == self.id.load(Ordering::Acquire) || self.lives(writer.place as usize) => {
                WriterState::Open
            }
            // Looked at again: it may have detached cleanly in between.
            true if same() => WriterState::Dead,
            true => WriterState::Over,
        }
    }

    /// The slots and numbers of dead members.
    pub fn dead(&self) -> Vec<(usize, u64)> {
        let ids = self.page().members.iter().map(|member| member.id.load(Ordering::Acquire)).enumerate();
        let me = self.id.load(Ordering::Acquire);
        ids.filter(|&(place, id)| id != 0 && id != me && !self.lives(place)).collect()
    }

    /// Frees the slots of `dead`. Only the owner calls it, with members that were dead before their writes were
    /// rolled back: writes of one that died later may still be there, and would then count as a living one's.
    pub fn reap(&self, dead: &[(usize, u64)]) {
        for &(place, id) in dead {
            let member = &self.page().members[place];
            if member.id.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                member.maps.store(0, Ordering::Release);
            }
        }
    }

    /// Sets whether this process can commit what others wrote.
    pub fn set_writes(&self, can: bool) {
        let control = self.control.lock();
        self.writes.store(can.into(), Ordering::Release);
        if control.is_some() {
            let place = self.place.load(Ordering::Acquire) as usize;
            self.page().members[place].set_can_commit(can);
        }
    }

    /// This process closes the file. The first step of that: of processes that close it at the same time, at least
    /// one then finds that no other can commit what is left, and commits it.
    pub fn stop_writing(&self) {
        self.set_writes(false);
        fence(Ordering::SeqCst);
    }

    /// Whether other living members can commit.
    pub fn has_other_writers(&self) -> bool {
        let writes = |&(_, member): &(usize, &Member)| member.can_commit();
        self.is_attached() && self.page().members.iter().enumerate().filter(writes).any(|(place, _)| self.lives(place))
    }

    /// Whether other members can commit, or could until they were killed. Only looks at the page, without a system
    /// call.
    pub fn may_have_other_writers(&self) -> bool {
        let me = self.id.load(Ordering::Acquire);
        let can = |member: &Member| ![0, me].contains(&member.id.load(Ordering::Acquire)) && member.can_commit();
        self.slots().iter().any(can)
    }

    /// How many processes have the file open, or had it when they were killed.
    pub fn count(&self) -> usize {
        self.slots().iter().filter(|member| member.id.load(Ordering::Acquire) != 0).count()
    }

    /// Whether other processes have the file open.
    pub fn has_others(&self) -> bool {
        self.control.lock().as_ref().is_some_and(|control| self.others_at(control))
    }

    /// As [`has_others`](Self::has_others), for a caller that holds the control file.
    pub(super) fn others_at(&self, control: &Control) -> bool {
        let members = &self.page().members;
        is_anybody(control)
            && (members.iter().all(|member| !member.life.is_over())
                || (0..MEMBERS).any(|at| !members[at].life.is_over() && is_taken(control, at)))
    }

    /// This process can own the session in that arena.
    pub fn set_attached(&self, arena: u64) {
        self.page().members[self.place() as usize].attached.store(arena, Ordering::Release);
    }

    /// Whether another living member satisfies `is_selected`. The caller holds the lock of the control file.
    fn has_other_at(&self, control: &Control, is_selected: impl Fn(&Member) -> bool) -> bool {
        let me = self.id.load(Ordering::Acquire);
        self.page().members.iter().enumerate().any(|(place, member)| {
            ![0, me].contains(&member.id.load(Ordering::Acquire))
                && is_selected(member)
                && !member.life.is_over()
                && is_taken(control, place)
        })
    }

    /// Whether there is an unowned session that this process can own and no other living one can. The caller makes
    /// sure that no other process detaches meanwhile: of two that detach at once each would count on the other.
    pub(super) fn is_last_attached(&self, control: &Control) -> bool {
        let arena = self.arena();
        arena != 0
            && self.has_unowned()
            && self.page().members[self.place() as usize].attached.load(Ordering::Acquire) == arena
            && !self.has_other_at(control, |member| member.attached.load(Ordering::Acquire) == arena)
    }

    /// This process, which ends, no longer commits or owns a session. Returns false if no other process could: then
    /// it has to commit first.
    pub fn retire(&self) -> bool {
        let here = self.control.lock();
        let Some(control) = here.as_ref() else { return true };
        let _attaching = control.try_attaching();
        if self.is_last_attached(control) || !self.has_other_at(control, Member::can_commit) {
            return false;
        }
        let own = &self.page().members[self.place() as usize];
        own.set_can_commit(false);
        own.attached.store(0, Ordering::Release);
        true
    }

    /// Whether another living member can own that session.
    pub fn is_attached_by_others(&self, arena: u64) -> bool {
        let is = |&(_, member): &(usize, &Member)| {
            member.id.load(Ordering::Acquire) != 0 && member.attached.load(Ordering::Acquire) == arena
        };
        self.page().members.iter().enumerate().filter(is).any(|(place, _)| self.lives(place))
    }

    /// The slot of this process.
    pub fn place(&self) -> u32 {
        self.place.load(Ordering::Acquire)
    }

    /// Whether another living process has that slot. A detached process takes all for alive, so that nothing is
    /// rolled back.
    pub fn lives(&self, place: usize) -> bool {
        let Some(member) = self.page().members.get(place) else { return false };
        let life = &member.life;
        let is_me = place == self.place.load(Ordering::Acquire) as usize && self.is_attached();
        !life.is_over()
            && !is_me
            && (life.is_kept() || self.control.lock().as_ref().is_none_or(|control| is_taken(control, place)))
    }

    /// From now on the kernel tells other members at once if this process dies. To be called before any of its changes
    /// is handed over.
    ///
    /// Returns whether this is new.
    pub fn register_for_death_notice(&self) -> bool {
        let is_new = self.is_attached() && LIVES.add(&self.page().members[self.place() as usize].life);
        if is_new {
            self.announce_change(); // processes that watch others have to watch this one, too
        }
        is_new
    }

    /// Whether there may be other members that wait for a change of this process. One that comes later sees the change
    /// before it waits.
    pub fn may_be_watched(&self) -> bool {
        fence(Ordering::SeqCst);
        let me = self.id.load(Ordering::Acquire);
        self.slots().iter().any(|member| ![0, me].contains(&member.id.load(Ordering::SeqCst)))
    }
}

/// Whether another process has that slot.
pub(super) fn is_taken(control: &Control, at: usize) -> bool {
    is_locked(control, place(at as u32), Lock::Exclusive)
}
