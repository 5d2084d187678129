//! The POSIX interposer: thin hooks over `famio::posix`. The exports are made from `hooks.txt` by `build.rs`.

mod aio;
mod asynchronous;
mod entry;
mod fortify;
mod fresh;
mod memory;
#[macro_use]
mod jump;
mod hooks;
mod next;
mod old_stat;
mod outcome;
mod passing;
mod programs;
mod signals;
mod start;
mod stdio;
mod temporary;
