//! The life of the process: start, `fork`, `exec`, limits, exit; and programs that start without the library. Calls
//! what has to be done at each of these.

pub(super) mod by_program;
pub mod exec;
pub(super) mod limits;
pub mod passing;
pub mod process;
pub mod unpreloaded;
