//! Lets a read see a transaction as a whole or not at all: it is repeated if one was being copied to its blocks
//! meanwhile.

use crate::error::{Error, Result};
use crate::file::engine::context::Context;
use crate::file::session::Session;
use crate::index::Stuck;
use core::sync::atomic::{Ordering, fence};

/// Looks at a transaction that is being copied until the thread yields between two, and until the transaction is
/// taken to be stuck.
const SPINS: u32 = 64;
const LOOKS: u32 = 1 << 22;
/// The same in a signal handler, which may have interrupted the copy.
const LOOKS_OF_HANDLER: u32 = 1 << 12;

impl Session {
    /// The number of transactions until now, when none is being copied. Called before a read; `attempt` counts.
    ///
    /// # Errors
    /// `EDEADLK`: a transaction is being copied, and that does not end.
    #[cold]
    pub(in crate::file) fn applied(&self, cx: Context<'_>, attempt: &mut u32) -> Result<u64> {
        let is_handler = crate::thread::current().locks_held.get() > 0;
        loop {
            let transactions = cx.shared().transactions.load(Ordering::Acquire);
            *attempt += 1;
            if transactions & 1 == 0 {
                return Ok(transactions);
            }
            if *attempt > if is_handler { LOOKS_OF_HANDLER } else { LOOKS } {
                return Err(if is_handler { Error::new(libc::EDEADLK) } else { Stuck.into() });
            }
            if *attempt < SPINS || is_handler {
                core::hint::spin_loop();
            } else {
                rustix::thread::sched_yield();
            }
        }
    }

    /// Whether no transaction was being copied since [`applied`](Self::applied).
    #[inline]
    pub(in crate::file) fn is_whole(&self, cx: Context<'_>, applied: u64) -> Result<bool> {
        let shared = cx.shared();
        // Stores of a thread in exclusive mode are unordered until it is joined.
        if !shared.gate.is_joined(cx.me) {
            self.join(cx)?;
        }
        fence(Ordering::Acquire);
        Ok(shared.transactions.load(Ordering::Relaxed) == applied)
    }
}
