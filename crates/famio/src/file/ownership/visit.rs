//! Reads of a process that found no free slot on the control page. It is no member: it cannot write, SYNC or map the
//! file, and members do not count on it. But it may look at the page, and reads along as a member does.

use crate::error::{Error, Result};
use crate::file::atomic::AtomicFile;
use crate::file::state::hand_over_image::HandOverImage;
use crate::file::state::owner_session::{Look, OwnerSession};
use crate::file::state::ownership::{LOOKS, Ownership, PATIENCE};
use crate::index::{Control, Membership, SESSION};
use crate::journal::control;
use std::sync::Arc;

impl AtomicFile {
    /// As [`read_without_ownership`](Self::read_without_ownership), if this process finds no free slot. `None`: it
    /// may be a member now, or there are no members.
    ///
    /// # Errors
    /// `EBUSY`: there is no slot, and what the members have changed cannot be read without one.
    pub(super) fn read_as_visitor<T>(
        &self,
        work: &mut dyn FnMut(&HandOverImage, u64) -> Result<T>,
        along: &mut dyn FnMut(&OwnerSession) -> Result<Look<T>>,
    ) -> Result<Option<T>> {
        if !self.ownership.membership.is_full() {
            return Ok(None);
        }
        for look in 0..LOOKS {
            let Some(visit) = self.visit()? else { return Ok(None) };
            let membership = &visit.membership;
            let (state, count) = (membership.state(), membership.change_count());
            if membership.shadow().is_some() {
                break; // stores through maps are seen by members only
            }
            if state & SESSION == 0 {
                if let Some(done) = self.read_without_session(&visit, state, work)? {
                    return Ok(Some(done));
                }
                continue;
            }
            match visit.look_into_session((&self.fds, &self.settings), &mut *along)? {
                Look::Done(done) => return Ok(Some(done)),
                Look::Changing if membership.state() != state => continue,
                Look::Changing => {}
                Look::Unreachable if membership.state() != state => continue,
                Look::Unreachable => {
                    if look > 0 {
                        membership.ask_for_end(); // handed over it cannot be read either
                    }
                    membership.request_ownership_of_any();
                }
            }
            membership.wait_for_change(count, PATIENCE);
            // Its members may have been killed: then there are free slots.
            *self.ownership.unattached.visit.lock() = None;
            crate::sys::internal::undisturbed::renew();
        }
        Err(self.become_member().err().map_or_else(|| Error::new(libc::EBUSY), |e| self.named(e)))
    }

    /// The visit that goes on, if there is one.
    pub(super) fn visit_again(&self) -> Option<Arc<Ownership>> {
        if !self.ownership.membership.is_full() {
            return None;
        }
        self.ownership.unattached.visit.lock().clone().filter(|visit| visit.membership.is_worth_a_visit())
    }

    /// `None`: this process is a member now, or there is no control file any more.
    fn visit(&self) -> Result<Option<Arc<Ownership>>> {
        if let Some(visit) = self.visit_again() {
            return Ok(Some(visit));
        }
        match self.become_member() {
            Err(e) if !self.ownership.membership.is_full() => return Err(e),
            Err(_) => {}
            Ok(()) => return Ok(None),
        }
        let find = |fd: std::os::fd::BorrowedFd<'_>| control::find(fd, self.settings.pool.as_deref());
        let Some(control) = self.fds.with(false, find)? else { return Ok(None) };
        let visit = Arc::new(Ownership::new(Membership::visit(Control::new(control))?));
        *self.ownership.unattached.visit.lock() = Some(visit.clone());
        Ok(Some(visit))
    }
}
