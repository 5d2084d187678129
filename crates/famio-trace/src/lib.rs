//! The library that `famio trace` loads into programs: it passes each file call on to libc unchanged, and counts it
//! in a file that the command maps, too (`layout`). Nothing is kept per descriptor: at every call, the kernel is
//! asked for its file.
//!
//! `kinds.txt` lists the traced calls. No allocation, no lock, no libc function that is traced: a call may come from
//! a signal handler, a `vfork` child, or before any constructor.

#[macro_use]
#[path = "../../famio-preload/src/jump.rs"]
mod jump;
mod constructor;
mod exports;
mod known;
mod layout;
mod look;
mod maps;
mod number;
mod record;
mod start;
mod stat;
mod wrapped;

include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
