//! A pool with a size, shared fairly by the applications that use it (vNVML, section 4.4).
//!
//! The size, and what each process has in the pool, is kept in a file of the pool: every process that reaches the pool
//! sees it, whatever its namespaces. A process locks its slot there by an open file description, so a dead process is
//! recognised by its released lock, not by a process id. Processes with the same *application* share one share.
//! `docs/pool.md` says what users may rely on, `docs/format.md` describes the bytes.
//!
//! A journal asks before it becomes longer, and nowhere else: writes, reads and SYNCs do not look. An application
//! may always have its share. It borrows what others leave free, except a reserve for newcomers, and gives it back when
//! an application below its share finds no room.
//!
//! Any user of the pool may have written this file. So it is read by system calls, never mapped, and numbers are
//! bounded as they are read; an invalid file means a pool without a size. Invalid content can only make the shares
//! unfair.

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
