//! Why a session did not carry a call out: the call goes to the next session, is made again with its follow-up, or has
//! failed.

use crate::error::{Error, Lent};
use crate::index::Stuck;
use std::sync::Arc;

/// What a session answers a call.
pub(crate) type Answer<T> = core::result::Result<T, Refusal>;

/// Why a session did not carry a call out: a [`Reason`] in one word, as [`Error`] is one, and for the same cause.
pub(crate) struct Refusal(Error);

/// See [`Refusal::reason`].
pub(in crate::file) enum Reason {
    /// The session has ended, or is another process's by now: attach anew, and call again.
    SessionEnded,
    /// Something is to be done beside the change, by the thread that makes it ([`crate::file::operations::follow_up`]).
    NeedsFollowUp,
    /// A file of a group has an open epoch, which is committed with those of the others.
    NeedsGroup,
    Failed(Error),
}

const SESSION_ENDED: u32 = 1;
const NEEDS_FOLLOW_UP: u32 = 2;
const NEEDS_GROUP: u32 = 3;

impl Refusal {
    pub(in crate::file) const fn session_ended() -> Self {
        Self(Error::mark(SESSION_ENDED))
    }

    pub(in crate::file) const fn needs_follow_up() -> Self {
        Self(Error::mark(NEEDS_FOLLOW_UP))
    }

    pub(in crate::file) const fn needs_group() -> Self {
        Self(Error::mark(NEEDS_GROUP))
    }

    #[inline]
    pub(in crate::file) fn is_session_ended(&self) -> bool {
        self.0.is_mark(SESSION_ENDED)
    }

    #[inline]
    pub(in crate::file) fn is_needs_follow_up(&self) -> bool {
        self.0.is_mark(NEEDS_FOLLOW_UP)
    }

    pub(in crate::file) fn is_needs_group(&self) -> bool {
        self.0.is_mark(NEEDS_GROUP)
    }

    /// Whether it failed with that errno.
    pub(in crate::file) fn is_error(&self, errno: i32) -> bool {
        !self.is_session_ended() && !self.is_needs_follow_up() && !self.is_needs_group() && self.0.errno() == errno
    }

    /// What others of the pool have borrowed, if it failed for that.
    pub(in crate::file) fn lent(&self) -> Option<Arc<dyn Lent>> {
        if self.is_session_ended() || self.is_needs_follow_up() { None } else { self.0.lent().cloned() }
    }

    pub(in crate::file) fn reason(self) -> Reason {
        if self.is_session_ended() {
            Reason::SessionEnded
        } else if self.is_needs_follow_up() {
            Reason::NeedsFollowUp
        } else if self.is_needs_group() {
            Reason::NeedsGroup
        } else {
            Reason::Failed(self.0)
        }
    }

    /// Replaces the error of a failure by `change(error)`; other refusals stay.
    pub(in crate::file) fn map_failure(self, change: impl FnOnce(Error) -> Error) -> Self {
        match self.reason() {
            Reason::Failed(error) => Self(change(error)),
            Reason::SessionEnded => Self::session_ended(),
            Reason::NeedsFollowUp => Self::needs_follow_up(),
            Reason::NeedsGroup => Self::needs_group(),
        }
    }
}

impl From<Error> for Refusal {
    #[inline]
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<Stuck> for Refusal {
    fn from(stuck: Stuck) -> Self {
        Self(stuck.into())
    }
}

impl From<rustix::io::Errno> for Refusal {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.into())
    }
}

/// For those who make no second attempt: `ESTALE` for a session that has ended.
impl From<Refusal> for Error {
    #[inline]
    fn from(refusal: Refusal) -> Self {
        match refusal.reason() {
            Reason::SessionEnded => Self::new(libc::ESTALE),
            Reason::NeedsFollowUp | Reason::NeedsGroup => Self::new(libc::EAGAIN),
            Reason::Failed(error) => error,
        }
    }
}

impl core::fmt::Debug for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let what = if self.is_session_ended() {
            "its session has ended"
        } else if self.is_needs_follow_up() {
            "it needs a follow-up"
        } else if self.is_needs_group() {
            "it needs a SYNC of its group"
        } else {
            return self.0.fmt(f);
        };
        write!(f, "Refusal({what})")
    }
}

const _: () = assert!(size_of::<Answer<()>>() == 8 && size_of::<Answer<usize>>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_no_error_and_an_error_no_refusal() {
        assert!(Refusal::session_ended().is_session_ended() && !Refusal::session_ended().is_needs_follow_up());
        assert!(Refusal::needs_follow_up().is_needs_follow_up() && !Refusal::needs_follow_up().is_session_ended());
        for errno in [1, 2, libc::ESTALE, libc::EREMCHG] {
            let bare = Refusal::from(Error::new(errno));
            assert!(!bare.is_session_ended() && !bare.is_needs_follow_up());
            assert_eq!(Error::from(bare).errno(), errno);
            let refusal = Refusal::from(Error::with(errno, "why")).map_failure(|e| e.context("file"));
            assert!(matches!(refusal.reason(), Reason::Failed(e) if e.to_string() == "file: why"));
        }
        let ended = Refusal::session_ended().map_failure(|e| e.context("file"));
        assert!(ended.is_session_ended() && Error::from(ended).errno() == libc::ESTALE);
    }
}
