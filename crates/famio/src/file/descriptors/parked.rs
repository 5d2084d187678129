//! Descriptors of ours that are kept until one of the program's is closed, or that take the place of one.

use super::Descriptors;
use crate::file::Access;
use crate::journal::has_lost_its_name;
use crate::sys::InternalFd;
use crate::sys::internal::open_again_low;
use rustix::fs::OFlags;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

impl Descriptors {
    /// A descriptor of ours, which stood in for the program's, has to go when the program closes one of its own.
    pub fn leave(&self, ours: InternalFd) {
        let mut list = self.list();
        let was_writable = list.find(ours.as_raw_fd()).is_some_and(|number| number.access == Access::Write);
        list.take(ours.as_raw_fd());
        if was_writable && list.writable().is_none() && list.parked.is_none() {
            list.parked = Some(Arc::new(ours)); // work on the journal may still need it
        } else {
            list.leftover.push(Arc::new(ours));
        }
    }

    /// The program has closed the descriptors for which this one, with that number, stood in, and has opened the file
    /// again. Closes it, unless work on the journal may need it.
    pub fn replace_stand_in(&self, number: RawFd, ours: InternalFd) {
        let mut list = self.list();
        let was_writable = list.is_writable(number);
        list.take(number);
        if was_writable && list.writable().is_none() && list.parked.is_none() {
            list.parked = Some(Arc::new(ours));
        }
    }

    /// As [`leave`](Self::leave), of one that stands in with that number.
    pub fn leave_stand_in(&self, number: RawFd, ours: InternalFd) {
        let mut list = self.list();
        list.take(number);
        list.leftover.push(Arc::new(ours));
    }

    /// The program has removed the name by which the writable descriptor in use was opened: uses another one, whose
    /// name exists, from now on. Returns whether there is one.
    pub fn prefer_named(&self) -> bool {
        let mut list = self.list();
        list.confirmed = None;
        let open = &mut list.open;
        // SAFETY: as in `with`.
        let is_named = |fd: RawFd| !has_lost_its_name(unsafe { BorrowedFd::borrow_raw(fd) });
        let named = open.iter().position(|number| number.access == Access::Write && is_named(number.fd));
        if let Some(place) = named {
            open[..=place].rotate_right(1);
        }
        named.is_some()
    }

    /// As [`prefer_named`](Self::prefer_named), if the program has no other writable one: opens one of ours by a name
    /// by which the program reads. Returns whether that was possible.
    pub fn park_named(&self) -> bool {
        let mut list = self.list();
        list.confirmed = None;
        if list.writable().is_some() {
            return false;
        }
        // SAFETY: as in `with`.
        let mut open = list.open.iter().map(|number| unsafe { BorrowedFd::borrow_raw(number.fd) });
        let named = open.find(|&fd| !has_lost_its_name(fd));
        // It must not wait for a lease of ours.
        let Some(Ok(new)) = named.map(|fd| open_again_low(fd, OFlags::RDWR | OFlags::NONBLOCK)) else { return false };
        let old = list.parked.take();
        list.park(new.as_raw_fd(), self.key);
        // Closed when the program closes one of its own.
        list.leftover.extend(old);
        list.leftover.extend(InternalFd::at_its_number(new).ok().map(Arc::new));
        list.parked.is_some()
    }

    /// There is no parked descriptor, or the program has closed it.
    #[cold]
    pub(super) fn park_again(&self) -> Option<Arc<InternalFd>> {
        let mut list = self.list();
        if list.parked.as_ref().is_some_and(|parked| parked.get().is_err()) {
            list.parked = None;
        }
        if list.parked.is_none()
            && let Some(fd) = list.writable()
            && self.is_still(fd)
        {
            list.park(fd, self.key);
        }
        list.parked.clone()
    }
}
