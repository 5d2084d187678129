//! What the control page says about maps: which members map the file itself, which may store through a map, and the
//! *shared shadow*: memory in `/dev/shm` with the file's current bytes.

use super::{Membership, Page, map};
use crate::error::{Error, Result};
use crate::index::members::control_page::{MEMBERS, Member, SHADOW, SIZE, STORES, unmap};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use rustix::fs::{AtFlags, CWD};

/// The size of the shared shadow in bytes, for all members. It is also there in a forked child, which has no control
/// page.
///
/// Invariant: `page` points to a mapped page as long as the value lives.
pub(crate) struct SharedSize {
    page: NonNull<Page>,
}

// SAFETY: an address of atomic words.
unsafe impl Send for SharedSize {}
// SAFETY: as above.
unsafe impl Sync for SharedSize {}

impl SharedSize {
    #[inline]
    pub fn word(&self) -> &AtomicU64 {
        // SAFETY: the invariant.
        unsafe { &self.page.as_ref().shadow_size }
    }
}

impl Drop for SharedSize {
    fn drop(&mut self) {
        // SAFETY: ours, and no reference into it outlives the value.
        unsafe { unmap(self.page) };
    }
}

impl Membership {
    /// The number of the shared shadow, if there is one.
    #[inline]
    pub fn shadow(&self) -> Option<u64> {
        (self.state() & SHADOW != 0).then(|| self.page().shadow.load(Ordering::Acquire))
    }

    /// The path of the shared shadow with that number.
    pub fn shadow_path(&self, number: u64) -> String {
        self.path(number, "shadow")
    }

    /// The number of a file for a shadow that is about to be made. Only the owner calls it.
    pub fn begin_shadow(&self) -> u64 {
        self.forget_shadow();
        let number = self.number();
        self.page().shadow.store(number, Ordering::Release);
        number
    }

    /// Whether the shadow with that number was begun last, and still exists.
    pub fn has_begun_shadow(&self, number: u64) -> bool {
        self.page().shadow.load(Ordering::Acquire) == number
    }

    /// The shadow has all the file's bytes from now on, so all readers and writers use it. Only the owner calls it.
    pub fn set_shadow(&self) {
        self.change(SHADOW, SHADOW);
        self.announce_change(); // members that map the kernel's file have to switch
    }

    /// No process that opens the file from now on uses the shadow, until it is [set](Self::set_shadow) again. Called by
    /// the owner.
    pub fn hide_shadow(&self) {
        self.change(SHADOW, 0);
    }

    /// Removes the shadow. Only called by the owner when it knows that no process maps the shadow, or by the only
    /// member.
    pub fn forget_shadow(&self) {
        let number = self.page().shadow.load(Ordering::Acquire);
        if self.state() & SHADOW != 0 {
            self.change(SHADOW, 0);
        }
        // The number goes last: if this process is killed in between, the next one removes the file.
        if number != 0 {
            let _ = rustix::fs::unlinkat(CWD, &*self.shadow_path(number), AtFlags::empty());
            self.page().shadow.store(0, Ordering::Release);
        }
    }

    /// The shadow's size. It takes an open description of its own: a child that keeps this page must not keep the
    /// parent's member slot.
    pub fn shared_size(&self) -> Result<SharedSize> {
        let control = self.control().ok_or(Error::new(libc::EBUSY))?;
        let page = map(control.open_again()?, core::ptr::null_mut())?;
        crate::sys::give_to_children(page.as_ptr().cast(), SIZE);
        Ok(SharedSize { page })
    }

    /// Sets whether this process has maps of kind `what`.
    pub fn set_maps(&self, what: u64, has: bool) {
        let here = self.control.lock();
        let now = self.maps.load(Ordering::Acquire);
        let now = if has { now | what } else { now & !what };
        self.maps.store(now, Ordering::Release);
        if here.is_some() {
            self.page().members[self.place.load(Ordering::Acquire) as usize].maps.store(now, Ordering::SeqCst);
        }
        // pairs with the beginning of a session, which first announces itself and then looks at this
        fence(Ordering::SeqCst);
    }

    /// Whether this process has such maps.
    #[inline]
    pub fn has_maps(&self, what: u64) -> bool {
        self.maps.load(Ordering::Acquire) & what != 0
    }

