//! What a call of the program's is made of: its result, its arguments in the program's memory, what its path or
//! descriptor leads to, the lock that a signal handler must not wait for, and names that are
//! not there. Knows nothing of atomic files.

pub(super) mod absent;
pub(super) mod lock;
pub(super) mod look;
pub(super) mod result;
pub(super) mod user;
