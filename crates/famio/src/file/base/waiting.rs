//! Waiting for room that others of a pool with a size have borrowed: at the outer end of a call, where the thread holds
//! nothing that others may need meanwhile. What finds no room further inside only says so, by its error.

use crate::error::{Lent, Result};
use crate::thread::current;
use std::sync::Arc;

/// How often a call goes on after that was given back: a third may take it first.
pub(in crate::file) const WAITS: u32 = 4;

/// Waits for what a call lacks. Returns whether it was given back. A thread that holds a lock does not wait: whichever
/// function has taken that does, after the release.
#[cold]
pub(in crate::file) fn wait_for(lent: Option<Arc<dyn Lent>>) -> bool {
    let thread = current();
    let holds_nothing = thread.posix_locks.get() == 0 && thread.locks_held.get() == 0;
    holds_nothing && lent.is_some_and(|lent| lent.wait())
}

/// Does `work`; again after such a wait, if that is what it lacked. To be called without locks.
///
/// # Errors
/// Those of `work`.
#[inline]
pub(crate) fn waiting_for_room<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let mut waits = WAITS;
    loop {
        match work() {
            Err(e) if waits > 0 && wait_for(e.lent().cloned()) => waits -= 1,
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::thread::Held;
    use core::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Waits(AtomicU32);

    impl Lent for Waits {
        fn wait(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            true
        }
    }

    fn refused(waits: &Arc<Waits>) -> Result<()> {
        Err(Error::of_lent(libc::ENOSPC, "borrowed", waits.clone()))
    }

    #[test]
    fn a_call_waits_some_times_and_then_fails() {
        let waits = Arc::new(Waits::default());
        assert_eq!(waiting_for_room(|| refused(&waits)).unwrap_err().errno(), libc::ENOSPC);
        assert_eq!(waits.0.load(Ordering::Relaxed), WAITS);
        let mut tries = 0;
        let third = waiting_for_room(|| {
            tries += 1;
            if tries < 3 { refused(&waits) } else { Ok(()) }
        });
        assert!(third.is_ok() && tries == 3);
        assert_eq!(waiting_for_room(|| Err::<(), _>(Error::new(libc::ENOSPC))).unwrap_err().errno(), libc::ENOSPC);
    }

    /// A write at the position waited with the position's lock, and a fork for the write.
    #[test]
    fn a_thread_with_a_lock_does_not_wait() {
        let waits = Arc::new(Waits::default());
        for held in [Held::of_process(), Held::of_file()] {
            assert!(waiting_for_room(|| refused(&waits)).is_err());
            drop(held);
        }
        assert_eq!(waits.0.load(Ordering::Relaxed), 0);
    }
}
