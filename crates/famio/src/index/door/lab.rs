//! For tests: a process dies at the door without ending.

use super::{Door, place, unlock};
use crate::error::Result;
use crate::sys::open_again;
use core::sync::atomic::Ordering;
use rustix::fs::OFlags;
use std::os::fd::AsFd;

impl Door {
    /// The paths of what is there: the page, the shadow, and the epoch if it travels. None before this process has come.
    pub fn paths(&self) -> Vec<String> {
        if !self.is_here() {
            return Vec::new();
        }
        let shadow = self.shadow().map(|number| self.shadow_path(number));
        let control = self.control().map(|control| control.path());
        control.into_iter().chain(shadow).chain(self.epoch()).collect()
    }

    /// Whoever this process was here has died, while another one was here; it comes anew, with another number. Not with the turn.
    pub fn die_and_come(&self) -> Result<()> {
        let Some(control) = self.control() else { return Ok(()) };
        let open = || Ok(open_again(control.as_fd(), OFlags::RDWR)?);
        let other = Self::new();
        other.come(open, || Ok(false))?;
        let life = &self.page().members[self.place.load(Ordering::Acquire) as usize].life;
        super::LIVES.remove(life);
        life.end();
        *self.control.lock() = None;
        unlock(&*control, place(self.place.load(Ordering::Acquire))); // nothing else was said
        self.come(open, || Ok(false))?;
        other.leave();
        Ok(())
    }
}
