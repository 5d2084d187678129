//! `famio flush`: a process that is no member asks the owner of a file, by words of the control page, to write back
//! what is committed. The owner's background answers (`membership::flush`).

use super::control::Control;
use super::control_page::{MAGIC, Page, SESSION, is_later, map, unmap};
use crate::error::Result;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use rustix::thread::futex;
use rustix::time::Timespec;

/// Nanoseconds between two looks of a process that waits for the answer, at first and later. It wakes all members each
/// time, since the owner may have missed an earlier one.
const LOOK: i64 = 10_000_000;
const LATER: i64 = 100_000_000;
/// Looks in a row that find no process with the session until it counts as dead: a session that changes hands is seen
/// in two parts.
const LOOKS_AT_DEAD: u32 = 3;

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Everything that was committed is in the file, durably; or the owner failed, with this errno.
    Done(i32),
    /// The session is over, or its process is dead.
    NobodyIsThere,
    /// Not yet. Whether the owner has begun, and the bytes so far.
    Pending { begun: bool, moved: u64 },
}

/// A request of this process. The owner may go on with it after this process has given it up.
pub(crate) struct FlushRequest {
    page: NonNull<Page>,
    control: Control,
    number: u32,
    looks_at_dead: u32,
    looks: u32,
}

impl FlushRequest {
    /// Asks the process that has the session. `None`: no living process has one.
    pub fn new(control: Control) -> Result<Option<Self>> {
        let page = map(&control, core::ptr::null_mut())?;
        let mut request = Self { page, control, number: 0, looks_at_dead: 0, looks: 0 };
        if request.page().magic.load(Ordering::Acquire) != MAGIC || !request.has_session() || !request.is_alive() {
            return Ok(None);
        }
        request.number = request.page().flush.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        Ok(Some(request))
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped as long as the value lives; atomic words, for which every bit pattern is valid.
        unsafe { self.page.as_ref() }
    }

    /// The file's control file.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The bytes that were written back for the request that is served now, or was last.
    pub fn moved(&self) -> u64 {
        self.page().flush.moved.load(Ordering::Relaxed)
    }

    /// Changes when the owner goes on with a request for this file.
    pub fn how_far(&self) -> (u32, u32, u64) {
        let words = &self.page().flush;
        (words.begun.load(Ordering::Acquire), words.answers.load(Ordering::Acquire), self.moved())
    }

    /// Whether the owner has begun with it, and not ended.
    pub fn is_served(&self) -> bool {
        self.has_begun() && self.answer().is_none()
    }

    fn has_begun(&self) -> bool {
        !is_later(self.number, self.page().flush.begun.load(Ordering::Acquire))
    }

    /// The errno with which it has ended.
    fn answer(&self) -> Option<i32> {
        let answer = self.page().flush.answer.load(Ordering::SeqCst);
        (!is_later(self.number, answer as u32)).then_some((answer >> 32) as i32)
    }

    fn has_session(&self) -> bool {
        self.page().state.load(Ordering::Acquire) & SESSION != 0
    }

    fn is_alive(&self) -> bool {
        self.control.is_owned() || self.control.has_unowned_session()
    }

    /// Wakes the owner, and waits a moment for its answer.
    pub fn look(&mut self) -> Asked {
        self.looks += 1;
        let pause = Timespec { tv_sec: 0, tv_nsec: (i64::from(self.looks / 100) * LOOK).clamp(LOOK, LATER) };
        let words = &self.page().flush;
        words.polls.fetch_add(1, Ordering::SeqCst);
        self.page().call_all_but(0); // the owner may change
        let answers = words.answers.load(Ordering::SeqCst);
        if self.answer().is_none() {
            let _ = futex::wait(&words.answers, futex::Flags::empty(), answers, Some(&pause));
        }
        if let Some(errno) = self.answer() {
            return Asked::Done(errno);
        }
        let begun = self.has_begun();
        let moved = words.moved.load(Ordering::Relaxed);
        let is_over = !self.has_session();
        self.looks_at_dead = if is_over || self.is_alive() { 0 } else { self.looks_at_dead + 1 };
        if is_over || self.looks_at_dead == LOOKS_AT_DEAD {
            return Asked::NobodyIsThere;
        }
        Asked::Pending { begun, moved }
    }
}

