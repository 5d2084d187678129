//! How processes ask for ownership, wait for it, and are told of changes.

use super::Membership;
use crate::index::members::control_page::Member;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

/// Milliseconds without a look after which a waiting process counts as stopped or gone. It looks more often.
pub(super) const RECENT: u16 = 100;

/// The last bits of the time in milliseconds, which tell when a waiting process last looked; never 0. The clock is the
/// same in all containers.
pub(super) fn moment() -> u16 {
    let now = crate::sys::coarse_now();
    (now.tv_sec * 1000 + now.tv_nsec / 1_000_000) as u16 | 1
}

impl Membership {
    /// How often something has changed for which members wait, a hand-over above all; for
    /// [`wait_for_change`](Self::wait_for_change).
    pub fn change_count(&self) -> u32 {
        self.page().changes.load(Ordering::SeqCst)
    }

    /// Requests ownership without waking any background: the owner is in a call, and looks at the requests as the call
    /// ends.
    pub fn request_ownership_after_call(&self) {
        self.page().requests.fetch_add(1, Ordering::SeqCst);
    }

    /// Requests ownership from the owner, and wakes its background. A process that is about to leave, or to become the
    /// owner, is not woken: it looks at the requests by itself.
    pub fn request_ownership(&self) {
        let page = self.page();
        page.requests.fetch_add(1, Ordering::SeqCst);
        let holder = page.holder.load(Ordering::SeqCst).checked_sub(1);
        match holder.and_then(|place| page.members.get(place as usize)) {
            Some(owner) => page.call(owner),
            None if !self.has_unowned() => self.call_others(),
            None => {}
        }
    }

    /// Requests ownership from whichever process has it, or has to act first, and wakes all backgrounds.
    pub fn request_ownership_of_any(&self) {
        self.page().requests.fetch_add(1, Ordering::SeqCst);
        self.call_others();
    }

    /// Wakes the backgrounds of all other members.
    pub fn call_others(&self) {
        self.page().call_all_but(self.id.load(Ordering::Acquire));
    }

    /// Waits until something is announced after `count` was read, or for `patience`.
    pub fn wait_for_change(&self, count: u32, patience: Timespec) {
        let _ = futex::wait(&self.page().changes, futex::Flags::empty(), count, Some(&patience));
    }

    /// As [`change_count`](Self::change_count), for [`wait_for_ownership`](Self::wait_for_ownership).
    pub fn release_count(&self) -> u32 {
        self.page().releases.load(Ordering::SeqCst)
    }

    /// For a process that has requested ownership: waits until the owner leaves, or something is announced, after
    /// `count` was read; or for `patience`. Returns whether certainly only time has passed.
    pub fn wait_for_ownership(&self, count: u32, patience: Timespec) -> bool {
        futex::wait(&self.page().releases, futex::Flags::empty(), count, Some(&patience)) == Err(Errno::TIMEDOUT)
    }

    /// Wakes all members that wait for ownership or another change.
    pub fn announce_change(&self) {
        self.wake_waiters(i32::MAX as u32);
    }

    /// This process is not the owner any more. Of those that want to be, wakes one, which wakes the next as it leaves;
    /// and all that wait for another change.
    pub fn announce_release(&self) {
        self.wake_waiters(1);
    }

    /// Wakes all that wait for a change, and `wakes` of the processes that wait for ownership.
    fn wake_waiters(&self, wakes: u32) {
        let page = self.page();
        for (word, wakes) in [(&page.changes, i32::MAX as u32), (&page.releases, wakes)] {
            word.fetch_add(1, Ordering::SeqCst);
            let _ = futex::wake(word, futex::Flags::empty(), wakes);
        }
    }

    /// Records that this process waits for ownership; to be repeated at each look. Or (`false`) that it does not.
    pub fn set_waits(&self, waits: bool) {
        self.own_slot().waits.store(if waits { moment() } else { 0 }, Ordering::SeqCst);
    }

    /// Whether another process waits for ownership, and is not stopped.
    pub fn has_live_waiter(&self) -> bool {
        let (me, now) = (self.id.load(Ordering::Acquire), moment());
        let waits = |member: &Member| {
            let since = member.waits.load(Ordering::SeqCst);
            since != 0
                && (now.wrapping_sub(since) < RECENT || since.wrapping_sub(now) < RECENT)
                && ![0, me].contains(&member.id.load(Ordering::Acquire))
                && !member.life.is_over()
        };
        self.slots().iter().any(waits)
    }

    /// Counts that the owner hands over because another process asked.
    pub fn count_hand_over(&self) {
        self.page().hand_overs.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of requests so far.
    pub fn requests(&self) -> u32 {
        self.page().requests.load(Ordering::SeqCst)
    }

    /// The futex word that changes when this process's background is to look.
    pub fn calls(&self) -> &AtomicU32 {
        &self.own_slot().calls
    }

    /// Records that the owner (its process id) cannot hand over, or (0) that it can again.
    pub fn set_stuck(&self, pid: u32) {
        self.page().stuck.store(pid, Ordering::SeqCst);
    }

    /// The process id of an owner that cannot hand over; 0: none.
    pub fn stuck(&self) -> u32 {
        self.page().stuck.load(Ordering::SeqCst)
    }
}
