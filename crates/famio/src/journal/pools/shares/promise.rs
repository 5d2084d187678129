//! A write that succeeds is promised room in the journal until its SYNC. So the pool is asked at the write, and at no
//! time later: not by the commit, nor by the next session that takes up a hand-over image with a new journal.

use crate::thread::current;

/// What this thread stores until the value is dropped has been promised room: the pool counts it and refuses nothing.
/// For a moment the journals may exceed the pool's size; an application above its share then has to return the excess.
pub(crate) struct Promised(());

/// See [`Promised`].
pub(crate) fn promised() -> Promised {
    let count = &current().promised;
    count.set(count.get() + 1);
    Promised(())
}

/// Whether this thread stores such bytes now.
pub(super) fn is_promised() -> bool {
    current().promised.get() != 0
}

impl Drop for Promised {
    fn drop(&mut self) {
        let count = &current().promised;
        count.set(count.get() - 1);
    }
}
