//! Drives the real `sqlite3` program through pipes, under `famio run` or plain, kills it, and looks at what is left.
//! `famio-kill` and the demo are built on it.

pub mod harness;
pub mod workload;
