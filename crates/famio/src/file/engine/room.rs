//! Room in the journal for what a writer is about to do.

use crate::error::Result;

/// How often a writer that finds no room makes some in a pool with a size: in its short journals, others may take it.
const ROOM_TRIES: u32 = 4;

/// Does `work`, again if it found no room (`ENOSPC`) and `make_room` has made some, or found nothing to do: then another
/// thread has just made some, perhaps. `is_shared`: the journal has a part of a pool with a size. Does not wait for what
/// others of the pool have borrowed: the gate is held.
///
/// # Errors
/// Those of `work` and `make_room`.
#[inline]
pub(crate) fn with_room<T>(
    is_shared: impl Fn() -> bool,
    make_room: impl Fn() -> Result<bool>,
    mut work: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut tries = 0;
    while tries == 0 || tries < ROOM_TRIES && is_shared() {
        tries += 1;
        match work() {
            Err(e) if e.errno() == libc::ENOSPC => {
                if !make_room()? {
                    break;
                }
            }
            done => return done,
        }
    }
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use core::cell::Cell;

    /// Fails as often as said; returns the outcome, and how often it was tried.
    fn tried(is_shared: bool, makes: Result<bool>, failures: u32) -> (core::result::Result<(), i32>, u32) {
        let tries = Cell::new(0);
        let work = || {
            tries.set(tries.get() + 1);
            if tries.get() > failures { Ok(()) } else { Err(Error::new(libc::ENOSPC)) }
        };
        let makes = || makes.as_ref().copied().map_err(|e| Error::new(e.errno()));
        (with_room(|| is_shared, makes, work).map_err(|e| e.errno()), tries.get())
    }

    /// The background had checkpointed everything just before the writer wanted to: the write failed with `ENOSPC`.
    #[test]
    fn room_that_another_thread_has_just_made_counts() {
        assert_eq!(tried(false, Ok(false), 1), (Ok(()), 2));
        assert_eq!(tried(false, Ok(false), 9), (Err(libc::ENOSPC), 2));
    }

    #[test]
    fn room_is_made_once_or_in_a_shared_pool_some_times() {
        assert_eq!(tried(false, Ok(true), 0), (Ok(()), 1));
        assert_eq!(tried(false, Ok(true), 1), (Ok(()), 2));
        assert_eq!(tried(false, Ok(true), 2), (Err(libc::ENOSPC), 2));
        assert_eq!(tried(true, Ok(true), 4), (Ok(()), 5));
        assert_eq!(tried(false, Err(Error::new(libc::EIO)), 1), (Err(libc::EIO), 1));
    }
}
