//! The system call instruction, signals, and room for maps: what is below everything else.

mod addresses;
mod raw;
mod signal;

pub use addresses::try_address_space;
pub use raw::{check, syscall};
pub use signal::{
    ALL_BUT_LIBCS, SignalAction, block_signals, restore_signals, signal_action, signal_bit, signal_this_thread,
    unblock_signals,
};
