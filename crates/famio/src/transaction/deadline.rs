//! The time limit of a transaction.

use crate::sys::monotonic_now;
use core::time::Duration;

/// A point in time, or never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<u64>);

impl Deadline {
    pub const fn none() -> Self {
        Self(None)
    }

    /// This long from now.
    pub fn after(limit: Duration) -> Self {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Self(Some(monotonic_now().saturating_add(limit)))
    }

    /// Whether it has passed. Without a limit, no clock is read.
    #[inline]
    pub fn is_over(self) -> bool {
        self.0.is_some_and(|at| monotonic_now() >= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_never_passes_and_one_of_no_time_has() {
        assert!(!Deadline::none().is_over());
        assert!(Deadline::after(Duration::ZERO).is_over());
        assert!(!Deadline::after(Duration::MAX).is_over());
    }
}
