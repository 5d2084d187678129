//! Drives the real `sqlite3` program through pipes, with or without `famio run`, kills it, and checks what is left.
//! `famio-kill` and `famio-programs` use it.

pub mod harness;
pub mod workload;