    /// Whether another living process has such maps.
    pub fn others_map(&self, what: u64) -> bool {
        fence(Ordering::SeqCst);
        self.mappers(what).any(|(place, _)| self.lives(place))
    }

    /// Whether another process has, or may have left, stores in the shadow that only a look at all of it finds.
    pub fn others_store(&self) -> bool {
        self.unknown_stores() != 0 || self.mappers(STORES).next().is_some()
    }

    /// Whether a living process may store to the shadow, or has left stores there. Stores of a killed process cannot
    /// be told from those.
    pub fn anybody_stores(&self) -> bool {
        self.has_maps(STORES) || self.others_map(STORES) || self.unknown_stores() != 0
    }

    /// Whether any of the processes, which are all gone, could store through maps.
    pub(super) fn has_stores(&self) -> bool {
        self.mappers(STORES).next().is_some()
    }

    /// The slots and numbers of other processes that have such maps, or died with them.
    fn mappers(&self, what: u64) -> impl Iterator<Item = (usize, u64)> {
        let me = self.id.load(Ordering::Acquire);
        let members = self.slots().iter().enumerate();
        let members = members.map(|(place, member)| (place, member.id.load(Ordering::Acquire), member));
        let has = move |&(_, id, member): &(usize, u64, &Member)| {
            id != 0 && id != me && member.maps.load(Ordering::SeqCst) & what != 0
        };
        members.filter(has).map(|(place, id, _)| (place, id))
    }

    /// 0 if no stores lie at unknown places of the shadow; else a count of how often a process left such stores.
    pub fn unknown_stores(&self) -> u32 {
        self.page().unknown_stores.load(Ordering::SeqCst)
    }

    /// This process leaves stores at unknown places. Called by the owner, or by a member that detaches.
    pub fn leave_unknown_stores(&self) {
        self.page().unknown_stores.fetch_add(1, Ordering::SeqCst);
    }

    /// A look at the whole shadow has found all stores left while [`unknown_stores`](Self::unknown_stores) was
    /// `seen`. A process that has left stores since then may have stored where the look had already been, so the
    /// count then stays.
    pub fn found_unknown_stores(&self, seen: u32) {
        let _ = self.page().unknown_stores.compare_exchange(seen, 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Whether a member has died and was not reaped yet.
    pub fn has_dead(&self) -> bool {
        self.unreaped().next().is_some() || self.has_ended_early()
    }

    /// Whether a member died that owned a session before the kernel had its robust futex.
    fn has_ended_early(&self) -> bool {
        let me = self.id.load(Ordering::Acquire);
        self.slots().iter().enumerate().any(|(place, member)| {
            !member.life.is_kept()
                && member.attached.load(Ordering::Acquire) != 0
                && ![0, me].contains(&member.id.load(Ordering::Acquire))
                && !self.lives(place)
        })
    }

    /// The dead members as one number, which is different after another death; `None`: there are none.
    pub fn dead_hash(&self) -> Option<u64> {
        let ids = self.unreaped().map(|member| member.id.load(Ordering::Acquire));
        ids.reduce(|all, id| all.wrapping_mul(1_000_003).wrapping_add(id))
    }

    /// Whether a dead member could store through its maps.
    pub fn has_dead_stores(&self) -> bool {
        self.unreaped().any(|member| member.maps.load(Ordering::Acquire) & STORES != 0)
    }

    /// The dead members' stores are undone, or now count as stores of all. Only the owner calls it.
    pub fn forget_dead_stores(&self) {
        self.unreaped().for_each(|member| member.maps.store(0, Ordering::Release));
    }

    /// The slots that were ever in use.
    #[inline]
    pub(super) fn slots(&self) -> &[Member] {
        let page = self.page();
        &page.members[..(page.places.load(Ordering::Acquire) as usize).min(MEMBERS)]
    }

    fn unreaped(&self) -> impl Iterator<Item = &Member> {
        let members = self.slots().iter();
        members.filter(|member| member.life.is_over() && member.id.load(Ordering::Acquire) != 0)
    }

    /// As this process detaches: the others have to look for what it may have stored since its last look.
    pub(super) fn leave_maps(&self) {
        if self.has_maps(STORES) && self.shadow().is_some() {
            self.leave_unknown_stores();
        }
        self.page().members[self.place.load(Ordering::Acquire) as usize].maps.store(0, Ordering::Release);
    }
}
