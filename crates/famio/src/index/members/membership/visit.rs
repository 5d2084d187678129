//! The control page as a process sees it for which it has no free slot: such a *visitor* may look, but owns nothing,
//! and no member counts on it.

use super::{Control, Membership};
use crate::error::Result;
use crate::index::members::control_page::{MOVED, map};
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// No slot has this number.
const NOWHERE: u32 = u32::MAX;

impl Membership {
    /// The members of the file with that control file, seen by a process that is none of them. Only functions that use
    /// no slot of this process may be called.
    ///
    /// # Errors
    /// Those of mapping the page.
    pub fn visit(control: Control) -> Result<Self> {
        let visit = Self::new();
        visit.place.store(NOWHERE, Ordering::Release);
        visit.page.store(map(&control, core::ptr::null_mut())?.as_ptr(), Ordering::Release);
        let (device, inode) = control.identity();
        visit.of[0].store(device, Ordering::Release);
        visit.of[1].store(inode, Ordering::Release);
        visit.has_attached.store(true, Ordering::Release);
        *visit.control.lock() = Some(Arc::new(control));
        Ok(visit)
    }

    /// Whether a visitor still has nothing better to look at: the page is the file's, and no slot seems to be free. (A
    /// member that was killed may look alive.)
    pub fn is_worth_a_visit(&self) -> bool {
        let is_taken = |member: &super::Member| member.id.load(Ordering::Acquire) != 0 && !member.life.is_over();
        self.state() & MOVED == 0
            && self.page().members.iter().all(is_taken)
            && self.control().is_some_and(|control| control.has_name())
    }
}
