//! A pool with a size, shared fairly by the applications that use it (vNVML, section 4.4).
//!
//! The size, and what each process has in the pool, is kept in the pool itself: in a file that everybody sees who has
//! the pool, whatever namespaces he is in. A process has a slot there, and holds it by a lock of an open file
//! description; so a dead process's slot is known by its lock, not by a process id. Processes with the same
//! *application* share one share. `docs/pool.md` says what users may rely on, `docs/format.md` describes the bytes.
//!
//! A journal asks before it becomes longer, and nowhere else: writes, reads and SYNCs do not look. An application
//! may always have its share. What others leave free it borrows, except for a reserve with which a newcomer begins;
//! and it gives that back when somebody below his share finds no room.
//!
//! The file is input that any user of the pool may have written: it is read and written by system calls, never
//! mapped; numbers are bounded as they are read, and a file that makes no sense is a pool without a size. Whoever
//! writes nonsense there can hurt fairness, and nothing else.

mod arithmetic;
mod charge;
mod format;
mod ledger;
mod member;
mod members;
mod orphaned;
mod process;
mod promise;
mod refusal;
mod usage;
mod waiting;
mod wants;

#[cfg(test)]
mod tests;

pub(crate) use charge::{Charge, Limit};
pub use format::{SIZE_MIN, WEIGHT, WEIGHTS};
pub use ledger::set_pool_size;
pub(crate) use members::forget_parents;
pub(crate) use promise::promised;
pub use usage::{PoolShare, PoolUse, pool_use};
