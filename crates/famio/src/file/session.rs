//! A file between its first write and its clean close: arena, home, engine.

use super::context::{Context, Engine};
use super::{Descriptors, Home};
use crate::index::Arena;
use crate::settings::PolicyChoice;

/// An attached file.
pub(crate) struct Session {
    pub arena: Arena,
    pub home: Home,
    pub engine: Box<dyn Engine>,
    /// This process's slot.
    pub me: u32,
    pub choice: PolicyChoice,
}

/// Most bytes that one call moves, as in the kernel.
pub(crate) const CALL_MAX: usize = 0x7fff_f000;

impl Session {
    #[inline]
    pub fn context<'a>(&'a self, fds: &'a Descriptors) -> Context<'a> {
        Context { arena: &self.arena, home: &self.home, fds, me: self.me, choice: self.choice }
    }
}
