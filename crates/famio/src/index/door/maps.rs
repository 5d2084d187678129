//! What the processes at a door have of maps: which of them map the file itself, which may store through a map, and the
//! *shared shadow*, memory with the file's bytes as they are now, in `/dev/shm`.

use super::{Door, Page, map};
use crate::error::{Error, Result};
use crate::index::control_page::{MEMBERS, Member, SHADOW, SIZE, STORES, unmap};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use rustix::fs::{AtFlags, CWD};

/// The number of bytes that the shared shadow has, for all processes that have it. Also in a forked child, which has no door.
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

impl Door {
    /// The number of the shared shadow, if there is one.
    #[inline]
    pub fn shadow(&self) -> Option<u64> {
        (self.state() & SHADOW != 0).then(|| self.page().shadow.load(Ordering::Acquire))
    }

    /// The path of a shared shadow with that number.
    pub fn shadow_path(&self, number: u64) -> String {
        self.path(number, "shadow")
    }

    /// The number of a file for a shadow that is about to be made. By who has the turn.
    pub fn begin_shadow(&self) -> u64 {
        self.forget_shadow();
        let number = self.number();
        self.page().shadow.store(number, Ordering::Release);
        number
    }

    /// Whether that number's was begun last, and is still there.
    pub fn has_begun_shadow(&self, number: u64) -> bool {
        self.page().shadow.load(Ordering::Acquire) == number
    }

    /// The shadow that was begun has all the file's bytes: whoever reads or changes the file uses it. By who has the turn.
    pub fn set_shadow(&self) {
        self.change(SHADOW, SHADOW);
        self.give(); // who maps the kernel's file is to hear of it
    }

    /// No process that opens the file from now on uses the shadow, until it is [set](Self::set_shadow) again. Called by the owner.
    pub fn hide_shadow(&self) {
        self.change(SHADOW, 0);
    }

    /// There is no shadow any more. By who has the turn and knows that nobody maps it, or is alone.
    pub fn forget_shadow(&self) {
        let number = self.page().shadow.load(Ordering::Acquire);
        if self.state() & SHADOW != 0 {
            self.change(SHADOW, 0);
        }
        // The number goes last: who is killed in between leaves it to who comes.
        if number != 0 {
            let _ = rustix::fs::unlinkat(CWD, &*self.shadow_path(number), AtFlags::empty());
            self.page().shadow.store(0, Ordering::Release);
        }
    }

    /// The shadow's size. By an open description of its own: a child that has this page is not to keep the parent's place.
    pub fn shared_size(&self) -> Result<SharedSize> {
        let control = self.control().ok_or(Error::new(libc::EBUSY))?;
        let page = map(control.open_again()?, core::ptr::null_mut())?;
        crate::sys::give_to_children(page.as_ptr().cast(), SIZE);
        Ok(SharedSize { page })
    }

