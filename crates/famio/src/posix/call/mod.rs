//! What a call of the program's is made of: its result, its arguments in the program's memory, what its path or
//! descriptor leads to, and the lock that a signal handler must not wait for. Knows nothing of atomic files.

pub(super) mod lock;
pub(super) mod look;
pub(super) mod result;
pub(super) mod user;
