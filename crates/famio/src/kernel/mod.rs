//! The system call instruction, and signals: what is below everything else.

mod raw;
mod signal;

pub use raw::{check, syscall};
pub use signal::{
    ALL_BUT_LIBCS, SignalAction, block_signals, restore_signals, signal_action, signal_bit, signal_this_thread,
    unblock_signals,
};
