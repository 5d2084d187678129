//! Drives the real `sqlite3` program through pipes, under `famio run` or plain, kills it, and looks at what is left.
//! `famio-kill` and the demo are built on it.

pub mod arguments;
pub mod ending;
pub mod harness;
pub mod launch;
pub mod place;
pub mod random;
pub mod session;
pub mod workload;
