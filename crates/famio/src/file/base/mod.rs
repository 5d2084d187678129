//! What everything in `file` builds on: bits of granules, the caller's buffers, deferred reclamation, refusals of a
//! session, and the wake-ups of the background and the lease thread. Knows nothing of a file.

pub(crate) mod background_wakeup;
pub(super) mod bits;
pub(super) mod buffers;
pub(super) mod calls;
pub(super) mod doing;
pub(super) mod lease_wakeup;
pub(super) mod modified;
pub(super) mod quiet;
pub(super) mod refusal;
pub(super) mod waiting;