impl Drop for FlushRequest {
    fn drop(&mut self) {
        // SAFETY: our mapping; no reference into it outlives the value.
        unsafe { unmap(self.page) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::members::control::{TestControl, for_test};
    use crate::index::{Membership, OwnerLock};
    use std::sync::Arc;

    fn owner(file: &TestControl) -> (Membership, OwnerLock) {
        let membership = Membership::new();
        membership.attach(|| Ok(file.open()), || Ok(false)).unwrap();
        let owner_lock = OwnerLock::try_take(Arc::new(file.again())).unwrap().unwrap();
        membership.begin_session();
        (membership, owner_lock)
    }

    #[test]
    fn a_request_is_answered_once_and_the_next_owner_goes_on_with_it() {
        let file = for_test();
        let (membership, _owner_lock) = owner(&file);
        assert!(membership.flush_wanted().is_none());
        let mut first = FlushRequest::new(file.again()).unwrap().unwrap();
        assert_eq!(first.look(), Asked::Pending { begun: false, moved: 0 });
        let wanted = membership.flush_wanted().unwrap();
        assert_eq!(wanted.until(7), 7);
        wanted.moved(100);
        // A second one, and a commit, do not change what is being done.
        let mut second = FlushRequest::new(file.again()).unwrap().unwrap();
        let wanted = membership.flush_wanted().unwrap();
        assert_eq!(wanted.until(8), 7);
        assert_eq!(first.look(), Asked::Pending { begun: true, moved: 100 });
        assert_eq!(second.look(), Asked::Pending { begun: false, moved: 100 });
        wanted.end(0);
        assert_eq!(first.look(), Asked::Done(0));
        let wanted = membership.flush_wanted().unwrap();
        assert_eq!(wanted.until(8), 8);
        assert_eq!(wanted.until(3), 3); // of a new journal
        wanted.end(libc::ENOSPC);
        assert_eq!(second.look(), Asked::Done(libc::ENOSPC));
        assert!(membership.flush_wanted().is_none());
    }

    #[test]
    fn an_error_before_anything_has_begun_is_an_answer() {
        let file = for_test();
        let (membership, _owner_lock) = owner(&file);
        let mut request = FlushRequest::new(file.again()).unwrap().unwrap();
        membership.flush_wanted().unwrap().end(libc::EIO);
        assert_eq!(request.look(), Asked::Done(libc::EIO));
        assert!(membership.flush_wanted().is_none());
        // The next one begins anew.
        let mut next = FlushRequest::new(file.again()).unwrap().unwrap();
        let wanted = membership.flush_wanted().unwrap();
        assert_eq!((wanted.until(7), wanted.until(8)), (7, 7));
        wanted.end(0);
        assert_eq!(next.look(), Asked::Done(0));
    }

    /// The last one was told that it is done, with nothing of it in the file.
    #[test]
    fn an_owner_that_has_lost_the_session_answers_no_later_request() {
        let file = for_test();
        let (membership, _owner_lock) = owner(&file);
        let mut first = FlushRequest::new(file.again()).unwrap().unwrap();
        let (slow, next) = (membership.flush_wanted().unwrap(), membership.flush_wanted().unwrap());
        assert_eq!((slow.until(7), next.until(8)), (7, 7));
        next.end(0);
        assert_eq!(first.look(), Asked::Done(0));
        let mut second = FlushRequest::new(file.again()).unwrap().unwrap();
        let wanted = membership.flush_wanted().unwrap();
        assert_eq!(wanted.until(9), 9);
        slow.end(libc::EDEADLK);
        assert_eq!(second.look(), Asked::Pending { begun: true, moved: 0 });
        wanted.end(0);
        assert_eq!(second.look(), Asked::Done(0));
    }

    #[test]
    fn a_dead_owner_and_an_end_are_noticed() {
        let file = for_test();
        let (membership, owner_lock) = owner(&file);
        let mut request = FlushRequest::new(file.again()).unwrap().unwrap();
        owner_lock.leave(); // as after a kill
        let looks = (0..LOOKS_AT_DEAD).map(|_| request.look()).collect::<Vec<_>>();
        assert_eq!(looks.iter().position(|look| *look == Asked::NobodyIsThere), Some(LOOKS_AT_DEAD as usize - 1));
        assert!(FlushRequest::new(file.again()).unwrap().is_none());
        membership.set_session(false);
        assert_eq!(request.look(), Asked::NobodyIsThere);
    }
}
