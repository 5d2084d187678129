//! A session's gate while it is closed.

use crate::index::{Closed, Shared};

/// No thread is inside the session; the gate opens when this is dropped. Changes of the file until then are known as
/// ours, whoever made them: a SYNC and the trimming of private pages may have written blocks back, too.
pub(in crate::file) struct ClosedGate<'a> {
    shared: &'a Shared,
    _closed: Closed<'a>,
}

impl<'a> ClosedGate<'a> {
    pub(in crate::file) fn new(shared: &'a Shared, closed: Closed<'a>) -> Self {
        Self { shared, _closed: closed }
    }
}

impl Drop for ClosedGate<'_> {
    /// Before the gate opens: a process that is killed until then has its own changes.
    fn drop(&mut self) {
        self.shared.leave_now();
    }
}
