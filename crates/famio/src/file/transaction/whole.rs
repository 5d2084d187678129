//! A read sees a transaction as a whole or not at all: it is begun anew if one was being copied to its blocks meanwhile.

use crate::error::{Error, Result};
use crate::file::engine::context::Context;
use crate::file::session::Session;
use core::sync::atomic::{Ordering, fence};

/// Looks at a transaction that is being copied, before the processor is left between two, and before it is taken to be stuck.
const SPINS: u32 = 64;
const LOOKS: u32 = 1 << 22;
/// The same for a signal handler, which may have interrupted the copy.
const LOOKS_OF_HANDLER: u32 = 1 << 12;

impl Session {
    /// How many transactions there were, when none is being copied. To be asked before a read; `attempt` counts.
    ///
    /// # Errors
    /// `EDEADLK`: one is being copied, and does not end.
    #[inline]
    pub(in crate::file) fn applied(&self, cx: Context<'_>, attempt: &mut u32) -> Result<u64> {
        let transactions = cx.shared().transactions.load(Ordering::Acquire);
        if transactions & 1 == 0 && *attempt == 0 {
            *attempt = 1;
            return Ok(transactions);
        }
        self.wait_for_transaction(cx, attempt)
    }

    #[cold]
    fn wait_for_transaction(&self, cx: Context<'_>, attempt: &mut u32) -> Result<u64> {
        let is_handler = crate::thread::current().locks_held.get() > 0;
        loop {
            let transactions = cx.shared().transactions.load(Ordering::Acquire);
            *attempt += 1;
            if transactions & 1 == 0 {
                return Ok(transactions);
            }
            if *attempt > if is_handler { LOOKS_OF_HANDLER } else { LOOKS } {
                return Err(Error::new(libc::EDEADLK));
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
        // What a thread that has the file alone stores is in no order before it is joined.
        if !shared.gate.is_joined(cx.me) {
            self.join(cx)?;
        }
        fence(Ordering::Acquire);
        Ok(shared.transactions.load(Ordering::Relaxed) == applied)
    }
}
