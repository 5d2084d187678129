//! Marks the thread that carries out a follow-up of a change: it may change the file meanwhile.

use crate::thread::current;

/// This thread does the follow-up of a change, and may change the file meanwhile.
pub(in crate::file) struct Doing(());

/// See [`Doing`].
pub(in crate::file) fn doing() -> Doing {
    let count = &current().doing_follow_up;
    count.set(count.get() + 1);
    Doing(())
}

/// Whether this thread does so now.
#[inline]
pub(in crate::file) fn is_doing() -> bool {
    current().doing_follow_up.get() != 0
}

impl Drop for Doing {
    fn drop(&mut self) {
        let count = &current().doing_follow_up;
        count.set(count.get() - 1);
    }
}
