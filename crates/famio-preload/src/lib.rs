//! The POSIX interposer: thin hooks over `famio::posix`. `build.rs` generates the exports from `hooks.txt`.

mod aio;
mod asynchronous;
mod entry;
mod first_exit_handler;
mod fortify;
mod memory;
#[macro_use]
mod jump;
mod hooks;
mod next;
mod old_stat;
mod outcome;
mod programs;
mod signals;
mod start;
mod stdio;
mod temporary;
