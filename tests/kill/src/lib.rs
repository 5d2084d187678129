//! Drives the real `sqlite3` program through pipes, with or without `famio run`, kills it, and checks what is left.
//! `famio-kill` and `famio-programs` use it. `containers` does that to programs of its own that share a pool.

pub mod containers;
pub mod harness;
pub mod workload;
