//! Test hook: a member dies without detaching.

use super::{Membership, place, unlock};
use crate::error::Result;
use crate::sys::open_again;
use core::sync::atomic::Ordering;
use rustix::fs::OFlags;
use std::os::fd::AsFd;

impl Membership {
    /// The paths of what exists: the page, the shadow, and the hand-over image. Empty before this process has
    /// attached.
    pub fn paths(&self) -> Vec<String> {
        if !self.is_attached() {
            return Vec::new();
        }
        let shadow = self.shadow().map(|number| self.shadow_path(number));
        let control = self.control().map(|control| control.path());
        control.into_iter().chain(shadow).chain(self.epoch()).collect()
    }

    /// This member dies while another one is attached, and attaches again with a new number. It must not be the
    /// owner.
    pub fn die_and_attach(&self) -> Result<()> {
        let Some(control) = self.control() else { return Ok(()) };
        let open = || Ok(open_again(control.as_fd(), OFlags::RDWR)?);
        let other = Self::new();
        other.attach(open, || Ok(false))?;
        let life = &self.page().members[self.place.load(Ordering::Acquire) as usize].life;
        super::LIVES.remove(life);
        life.end();
        *self.control.lock() = None;
        unlock(&*control, place(self.place.load(Ordering::Acquire))); // as after a kill: nothing is recorded on the page
        self.attach(open, || Ok(false))?;
        other.leave();
        Ok(())
    }
}
