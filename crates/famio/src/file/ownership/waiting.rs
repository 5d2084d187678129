//! How a process that wants ownership asks for it, and waits.

use crate::file::state::ownership::PATIENCE;
use crate::index::Membership;
use rustix::time::Timespec;

/// How long a process that waits for ownership gives the owner to end its call before it wakes the owner's background.
const CALL: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Waits in vain for an owner that was asked, until all members are.
const LOOKS_AT_OWNER: u32 = 16;

/// A process that may wait for ownership; others see it while it does.
pub(super) struct Waiting<'a> {
    membership: &'a Membership,
    waits: bool,
    /// Waits in sequence in which only time has passed.
    in_vain: u32,
    /// The place of the owner whose background was woken since the last of them.
    asked: Option<u32>,
}

impl<'a> Waiting<'a> {
    pub fn new(membership: &'a Membership) -> Self {
        Self { membership, waits: false, in_vain: 0, asked: None }
    }

    /// From now on any member may have to act first.
    pub fn ask_any(&mut self) {
        self.in_vain = LOOKS_AT_OWNER;
    }

    /// Requests ownership, then waits until the owner leaves after `count` was read, or for a while. `is_in_call`:
    /// whether the owner, in the slot at that place, is.
    pub fn wait(&mut self, count: u32, is_in_call: impl FnOnce(u32) -> bool) {
        self.waits = true;
        self.membership.set_waits(true);
        let mut patience = PATIENCE;
        match self.membership.living_owner() {
            Some(place) if self.in_vain == 0 && is_in_call(place) => {
                self.membership.request_ownership_after_call();
                patience = CALL;
            }
            Some(place) if self.asked == Some(place) && !self.in_vain.is_multiple_of(LOOKS_AT_OWNER) => {}
            owner if self.in_vain == 0 || owner.is_some() && self.asked.is_none() => {
                self.membership.request_ownership();
                self.asked = owner;
            }
            _ => self.membership.request_ownership_of_any(),
        }
        if self.membership.wait_for_ownership(count, patience) {
            self.in_vain += 1;
        } else {
            (self.in_vain, self.asked) = (0, None);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.membership.set_waits(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;
    use std::os::fd::AsFd;

    #[test]
    fn an_owner_in_a_call_is_not_woken_one_that_is_not_is_woken_once_and_after_many_looks_all_are() {
        let path = format!("/dev/shm/famio-waiting-{}", std::process::id());
        let file = std::fs::File::create_new(&path).unwrap();
        let [owner, asks, third] = [(); 3].map(|()| {
            let member = Membership::new();
            member.attach(|| crate::journal::control::find_or_make(file.as_fd(), None), || Ok(false)).unwrap();
            member
        });
        owner.set_session(true);
        let called = |of: &Membership| of.calls().load(Ordering::SeqCst);
        let before = [called(&owner), called(&third)];
        let calls = || [called(&owner) - before[0], called(&third) - before[1]];

        let mut waiting = Waiting::new(&asks);
        let count = asks.release_count();
        waiting.wait(count, |place| place == owner.place());
        assert_eq!((calls(), owner.requests()), ([0, 0], 1), "it sees the request as its call ends");
        waiting.wait(count, |_| true);
        assert_eq!(calls(), [1, 0], "the call takes long");
        (2..LOOKS_AT_OWNER).for_each(|_| waiting.wait(count, |_| true));
        assert_eq!(calls(), [1, 0], "it knows");
        waiting.wait(count, |_| true);
        assert_eq!(calls(), [2, 1], "nobody answers");

        owner.announce_release();
        waiting.wait(count, |_| true); // woken
        waiting.wait(asks.release_count(), |_| true);
        assert_eq!(calls(), [2, 1], "as at the first");
        owner.announce_release();
        drop(waiting);
        let mut waiting = Waiting::new(&asks);
        waiting.wait(asks.release_count(), |_| false);
        assert_eq!(calls(), [3, 1], "an owner between two calls");
        drop(waiting);
        owner.set_session(false);
        assert!([owner, asks, third].iter().all(Membership::leave));
        std::fs::remove_file(&path).unwrap();
    }
}
