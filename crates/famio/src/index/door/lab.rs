//! For tests: a process dies at the door without ending.

use super::Door;
use crate::error::Result;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

impl Door {
    /// The paths of what is there: the page, the shadow, and the epoch if it travels. None before this process has come.
    pub fn paths(&self) -> Vec<String> {
        if !self.is_here() {
            return Vec::new();
        }
        let shadow = self.shadow().map(|number| self.shadow_path(number));
        [self.name.clone()].into_iter().chain(shadow).chain(self.epoch()).collect()
    }

    /// Whoever this process was here has died, while another one was here; it comes anew, with another number. Not with the turn.
    pub fn die_and_come(&self, like: BorrowedFd<'_>) -> Result<()> {
        let other = Self::named(self.name.clone());
        other.come(like, || Ok(false))?;
        let life = &self.page().members[self.place.load(Ordering::Acquire) as usize].life;
        super::LIVES.remove(life);
        life.end();
        *self.file.lock() = None; // with it the lock of its place goes; nothing was said
        self.come(like, || Ok(false))?;
        other.leave();
        Ok(())
    }
}
