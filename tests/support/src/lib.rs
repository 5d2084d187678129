//! Code shared by the test programs: reproducible random numbers, temporary folders, parsing of arguments, ways to
//! start, feed and kill a program, and the end of a test program.

pub mod arguments;
pub mod ending;
pub mod launch;
pub mod place;
pub mod random;
pub mod session;