    /// This process has such maps, or has not any more.
    pub fn set_maps(&self, what: u64, has: bool) {
        let here = self.control.lock();
        let now = self.maps.load(Ordering::Acquire);
        let now = if has { now | what } else { now & !what };
        self.maps.store(now, Ordering::Release);
        if here.is_some() {
            self.page().members[self.place.load(Ordering::Acquire) as usize].maps.store(now, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst); // who begins a session looks at this after it said so, and we at that after this
    }

    /// Whether this process has such maps.
    #[inline]
    pub fn has_maps(&self, what: u64) -> bool {
        self.maps.load(Ordering::Acquire) & what != 0
    }

    /// Whether another process has such maps, and lives.
    pub fn others_map(&self, what: u64) -> bool {
        fence(Ordering::SeqCst);
        self.mappers(what).any(|(place, _)| self.lives(place))
    }

    /// Whether another process has, or may have left, stores in the shadow that only a look at all of it finds.
    pub fn others_store(&self) -> bool {
        self.unknown_stores() != 0 || self.mappers(STORES).next().is_some()
    }

    /// Whether somebody who lives may store in the shadow, or has left stores there: what one stored who died can't be told from
    /// that.
    pub fn anybody_stores(&self) -> bool {
        self.has_maps(STORES) || self.others_map(STORES) || self.unknown_stores() != 0
    }

    /// Whether any of the processes, which are all gone, could store through maps.
    pub(super) fn has_stores(&self) -> bool {
        self.mappers(STORES).next().is_some()
    }

    /// The places and numbers of other processes that have such maps, or died with them.
    fn mappers(&self, what: u64) -> impl Iterator<Item = (usize, u64)> {
        let me = self.id.load(Ordering::Acquire);
        let members = self.places().iter().enumerate();
        let members = members.map(|(place, member)| (place, member.id.load(Ordering::Acquire), member));
        let has = move |&(_, id, member): &(usize, u64, &Member)| {
            id != 0 && id != me && member.maps.load(Ordering::SeqCst) & what != 0
        };
        members.filter(has).map(|(place, id, _)| (place, id))
    }

    /// 0: there are no stores in the shadow that nobody knows the place of. Else how often such were left since then.
    pub fn unknown_stores(&self) -> u32 {
        self.page().unknown_stores.load(Ordering::SeqCst)
    }

    /// There are such stores. By who has the turn, or goes.
    pub fn leave_unknown_stores(&self) {
        self.page().unknown_stores.fetch_add(1, Ordering::SeqCst);
    }

    /// All were found that had been left when [`unknown_stores`](Self::unknown_stores) was `seen`. Who left since then may have
    /// stored where the look had already been.
    pub fn found_unknown_stores(&self, seen: u32) {
        let _ = self.page().unknown_stores.compare_exchange(seen, 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Whether one of the processes has ended that nobody has buried.
    pub fn has_dead(&self) -> bool {
        self.unburied().next().is_some() || self.has_ended_early()
    }

    /// Whether one has ended that owned a session, and had not come so far that the kernel marks its end.
    fn has_ended_early(&self) -> bool {
        let me = self.id.load(Ordering::Acquire);
        self.places().iter().enumerate().any(|(place, member)| {
            !member.life.is_kept()
                && member.attached.load(Ordering::Acquire) != 0
                && ![0, me].contains(&member.id.load(Ordering::Acquire))
                && !self.lives(place)
        })
    }

    /// Which they are, in one number; `None`: there are none. When another one dies, the number is another.
    pub fn dead_in_one(&self) -> Option<u64> {
        let ids = self.unburied().map(|member| member.id.load(Ordering::Acquire));
        ids.reduce(|all, id| all.wrapping_mul(1_000_003).wrapping_add(id))
    }

    /// Whether one of them could store through its maps.
    pub fn has_dead_stores(&self) -> bool {
        self.unburied().any(|member| member.maps.load(Ordering::Acquire) & STORES != 0)
    }

    /// What they stored is undone, or counts as everybody's. By who has the turn.
    pub fn forget_dead_stores(&self) {
        self.unburied().for_each(|member| member.maps.store(0, Ordering::Release));
    }

    /// Those that were taken.
    #[inline]
    pub(super) fn places(&self) -> &[Member] {
        let page = self.page();
        &page.members[..(page.places.load(Ordering::Acquire) as usize).min(MEMBERS)]
    }

    fn unburied(&self) -> impl Iterator<Item = &Member> {
        let members = self.places().iter();
        members.filter(|member| member.life.is_over() && member.id.load(Ordering::Acquire) != 0)
    }

    /// This process leaves: what it may have stored since it looked last is for the others to find.
    pub(super) fn leave_maps(&self) {
        if self.has_maps(STORES) && self.shadow().is_some() {
            self.leave_unknown_stores();
        }
        self.page().members[self.place.load(Ordering::Acquire) as usize].maps.store(0, Ordering::Release);
    }
}
